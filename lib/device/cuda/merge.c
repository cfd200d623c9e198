/* SPDX-License-Identifier: Apache-2.0 */
/* add, concat, flatten: plain tensors are put together and taken apart by copying. */
#include "device/cuda/cuda.h"

static int prepare_none(struct pd_compiled_layer *l, struct pd_error *err)
{
	return 0;
}

/* More inputs than a sum takes at once: the sum so far is the first of the next. */
static int forward_add(struct pd_compiled_layer *l, const struct pd_pass *pass,
		       struct pd_error *err)
{
	size_t count = pd_cuda_batch_elements(l, l->in_shape[0]);
	int done = 0;

	while (done < l->layer->input_count) {
		const float *src[PD_KERNEL_SOURCES];
		int n = 0;

		if (done > 0)
			src[n++] = l->dst;
		while (n < PD_KERNEL_SOURCES && done < l->layer->input_count)
			src[n++] = l->src[done++];
		if (pd_cuda_queued(l, pd_kernel_sum(pd_cuda_engine(l)->stream, l->dst, src, n,
						    count), err) < 0)
			return -1;
	}
	return 0;
}

static int backward_add(struct pd_compiled_layer *l, const struct pd_pass *pass,
			struct pd_error *err)
{
	size_t bytes = sizeof(float) * pd_cuda_batch_elements(l, l->in_shape[0]);

	for (int i = 0; i < l->layer->input_count; i++)
		if (l->diff_src[i] && l->diff_src[i] != l->diff_dst &&
		    l->net->device->copy(l->net, l->diff_src[i], l->diff_dst, bytes, err) < 0)
			return -1;
	return 0;
}

/* A sample's inputs follow one another in its output: rows of a matrix. */
static int rows(struct pd_compiled_layer *l, void *to, size_t to_row, const void *from,
		size_t from_row, size_t bytes, struct pd_error *err)
{
	return pd_cuda_queued(l, cudaMemcpy2DAsync(to, to_row, from, from_row, bytes,
						   (size_t)l->net->batch, cudaMemcpyDeviceToDevice,
						   pd_cuda_engine(l)->stream), err);
}

static size_t row_bytes(const struct pd_shape *shape)
{
	return sizeof(float) * (size_t)pd_shape_elements(shape);
}

static int forward_concat(struct pd_compiled_layer *l, const struct pd_pass *pass,
			  struct pd_error *err)
{
	size_t row = row_bytes(&l->layer->output), at = 0;

	for (int i = 0; i < l->layer->input_count; i++) {
		size_t bytes = row_bytes(l->in_shape[i]);

		if (rows(l, (char *)l->dst + at, row, l->src[i], bytes, bytes, err) < 0)
			return -1;
		at += bytes;
	}
	return 0;
}

static int backward_concat(struct pd_compiled_layer *l, const struct pd_pass *pass,
			   struct pd_error *err)
{
	size_t row = row_bytes(&l->layer->output), at = 0;

	for (int i = 0; i < l->layer->input_count; i++) {
		size_t bytes = row_bytes(l->in_shape[i]);

		if (l->diff_src[i] && rows(l, l->diff_src[i], bytes,
					   (const char *)l->diff_dst + at, row, bytes, err) < 0)
			return -1;
		at += bytes;
	}
	return 0;
}

static int prepare_flatten(struct pd_compiled_layer *l, struct pd_error *err)
{
	l->same_memory = true;
	return 0;
}

static int forward_flatten(struct pd_compiled_layer *l, const struct pd_pass *pass,
			   struct pd_error *err)
{
	return 0;
}

static int backward_flatten(struct pd_compiled_layer *l, const struct pd_pass *pass,
			    struct pd_error *err)
{
	if (!l->diff_src[0] || l->diff_src[0] == l->diff_dst)
		return 0;
	return l->net->device->copy(l->net, l->diff_src[0], l->diff_dst,
				    sizeof(float) * pd_cuda_batch_elements(l, l->in_shape[0]),
				    err);
}

const struct pd_compiled_kind pd_cuda_add = {
	.prepare = prepare_none,
	.forward = forward_add,
	.backward = backward_add,
};

const struct pd_compiled_kind pd_cuda_concat = {
	.prepare = prepare_none,
	.forward = forward_concat,
	.backward = backward_concat,
};

const struct pd_compiled_kind pd_cuda_flatten = {
	.prepare = prepare_flatten,
	.forward = forward_flatten,
	.backward = backward_flatten,
};
