/* SPDX-License-Identifier: Apache-2.0 */
/*
 * add, concat, flatten, reshape: tensors are joined and taken apart by copying.  The output of add
 * and concat has its channels last if one of the inputs has; other inputs, and their gradients, are
 * converted.
 */
#include "run/device/cuda/cuda.h"

static bool unlike(const struct pd_compiled_layer *l, int i)
{
	return pd_cuda_unlike(l->in[i], l->out, l->in_shape[i]);
}

/* Reserves scratch to convert an input or its gradient. */
static int prepare_joined(struct pd_compiled_layer *l, bool last, struct pd_error *err)
{
	for (int i = 0; i < l->layer->input_count && last; i++)
		if (l->in[i])
			l->out = l->in[i];
	for (int i = 0; i < l->layer->input_count && l->inside; i++) {
		size_t bytes = pd_align(pd_cuda_batch_bytes(l, l->in_shape[i]));

		if (unlike(l, i) && bytes > l->forward_bytes)
			l->forward_bytes = l->backward_bytes = bytes;
	}
	return 0;
}

/* The output is plain if the axis is not that of the channels. */
static int prepare_concat(struct pd_compiled_layer *l, struct pd_error *err)
{
	return prepare_joined(l, l->layer->dim == 0, err);
}

/* The gradients of add's inputs are its output's, if all have the same layout. */
static int prepare_add(struct pd_compiled_layer *l, struct pd_error *err)
{
	if (prepare_joined(l, true, err) < 0)
		return -1;
	l->passes = true;
	for (int i = 0; i < l->layer->input_count; i++)
		l->passes &= !unlike(l, i);
	return 0;
}

/* Returns an input in the output's layout: itself, or converted in the scratch. */
static const void *read(struct pd_compiled_layer *l, int i, struct pd_error *err)
{
	if (!unlike(l, i))
		return l->src[i];
	return pd_cuda_turn(l, l->temporary, l->out, l->src[i], l->in_shape[i], err) < 0
		? NULL : l->temporary;
}

/*
 * A sum takes a limited number of inputs, so the sum so far becomes the first input of the next
 * one.  A converted input is the last of its sum, so that its scratch is free for the next.
 */
static int forward_add(struct pd_compiled_layer *l, const struct pd_pass *pass,
		       struct pd_error *err)
{
	bool relu = pd_cuda_does_relu(l->net, l->index);
	size_t count = pd_cuda_batch_elements(l, l->in_shape[0]);
	int done = 0;

	while (done < l->layer->input_count) {
		const void *src[PD_KERNEL_SOURCES];
		bool turned = false;
		int n = 0;

		if (done > 0)
			src[n++] = l->dst;
		while (n < PD_KERNEL_SOURCES && done < l->layer->input_count && !turned) {
			turned = unlike(l, done);
			src[n] = read(l, done++, err);
			if (!src[n++])
				return -1;
		}
		if (pd_cuda_queued(l, pd_kernel_sum(pd_cuda_engine(l)->stream, l->net->dtype,
						    l->dst, src, n, count,
						    relu && done == l->layer->input_count),
				   err) < 0)
			return -1;
	}
	return 0;
}

static int backward_add(struct pd_compiled_layer *l, const struct pd_pass *pass,
			struct pd_error *err)
{
	size_t bytes = pd_cuda_batch_bytes(l, l->in_shape[0]);

	for (int i = 0; i < l->layer->input_count; i++) {
		int status = 0;

		if (!l->diff_src[i])
			continue;
		if (unlike(l, i))
			status = pd_cuda_turn(l, l->diff_src[i], l->in[i], l->diff_dst,
					      l->in_shape[i], err);
		else if (l->diff_src[i] != l->diff_dst)
			status = l->net->device->copy(l->net, l->diff_src[i], l->diff_dst, bytes,
						      err);
		if (status < 0)
			return -1;
	}
	return 0;
}

/*
 * Returns the number of places that have a part of every input, one after the other: those before
 * the axis or, with channels last, those of the plane.
 */
