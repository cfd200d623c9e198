/* SPDX-License-Identifier: Apache-2.0 */
/*
 * maxpool2d, avgpool2d, adaptive_avgpool2d: by oneDNN where all windows have one size, else plain
 * loops, in which window i of n over an axis of length s is [floor(i s / n), ceil((i + 1) s / n)).
 * Max pooling of what is not finite goes another way (maxpool.c); the slot keeps which way it went
 * behind what was chosen.
 */
#include "base/mem.h"
#include "run/device/cpu/cpu.h"
#include "run/device/cpu/maxpool.h"

#include <string.h>

struct pool {
	struct pd_primitive *forward, *backward;
	size_t forward_scratch, backward_scratch;
	struct pd_reorder src, dst, diff_dst, diff_src;
	bool max;
	struct pd_maxpool loops;        /* those that max pooling may take */
	size_t way;                     /* where in the slot it says which way forward went */
};

static void prepare_loops(struct pd_compiled_layer *l, struct pool *p, const struct pd_pooling *pool,
			  const struct pd_layout *in)
{
	const int64_t *from = l->in_shape[0]->size, *to = l->layer->output.size;
	int64_t lanes = pd_layout_lanes(in);
	size_t chosen;

	p->loops = (struct pd_maxpool){
		.dtype = pd_onednn_widens(l->net->engine) ? PD_F32 : l->net->dtype,
		.batch = l->net->batch, .blocks = (from[0] + lanes - 1) / lanes, .lanes = lanes,
		.in = { from[1], from[2] }, .out = { to[1], to[2] },
		.kernel = { pool->kernel[0], pool->kernel[1] },
		.stride = { pool->stride[0], pool->stride[1] },
		.padding = { pool->padding[0], pool->padding[1] },
	};
	chosen = pd_maxpool_bytes(&p->loops);
	p->way = pd_align(chosen > l->extra_bytes ? chosen : l->extra_bytes);
	l->extra_bytes = p->way + pd_align(sizeof(bool));
}

static int prepare_reorders(struct pd_compiled_layer *l, struct pool *p, struct pd_error *err)
{
	const struct pd_layout *src = pd_primitive_layout(p->forward, PD_ARG_SRC);
	const struct pd_layout *dst = pd_primitive_layout(p->forward, PD_ARG_DST);

	return pd_reorder_prepare(l, &p->src, l->in[0], src, false, &l->forward_bytes, err) < 0 ||
	       pd_reorder_prepare(l, &p->dst, dst, l->out, true, &l->forward_bytes, err) < 0 ||
	       pd_reorder_prepare(l, &p->diff_dst, l->out, dst, false, &l->backward_bytes,
				  err) < 0 ||
	       pd_reorder_prepare(l, &p->diff_src, src, l->in[0], true, &l->backward_bytes, err) < 0
		? -1 : 0;
}

static int prepare(struct pd_compiled_layer *l, const struct pd_pooling *pool, struct pd_error *err)
{
	const struct pd_shape *out = &l->layer->output;
	const int64_t size[] = { l->net->batch, out->size[0], out->size[1], out->size[2] };
	struct pd_onednn *dnn = l->net->engine;
	const struct pd_layout *in = pd_layout_quick(dnn, l->in[0]);
	struct pool *p;

	l->out = pd_layout_like(dnn, in, size);
	if (!l->out)
		return pd_error_failed(err, "layer \"%s\": its input has a layout that pooling "
				       "does not know", l->layer->name);
	if (!l->inside)
		return 0;
	l->own = p = pd_zalloc(sizeof(*p));
	p->forward = pd_primitive_pool(dnn, PD_FORWARD, pool, in, l->out, NULL, err);
	if (!p->forward ||
	    pd_primitive_prepare(l, p->forward, &p->forward_scratch, &l->forward_bytes, err) < 0)
		return -1;
	if (pd_primitive_layout(p->forward, PD_ARG_WORKSPACE))
		l->extra_bytes = pd_layout_bytes(pd_primitive_layout(p->forward, PD_ARG_WORKSPACE));
	p->max = pool->max;
	if (p->max)
		prepare_loops(l, p, pool, in);
	p->backward = pd_primitive_pool(dnn, PD_BACKWARD_DATA, pool, in, l->out, p->forward, err);
	if (!p->backward ||
	    pd_primitive_prepare(l, p->backward, &p->backward_scratch, &l->backward_bytes, err) < 0)
		return -1;
	return prepare_reorders(l, p, err);
}

