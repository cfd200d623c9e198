/* SPDX-License-Identifier: Apache-2.0 */
/*
 * add, concat, flatten and reshape compute nothing but sums.  add takes the layout of its first
 * input; its inputs' gradients are its output's if all have that layout.  concat takes the layout of
 * its inputs where samples can then be joined by copying, else the plain layout.
 */
#include "base/mem.h"
#include "run/device/cpu/cpu.h"

#include <string.h>

struct join {
	struct pd_reorder flatten, unflatten;
	/* by input: the layout for joining, and reorders to and from it */
	const struct pd_layout **layouts;
	struct pd_reorder *in, *out;
	const void **src;
};

/* Makes one allocation, since the net frees `own` with one free(). */
static struct join *join_new(int inputs)
{
	size_t n = (size_t)inputs, each = sizeof(void *) * 2 + sizeof(struct pd_reorder) * 2;
	struct join *m = pd_zalloc(sizeof(*m) + n * each);

	m->in = (struct pd_reorder *)(m + 1);
	m->out = m->in + n;
	m->layouts = (const struct pd_layout **)(m->out + n);
	m->src = (const void **)(m->layouts + n);
	return m;
}

static int prepare_inputs(struct pd_compiled_layer *l, struct join *m, struct pd_error *err)
{
	for (int i = 0; i < l->layer->input_count; i++)
		if (pd_reorder_prepare(l, &m->in[i], l->in[i], m->layouts[i], false,
				       &l->forward_bytes, err) < 0 ||
		    pd_reorder_prepare(l, &m->out[i], m->layouts[i], l->in[i], true,
				       &l->backward_bytes, err) < 0)
			return -1;
	return 0;
}

static int convert_inputs(struct pd_compiled_layer *l, struct join *m, struct pd_error *err)
{
	for (int i = 0; i < l->layer->input_count; i++) {
		m->src[i] = pd_reorder_in(l, &m->in[i], l->src[i], err);
		if (!m->src[i])
			return -1;
	}
	return 0;
}

static int prepare_add(struct pd_compiled_layer *l, struct pd_error *err)
{
	struct join *m;

	l->out = l->in[0];
	if (!l->inside)
		return 0;
	l->own = m = join_new(l->layer->input_count);
	l->passes = true;
	for (int i = 0; i < l->layer->input_count; i++) {
		m->layouts[i] = l->out;
		l->passes &= pd_layout_same(l->in[i], l->out);
	}
	return prepare_inputs(l, m, err);
}

static int forward_add(struct pd_compiled_layer *l, const struct pd_pass *pass,
		       struct pd_error *err)
{
	struct join *m = l->own;
	size_t count;

	if (convert_inputs(l, m, err) < 0)
		return -1;
	/* adding includes the padding, which is zero */
	count = pd_layout_bytes(l->out) / pd_dtype_bytes(l->net->dtype);
	if (l->net->dtype == PD_F32)
		pd_cpu_sum(l->dst, (const float *const *)m->src, l->layer->input_count, count);
	else
		pd_cpu_sum_narrow(l->net->dtype, l->dst, m->src, l->layer->input_count, count);
	return 0;
}

static int backward_add(struct pd_compiled_layer *l, const struct pd_pass *pass,
			struct pd_error *err)
{
	struct join *m = l->own;

	for (int i = 0; i < l->layer->input_count; i++)
		if (l->diff_src[i] && l->diff_src[i] != l->diff_dst) {
			memcpy(pd_reorder_buffer(l, &m->out[i], l->diff_src[i]), l->diff_dst,
			       pd_layout_bytes(l->out));
			if (pd_reorder_out(l, &m->out[i], l->diff_src[i], err) < 0)
				return -1;
		}
	return 0;
}

/* Returns the layout of a batch of `shape` that corresponds to that of the first input. */
static const struct pd_layout *like_first(struct pd_compiled_layer *l, const struct pd_shape *shape)
{
	int64_t size[1 + PD_MAX_DIMS] = { l->net->batch };

	for (int d = 0; d < shape->dims; d++)
		size[1 + d] = shape->size[d];
	return pd_layout_like(l->net->engine, l->in[0], size);
}

static bool can_stack(struct pd_compiled_layer *l)
{
	if (l->layer->dim != 0)
		return false;
	for (int i = 0; i < l->layer->input_count; i++)
		if (!pd_layout_stacks(l->in[i]) ||
		    like_first(l, l->in_shape[i]) != l->in[i])
			return false;
	return like_first(l, &l->layer->output) != NULL;
}

