/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slice, transpose, mean: what goes along an axis of a sample.  A batch is plain, and its samples are
 * one more of the axes before that.  A mean's sum is taken in f32, ascending, or, along the last axis,
 * in lanes (floats.h); threads take whole sums.
 */
#include "base/mem.h"
#include "run/device/cpu/cpu.h"
#include "run/device/cpu/floats.h"

#include <string.h>

#define PIECE 1024                      /* a multiple of PD_FLOAT_LANES */

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	l->out = pd_cpu_plain(l->net, &l->layer->output);
	return 0;
}

/* ---- slice ---- */

static int forward_slice(struct pd_compiled_layer *l, const struct pd_pass *pass,
			 struct pd_error *err)
{
	struct pd_axis a = pd_compiled_around(l, l->layer->dim);
	size_t bytes = pd_dtype_bytes(l->net->dtype) * (size_t)a.inner;
	size_t row = (size_t)a.extent * bytes;
	size_t part = (size_t)(l->layer->end - l->layer->start) * bytes;
	const char *from = (const char *)l->src[0] + (size_t)l->layer->start * bytes;

#pragma omp parallel for schedule(static)
	for (int64_t o = 0; o < a.outer; o++)
		memcpy((char *)l->dst + (size_t)o * part, from + (size_t)o * row, part);
	return 0;
}

static int backward_slice(struct pd_compiled_layer *l, const struct pd_pass *pass,
			  struct pd_error *err)
{
	struct pd_axis a = pd_compiled_around(l, l->layer->dim);
	size_t bytes = pd_dtype_bytes(l->net->dtype) * (size_t)a.inner;
	size_t before = (size_t)l->layer->start * bytes;
	size_t part = (size_t)(l->layer->end - l->layer->start) * bytes;
	size_t row = (size_t)a.extent * bytes;

	if (!l->diff_src[0])
		return 0;
#pragma omp parallel for schedule(static)
	for (int64_t o = 0; o < a.outer; o++) {
		char *to = (char *)l->diff_src[0] + (size_t)o * row;

		memset(to, 0, before);
		memcpy(to + before, (const char *)l->diff_dst + (size_t)o * part, part);
		memset(to + before + part, 0, row - before - part);
	}
	return 0;
}

const struct pd_compiled_kind pd_cpu_slice = {
	.plain = true,
	.prepare = prepare,
	.forward = forward_slice,
	.backward = backward_slice,
};

/* ---- transpose ---- */

/*
 * A shape as five axes, outer x first x between x second x inner, of which the second and the fourth
 * change places.
 */
struct swap {
	int64_t outer, first, between, second, inner;
};

static struct swap swap_of(const struct pd_compiled_layer *l, const struct pd_shape *shape)
{
	int64_t a = l->layer->dim0, b = l->layer->dim1, low = a < b ? a : b, high = a < b ? b : a;
	struct pd_axis left = pd_shape_axis(shape, low), right = pd_shape_axis(shape, high);

	if (low == high)
		return (struct swap){ left.outer * l->net->batch, 1, 1, 1,
				      left.extent * left.inner };
	return (struct swap){ left.outer * l->net->batch, left.extent,
			      right.outer / left.outer / left.extent, right.extent, right.inner };
}

/* Rows of `inner` elements: those of one `first` follow each other in dst. */
static void move_rows(char *dst, const char *src, const struct swap *s, size_t bytes)
{
	size_t first = (size_t)s->first, between = (size_t)s->between, second = (size_t)s->second;

	for (size_t k = 0; k < second; k++)
		for (size_t b = 0; b < between; b++)
			for (size_t f = 0; f < first; f++)
				memcpy(dst + ((k * between + b) * first + f) * bytes,
				       src + ((f * between + b) * second + k) * bytes, bytes);
}

#define MOVE(type)                                                                              \
	static void move_##type(type *restrict dst, const type *restrict src,                   \
				const struct swap *s)                                           \
	{                                                                                       \
		int64_t step = s->between * s->second;                                          \
                                                                                                \
		for (int64_t k = 0; k < s->second; k++)                                         \
			for (int64_t b = 0; b < s->between; b++)                                \
				for (int64_t f = 0; f < s->first; f++)                          \
					*dst++ = src[f * step + b * s->second + k];             \
	}
MOVE(uint16_t)
MOVE(uint32_t)