static int prepare_window(struct pd_compiled_layer *l, bool max, struct pd_error *err)
{
	const struct pd_layer *layer = l->layer;
	const struct pd_pooling pool = {
		.kernel = { layer->kernel[0], layer->kernel[1] },
		.stride = { layer->stride[0], layer->stride[1] },
		.padding = { layer->padding[0], layer->padding[1] },
		.max = max,
		.count_include_pad = layer->count_include_pad,
	};

	return prepare(l, &pool, err);
}

static int prepare_max(struct pd_compiled_layer *l, struct pd_error *err)
{
	return prepare_window(l, true, err);
}

static int prepare_average(struct pd_compiled_layer *l, struct pd_error *err)
{
	return prepare_window(l, false, err);
}

/* Whether max pooling went by its own loops. */
static bool *way_of(const struct pd_compiled_layer *l)
{
	const struct pool *p = l->own;

	return (bool *)((char *)l->extra + p->way);
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	struct pool *p = l->own;
	const void *args[PD_ARGS] = {
		[PD_ARG_SRC] = pd_reorder_in(l, &p->src, l->src[0], err),
		[PD_ARG_DST] = pd_reorder_buffer(l, &p->dst, l->dst),
		[PD_ARG_WORKSPACE] = l->extra,
		[PD_ARG_SCRATCH] = (char *)l->temporary + p->forward_scratch,
	};

	if (!args[PD_ARG_SRC])
		return -1;
	if (p->max && (*way_of(l) = pd_maxpool_must(&p->loops, args[PD_ARG_SRC])))
		pd_maxpool_forward(&p->loops, (void *)args[PD_ARG_DST], l->extra, args[PD_ARG_SRC]);
	else if (pd_primitive_run(p->forward, args, err) < 0)
		return -1;
	return pd_reorder_out(l, &p->dst, l->dst, err);
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	struct pool *p = l->own;
	const void *args[PD_ARGS] = {
		[PD_ARG_WORKSPACE] = l->extra,
		[PD_ARG_SCRATCH] = (char *)l->temporary + p->backward_scratch,
	};

	if (!l->diff_src[0])
		return 0;
	args[PD_ARG_DIFF_DST] = pd_reorder_in(l, &p->diff_dst, l->diff_dst, err);
	args[PD_ARG_DIFF_SRC] = pd_reorder_buffer(l, &p->diff_src, l->diff_src[0]);
	if (!args[PD_ARG_DIFF_DST])
		return -1;
	if (p->max && *way_of(l))
		pd_maxpool_backward(&p->loops, (void *)args[PD_ARG_DIFF_SRC], l->extra,
				    args[PD_ARG_DIFF_DST]);
	else if (pd_primitive_run(p->backward, args, err) < 0)
		return -1;
	return pd_reorder_out(l, &p->diff_src, l->diff_src[0], err);
}

/* Adaptive pooling with windows of several sizes. */
struct adaptive {
	struct pd_reorder in, diff_in;
	/*
	 * Offsets in scratch, for 16 bits, of forward and backward: a plane of the input and one of
	 * the output, in f32.
	 */
	size_t wide[2], wide_out[2];
};

static void take_planes(struct pd_compiled_layer *l, struct adaptive *a, int way, size_t *bytes_p)
{
	const int64_t *in = l->in_shape[0]->size, *out = l->layer->output.size;

	if (l->net->dtype == PD_F32)
		return;
	a->wide[way] = *bytes_p;
	a->wide_out[way] = *bytes_p += pd_align(sizeof(float) * (size_t)(in[1] * in[2]));
	*bytes_p += pd_align(sizeof(float) * (size_t)(out[1] * out[2]));
}

static bool is_even(const struct pd_compiled_layer *l)
{
	const int64_t *in = l->in_shape[0]->size, *out = l->layer->output.size;

	return in[1] % out[1] == 0 && in[2] % out[2] == 0;
}

static int prepare_adaptive(struct pd_compiled_layer *l, struct pd_error *err)
{
	const int64_t *in = l->in_shape[0]->size, *out = l->layer->output.size;
	const struct pd_pooling pool = {
		.kernel = { in[1] / out[1], in[2] / out[2] },
		.stride = { in[1] / out[1], in[2] / out[2] },
	};
	const struct pd_layout *plain = pd_cpu_plain(l->net, l->in_shape[0]);
	struct adaptive *a;

	if (is_even(l))
		return prepare(l, &pool, err);
	l->out = pd_cpu_plain(l->net, &l->layer->output);
	if (!l->inside)
		return 0;
	l->own = a = pd_zalloc(sizeof(*a));
	if (pd_reorder_prepare(l, &a->in, l->in[0], plain, false, &l->forward_bytes, err) < 0 ||
	    pd_reorder_prepare(l, &a->diff_in, plain, l->in[0], true, &l->backward_bytes, err) < 0)
		return -1;
	take_planes(l, a, 0, &l->forward_bytes);
	take_planes(l, a, 1, &l->backward_bytes);
	return 0;
}