static int prepare_concat(struct pd_compiled_layer *l, struct pd_error *err)
{
	bool stack = can_stack(l);
	struct join *m;

	l->out = stack ? like_first(l, &l->layer->output)
		       : pd_cpu_plain(l->net, &l->layer->output);
	if (!l->inside)
		return 0;
	l->own = m = join_new(l->layer->input_count);
	for (int i = 0; i < l->layer->input_count; i++)
		m->layouts[i] = stack ? l->in[i] : pd_cpu_plain(l->net, l->in_shape[i]);
	return prepare_inputs(l, m, err);
}

/* The places before the axis: each has a part of every input, one after the other. */
static int64_t rows_of(const struct pd_compiled_layer *l)
{
	return l->net->batch * pd_shape_axis(&l->layer->output, l->layer->dim).outer;
}

static int forward_concat(struct pd_compiled_layer *l, const struct pd_pass *pass,
			  struct pd_error *err)
{
	struct join *m = l->own;
	int64_t rows = rows_of(l);
	char *dst = l->dst;

	if (convert_inputs(l, m, err) < 0)
		return -1;
	for (int64_t n = 0; n < rows; n++)
		for (int i = 0; i < l->layer->input_count; i++) {
			size_t bytes = pd_layout_bytes(m->layouts[i]) / (size_t)rows;

			memcpy(dst, (const char *)m->src[i] + (size_t)n * bytes, bytes);
			dst += bytes;
		}
	return 0;
}

static int backward_concat(struct pd_compiled_layer *l, const struct pd_pass *pass,
			   struct pd_error *err)
{
	struct join *m = l->own;
	size_t rows = (size_t)rows_of(l), row = pd_layout_bytes(l->out) / rows;
	const char *from = l->diff_dst;

	for (int i = 0; i < l->layer->input_count; i++) {
		size_t bytes = pd_layout_bytes(m->layouts[i]) / rows;

		if (l->diff_src[i]) {
			char *to = pd_reorder_buffer(l, &m->out[i], l->diff_src[i]);

			for (size_t n = 0; n < rows; n++)
				memcpy(to + n * bytes, from + n * row, bytes);
			if (pd_reorder_out(l, &m->out[i], l->diff_src[i], err) < 0)
				return -1;
		}
		from += bytes;
	}
	return 0;
}

static int prepare_flatten(struct pd_compiled_layer *l, struct pd_error *err)
{
	const struct pd_layout *plain = pd_cpu_plain(l->net, l->in_shape[0]);
	struct join *m;

	l->out = pd_cpu_plain(l->net, &l->layer->output);
	l->same_memory = pd_layout_same(l->in[0], plain);
	if (!l->inside || l->same_memory)
		return 0;
	l->own = m = join_new(0);
	if (pd_reorder_between(l, &m->flatten, l->in[0], plain, &l->forward_bytes, err) < 0)
		return -1;
	return pd_reorder_between(l, &m->unflatten, plain, l->in[0], &l->backward_bytes, err);
}

static int forward_flatten(struct pd_compiled_layer *l, const struct pd_pass *pass,
			   struct pd_error *err)
{
	struct join *m = l->own;

	return l->same_memory ? 0 : pd_reorder_convert(l, &m->flatten, l->src[0], l->dst, err);
}

static int backward_flatten(struct pd_compiled_layer *l, const struct pd_pass *pass,
			    struct pd_error *err)
{
	struct join *m = l->own;

	if (!l->diff_src[0])
		return 0;
	if (l->same_memory) {
		if (l->diff_src[0] != l->diff_dst)
			memcpy(l->diff_src[0], l->diff_dst, pd_layout_bytes(l->out));
		return 0;
	}
	return pd_reorder_convert(l, &m->unflatten, l->diff_dst, l->diff_src[0], err);
}

const struct pd_compiled_kind pd_cpu_add = {
	.broadcast = &pd_cpu_broadcast,
	.prepare = prepare_add,
	.forward = forward_add,
	.backward = backward_add,
};

const struct pd_compiled_kind pd_cpu_concat = {
	.prepare = prepare_concat,
	.forward = forward_concat,
	.backward = backward_concat,
};

const struct pd_compiled_kind pd_cpu_flatten = {
	.prepare = prepare_flatten,
	.forward = forward_flatten,
	.backward = backward_flatten,
};

const struct pd_compiled_kind pd_cpu_reshape = {
	.prepare = prepare_flatten,
	.forward = forward_flatten,
	.backward = backward_flatten,
};