static int64_t places(const struct pd_compiled_layer *l)
{
	int64_t samples, area;

	pd_cuda_rows(l, l->out, &l->layer->output, &samples, &area);
	return samples * (l->out ? 1 : pd_shape_axis(&l->layer->output, l->layer->dim).outer);
}

static int rows(struct pd_compiled_layer *l, void *to, size_t to_row, const void *from,
		size_t from_row, size_t bytes, struct pd_error *err)
{
	return pd_cuda_queued(l, cudaMemcpy2DAsync(to, to_row, from, from_row, bytes,
						   (size_t)places(l), cudaMemcpyDeviceToDevice,
						   pd_cuda_engine(l)->stream), err);
}

static size_t row_bytes(const struct pd_compiled_layer *l, const struct pd_shape *shape)
{
	return pd_cuda_batch_bytes(l, shape) / (size_t)places(l);
}

static int forward_concat(struct pd_compiled_layer *l, const struct pd_pass *pass,
			  struct pd_error *err)
{
	size_t row = row_bytes(l, &l->layer->output), at = 0;

	for (int i = 0; i < l->layer->input_count; i++) {
		size_t bytes = row_bytes(l, l->in_shape[i]);
		const void *src = read(l, i, err);

		if (!src || rows(l, (char *)l->dst + at, row, src, bytes, bytes, err) < 0)
			return -1;
		at += bytes;
	}
	return 0;
}

static int backward_concat(struct pd_compiled_layer *l, const struct pd_pass *pass,
			   struct pd_error *err)
{
	size_t row = row_bytes(l, &l->layer->output), at = 0;

	for (int i = 0; i < l->layer->input_count; i++) {
		size_t bytes = row_bytes(l, l->in_shape[i]);
		void *to = unlike(l, i) ? l->temporary : l->diff_src[i];
		const char *from = (const char *)l->diff_dst + at;

		at += bytes;
		if (!l->diff_src[i])
			continue;
		if (rows(l, to, bytes, from, row, bytes, err) < 0 ||
		    (to != l->diff_src[i] && pd_cuda_turn(l, l->diff_src[i], l->in[i], to,
							  l->in_shape[i], err) < 0))
			return -1;
	}
	return 0;
}

/* flatten's output is in plain order. */
static int prepare_flatten(struct pd_compiled_layer *l, struct pd_error *err)
{
	l->same_memory = !pd_cuda_unlike(l->in[0], NULL, l->in_shape[0]);
	return 0;
}

static int forward_flatten(struct pd_compiled_layer *l, const struct pd_pass *pass,
			   struct pd_error *err)
{
	if (l->same_memory)
		return 0;
	return pd_cuda_turn(l, l->dst, NULL, l->src[0], l->in_shape[0], err);
}

static int backward_flatten(struct pd_compiled_layer *l, const struct pd_pass *pass,
			    struct pd_error *err)
{
	if (!l->diff_src[0] || l->diff_src[0] == l->diff_dst)
		return 0;
	if (!l->same_memory)
		return pd_cuda_turn(l, l->diff_src[0], l->in[0], l->diff_dst, l->in_shape[0], err);
	return l->net->device->copy(l->net, l->diff_src[0], l->diff_dst,
				    pd_cuda_batch_bytes(l, l->in_shape[0]), err);
}

const struct pd_compiled_kind pd_cuda_add = {
	.broadcast = &pd_cuda_broadcast,
	.fuses_relu = true,
	.prepare = prepare_add,
	.forward = forward_add,
	.backward = backward_add,
};

const struct pd_compiled_kind pd_cuda_concat = {
	.prepare = prepare_concat,
	.forward = forward_concat,
	.backward = backward_concat,
};

const struct pd_compiled_kind pd_cuda_flatten = {
	.prepare = prepare_flatten,
	.forward = forward_flatten,
	.backward = backward_flatten,
};

const struct pd_compiled_kind pd_cuda_reshape = {
	.prepare = prepare_flatten,
	.forward = forward_flatten,
	.backward = backward_flatten,
};