struct window {
	int64_t begin, end;
};

static struct window window(int64_t i, int64_t n, int64_t s)
{
	return (struct window){ i * s / n, ((i + 1) * s + n - 1) / n };
}

static float mean(const float *plane, int64_t width, struct window y, struct window x)
{
	float sum = 0;

	for (int64_t i = y.begin; i < y.end; i++)
		for (int64_t j = x.begin; j < x.end; j++)
			sum += plane[i * width + j];
	return sum / (float)((y.end - y.begin) * (x.end - x.begin));
}

static void forward_plane(float *dst, const float *src, const int64_t *in, const int64_t *out)
{
	for (int64_t i = 0; i < out[1]; i++)
		for (int64_t j = 0; j < out[2]; j++)
			*dst++ = mean(src, in[2], window(i, out[1], in[1]),
				      window(j, out[2], in[2]));
}

static void spread(float *plane, int64_t width, struct window y, struct window x, float gradient)
{
	gradient /= (float)((y.end - y.begin) * (x.end - x.begin));
	for (int64_t i = y.begin; i < y.end; i++)
		for (int64_t j = x.begin; j < x.end; j++)
			plane[i * width + j] += gradient;
}

static void backward_plane(float *diff_src, const float *diff_dst, const int64_t *in,
			   const int64_t *out)
{
	memset(diff_src, 0, sizeof(float) * (size_t)(in[1] * in[2]));
	for (int64_t i = 0; i < out[1]; i++)
		for (int64_t j = 0; j < out[2]; j++)
			spread(diff_src, in[2], window(i, out[1], in[1]),
			       window(j, out[2], in[2]), *diff_dst++);
}

/* Works plane by plane; planes of 16 bits are converted to f32 and back. */
static void each_plane(struct pd_compiled_layer *l, bool back, char *to, const char *from)
{
	const int64_t *in = l->in_shape[0]->size, *out = l->layer->output.size;
	const size_t elements[2] = { (size_t)(in[1] * in[2]), (size_t)(out[1] * out[2]) };
	size_t each = pd_dtype_bytes(l->net->dtype);
	const struct adaptive *a = l->own;
	float *wide[2] = { (float *)((char *)l->temporary + a->wide[back]),
			   (float *)((char *)l->temporary + a->wide_out[back]) };
	void (*plane)(float *, const float *, const int64_t *, const int64_t *) =
		back ? backward_plane : forward_plane;

	for (int64_t n = 0; n < l->net->batch * in[0]; n++) {
		if (l->net->dtype == PD_F32) {
			plane((float *)to, (const float *)from, in, out);
		} else {
			pd_cpu_widen(l->net->dtype, wide[back], from, elements[back]);
			plane(wide[!back], wide[back], in, out);
			pd_cpu_narrow(l->net->dtype, to, wide[!back], elements[!back]);
		}
		from += elements[back] * each;
		to += elements[!back] * each;
	}
}

static int forward_adaptive(struct pd_compiled_layer *l, const struct pd_pass *pass,
			    struct pd_error *err)
{
	struct adaptive *a = l->own;
	const char *src;

	if (is_even(l))
		return forward(l, pass, err);
	src = pd_reorder_in(l, &a->in, l->src[0], err);
	if (!src)
		return -1;
	each_plane(l, false, l->dst, src);
	return 0;
}

static int backward_adaptive(struct pd_compiled_layer *l, const struct pd_pass *pass,
			     struct pd_error *err)
{
	struct adaptive *a = l->own;
	char *diff_src;

	if (is_even(l))
		return backward(l, pass, err);
	if (!l->diff_src[0])
		return 0;
	diff_src = pd_reorder_buffer(l, &a->diff_in, l->diff_src[0]);
	each_plane(l, true, diff_src, l->diff_dst);
	return pd_reorder_out(l, &a->diff_in, l->diff_src[0], err);
}

const struct pd_compiled_kind pd_cpu_maxpool2d = {
	.prepare = prepare_max,
	.forward = forward,
	.backward = backward,
};

const struct pd_compiled_kind pd_cpu_avgpool2d = {
	.prepare = prepare_average,
	.forward = forward,
	.backward = backward,
};

const struct pd_compiled_kind pd_cpu_adaptive_avgpool2d = {
	.prepare = prepare_adaptive,
	.forward = forward_adaptive,
	.backward = backward_adaptive,
};