/* dst: a batch in which the two axes are the other way round than in src, which s describes. */
static void turn(const struct pd_compiled_layer *l, void *dst, const void *src,
		 const struct swap *s)
{
	size_t each = pd_dtype_bytes(l->net->dtype);
	size_t block = (size_t)(s->first * s->between * s->second * s->inner) * each;

#pragma omp parallel for schedule(static)
	for (int64_t o = 0; o < s->outer; o++) {
		char *to = (char *)dst + (size_t)o * block;
		const char *from = (const char *)src + (size_t)o * block;

		if (s->inner > 1)
			move_rows(to, from, s, (size_t)s->inner * each);
		else if (each == 2)
			move_uint16_t((void *)to, (const void *)from, s);
		else
			move_uint32_t((void *)to, (const void *)from, s);
	}
}

static int forward_transpose(struct pd_compiled_layer *l, const struct pd_pass *pass,
			     struct pd_error *err)
{
	const struct swap s = swap_of(l, l->in_shape[0]);

	turn(l, l->dst, l->src[0], &s);
	return 0;
}

static int backward_transpose(struct pd_compiled_layer *l, const struct pd_pass *pass,
			      struct pd_error *err)
{
	const struct swap s = swap_of(l, &l->layer->output);

	if (l->diff_src[0])
		turn(l, l->diff_src[0], l->diff_dst, &s);
	return 0;
}

const struct pd_compiled_kind pd_cpu_transpose = {
	.plain = true,
	.prepare = prepare,
	.forward = forward_transpose,
	.backward = backward_transpose,
};

/* ---- mean ---- */

/* Computes the mean of a row of the last axis. */
static void row_mean(const struct pd_compiled_layer *l, int64_t row, int64_t extent)
{
	float lanes[PD_FLOAT_LANES] = { 0 }, room[PIECE], mean;
	enum pd_dtype dtype = l->net->dtype;

	for (int64_t at = 0; at < extent; at += PIECE) {
		int64_t n = extent - at < PIECE ? extent - at : PIECE;

		pd_lanes_add(lanes, pd_cpu_wide(dtype, l->src[0], row * extent + at, n, room), n);
	}
	mean = pd_lanes_total(lanes) / (float)extent;
	pd_cpu_put(dtype, l->dst, row, &mean, 1);
}

/* Computes the means of n places that lie side by side behind the axis, from `at` on. */
static void places_mean(const struct pd_compiled_layer *l, const struct pd_axis *a, int64_t o,
			int64_t at, int64_t n)
{
	float sum[PIECE] = { 0 }, room[PIECE];
	enum pd_dtype dtype = l->net->dtype;

	for (int64_t k = 0; k < a->extent; k++)
		pd_floats_add(sum, pd_cpu_wide(dtype, l->src[0], (o * a->extent + k) * a->inner +
					       at, n, room), n);
	pd_floats_scale(sum, sum, 1 / (float)a->extent, n);
	pd_cpu_put(dtype, l->dst, o * a->inner + at, sum, n);
}

static int forward_mean(struct pd_compiled_layer *l, const struct pd_pass *pass,
			struct pd_error *err)
{
	const struct pd_axis a = pd_compiled_around(l, l->layer->dim);

#pragma omp parallel for schedule(static)
	for (int64_t o = 0; o < a.outer; o++) {
		if (a.inner == 1)
			row_mean(l, o, a.extent);
		for (int64_t at = 0; at < a.inner && a.inner > 1; at += PIECE)
			places_mean(l, &a, o, at, a.inner - at < PIECE ? a.inner - at : PIECE);
	}
	return 0;
}

static void mean_back(const struct pd_compiled_layer *l, const struct pd_axis *a, int64_t o,
		      int64_t at, int64_t n)
{
	float room[PIECE], share[PIECE];
	enum pd_dtype dtype = l->net->dtype;

	pd_floats_scale(share, pd_cpu_wide(dtype, l->diff_dst, o * a->inner + at, n, room),
			1 / (float)a->extent, n);
	for (int64_t k = 0; k < a->extent; k++)
		pd_cpu_put(dtype, l->diff_src[0], (o * a->extent + k) * a->inner + at, share, n);
}

static int backward_mean(struct pd_compiled_layer *l, const struct pd_pass *pass,
			 struct pd_error *err)
{
	const struct pd_axis a = pd_compiled_around(l, l->layer->dim);

	if (!l->diff_src[0])
		return 0;
#pragma omp parallel for schedule(static)
	for (int64_t o = 0; o < a.outer; o++)
		for (int64_t at = 0; at < a.inner; at += PIECE)
			mean_back(l, &a, o, at, a.inner - at < PIECE ? a.inner - at : PIECE);
	return 0;
}

const struct pd_compiled_kind pd_cpu_mean = {
	.plain = true,
	.prepare = prepare,
	.forward = forward_mean,
	.backward = backward_mean,
};
