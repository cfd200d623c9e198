/* SPDX-License-Identifier: Apache-2.0 */
/* slice, transpose, mean, rope: see the CPU's. */
#include "run/device/cuda/cuda.h"

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	return 0;
}

/* ---- slice ---- */

/* Bytes of the input between two places of the axis, of what is before the part, of the part. */
struct part {
	size_t row, before, bytes, rows;
};

static struct part part_of(const struct pd_compiled_layer *l)
{
	struct pd_axis a = pd_compiled_around(l, l->layer->dim);
	size_t each = pd_dtype_bytes(l->net->dtype) * (size_t)a.inner;

	return (struct part){ (size_t)a.extent * each, (size_t)l->layer->start * each,
			      (size_t)(l->layer->end - l->layer->start) * each, (size_t)a.outer };
}

static int forward_slice(struct pd_compiled_layer *l, const struct pd_pass *pass,
			 struct pd_error *err)
{
	const struct part p = part_of(l);

	return pd_cuda_queued(l, cudaMemcpy2DAsync(l->dst, p.bytes,
						   (const char *)l->src[0] + p.before, p.row,
						   p.bytes, p.rows, cudaMemcpyDeviceToDevice,
						   pd_cuda_engine(l)->stream), err);
}

static int backward_slice(struct pd_compiled_layer *l, const struct pd_pass *pass,
			  struct pd_error *err)
{
	const struct part p = part_of(l);

	if (!l->diff_src[0])
		return 0;
	if (p.bytes < p.row &&
	    l->net->device->zero(l->net, l->diff_src[0], p.row * p.rows, err) < 0)
		return -1;
	return pd_cuda_queued(l, cudaMemcpy2DAsync((char *)l->diff_src[0] + p.before, p.row,
						   l->diff_dst, p.bytes, p.bytes, p.rows,
						   cudaMemcpyDeviceToDevice,
						   pd_cuda_engine(l)->stream), err);
}

const struct pd_compiled_kind pd_cuda_slice = {
	.plain = true,
	.prepare = prepare,
	.forward = forward_slice,
	.backward = backward_slice,
};

/* ---- transpose ---- */

static int turn(struct pd_compiled_layer *l, void *dst, const void *src,
		const struct pd_shape *shape, struct pd_error *err)
{
	int64_t a = l->layer->dim0, b = l->layer->dim1;
	struct pd_axis left = pd_shape_axis(shape, a < b ? a : b);
	struct pd_axis right = pd_shape_axis(shape, a < b ? b : a);
	struct pd_kernel_swap s = { l->net->batch * left.outer, left.extent,
				    right.outer / left.outer / left.extent, right.extent,
				    right.inner };

	if (a == b)
		return l->net->device->copy(l->net, dst, src, pd_cuda_batch_bytes(l, shape), err);
	return pd_cuda_queued(l, pd_kernel_swap(pd_cuda_engine(l)->stream, l->net->dtype, &s, dst,
						src), err);
}

static int forward_transpose(struct pd_compiled_layer *l, const struct pd_pass *pass,
			     struct pd_error *err)
{
	return turn(l, l->dst, l->src[0], l->in_shape[0], err);
}

static int backward_transpose(struct pd_compiled_layer *l, const struct pd_pass *pass,
			      struct pd_error *err)
{
	return l->diff_src[0] ? turn(l, l->diff_src[0], l->diff_dst, &l->layer->output, err) : 0;
}

const struct pd_compiled_kind pd_cuda_transpose = {
	.plain = true,
	.prepare = prepare,
	.forward = forward_transpose,
	.backward = backward_transpose,
};

/* ---- mean ---- */

static int forward_mean(struct pd_compiled_layer *l, const struct pd_pass *pass,
			struct pd_error *err)
{
	const struct pd_axis a = pd_compiled_around(l, l->layer->dim);

	return pd_cuda_queued(l, pd_kernel_mean(pd_cuda_engine(l)->stream, l->net->dtype, l->dst,
						l->src[0], a.outer, a.extent, a.inner), err);
}

static int backward_mean(struct pd_compiled_layer *l, const struct pd_pass *pass,
			 struct pd_error *err)
{
	const struct pd_axis a = pd_compiled_around(l, l->layer->dim);

	if (!l->diff_src[0])
		return 0;
	return pd_cuda_queued(l, pd_kernel_mean_back(pd_cuda_engine(l)->stream, l->net->dtype,
						     l->diff_src[0], l->diff_dst, a.outer,
						     a.extent, a.inner), err);
}

const struct pd_compiled_kind pd_cuda_mean = {
	.plain = true,
	.prepare = prepare,
	.forward = forward_mean,
	.backward = backward_mean,
};

/* ---- rope ---- */

static int rotate(struct pd_compiled_layer *l, void *dst, const void *src, bool back,
		  struct pd_error *err)
{
	int64_t positions = l->in_shape[0]->size[0];
	const struct pd_kernel_rope r = {
		.samples = l->net->batch, .positions = positions,
		.rows = pd_shape_elements(l->in_shape[0]) / positions / l->layer->head_dim,
		.rotary = pd_compiled_rotary(l->layer), .pairs = l->layer->head_dim / 2,
		.interleaved = l->layer->interleaved, .back = back,
	};

	return pd_cuda_queued(l, pd_kernel_rope(pd_cuda_engine(l)->stream, l->net->dtype, &r, dst,
						src), err);
}

static int forward_rope(struct pd_compiled_layer *l, const struct pd_pass *pass,
			struct pd_error *err)
{
	return rotate(l, l->dst, l->src[0], false, err);
}

static int backward_rope(struct pd_compiled_layer *l, const struct pd_pass *pass,
			 struct pd_error *err)
{
	return l->diff_src[0] ? rotate(l, l->diff_src[0], l->diff_dst, true, err) : 0;
}

const struct pd_compiled_kind pd_cuda_rope = {
	.plain = true,
	.prepare = prepare,
	.forward = forward_rope,
	.backward = backward_rope,
};
