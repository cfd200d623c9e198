/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rope: rotary position embedding (Su et al. 2021).  Pair i of the d features of a head at position t
 * is rotated by t times its step (run/device/rotary.h).  A pair is features i and i + d/2 or, if interleaved,
 * 2 i and 2 i + 1; d is the part of the head that is rotated.  Backward rotates the other way.  The cosines and sines of all positions are
 * computed once, in double.  In 16 bits a head is widened at a time.
 */
#include "base/mem.h"
#include "run/device/cpu/cpu.h"

#include <math.h>
#include <string.h>

struct rope {
	int64_t half;                   /* pairs of a head that are rotated */
	int64_t width;                  /* its features, of which the last may stay as they are */
	int64_t positions, rows;        /* rows of one position: the axes between, and the heads */
	float cosines[];                /* by position and pair, then the sines likewise */
};

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	const struct pd_rotary rotary = pd_compiled_rotary(l->layer);
	int64_t half = rotary.pairs, positions = l->in_shape[0]->size[0];
	size_t count = (size_t)(positions * half);
	struct rope *r;

	l->out = pd_cpu_plain(l->net, &l->layer->output);
	if (!l->inside)
		return 0;
	l->own = r = pd_zalloc(sizeof(*r) + 2 * count * sizeof(float));
	*r = (struct rope){ half, l->layer->head_dim, positions, pd_shape_elements(l->in_shape[0]) / positions /
			    l->layer->head_dim };
	for (size_t i = 0; i < count; i++) {
		int64_t t = (int64_t)i / half, pair = (int64_t)i % half;
		double angle = (double)t * pd_rotary_step(&rotary, pair);

		r->cosines[i] = (float)cos(angle);
		r->cosines[count + i] = (float)sin(angle);
	}
	/* in 16 bits each place has room for a head that goes in and one that comes out */
	if (l->net->dtype != PD_F32)
		l->forward_bytes = l->backward_bytes =
			pd_align(2 * sizeof(float) * (size_t)l->layer->head_dim) *
			(size_t)(l->net->batch * positions);
	return 0;
}

/* way: 1, or -1 for the other one. */
PD_VECTOR static void rotate_halves(float *restrict y, const float *restrict x,
				    const float *restrict c, const float *restrict s, float way,
				    int64_t half)
{
	for (int64_t i = 0; i < half; i++) {
		y[i] = x[i] * c[i] - way * s[i] * x[i + half];
		y[i + half] = x[i + half] * c[i] + way * s[i] * x[i];
	}
}

PD_VECTOR static void rotate_pairs(float *restrict y, const float *restrict x,
				   const float *restrict c, const float *restrict s, float way,
				   int64_t half)
{
	for (int64_t i = 0; i < half; i++) {
		y[2 * i] = x[2 * i] * c[i] - way * s[i] * x[2 * i + 1];
		y[2 * i + 1] = x[2 * i + 1] * c[i] + way * s[i] * x[2 * i];
	}
}

/* One position of one sample: `place` of them all. */
static void rotate(const struct pd_compiled_layer *l, void *dst, const void *src, int64_t place,
		   float way)
{
	const struct rope *r = l->own;
	int64_t width = r->width, passed = width - 2 * r->half, t = place % r->positions;
	const float *c = r->cosines + t * r->half, *s = c + r->positions * r->half;
	float *room = (float *)((char *)l->temporary + (size_t)place *
				pd_align(2 * sizeof(float) * (size_t)width));
	bool f32 = l->net->dtype == PD_F32;

	for (int64_t row = place * r->rows; row < (place + 1) * r->rows; row++) {
		const float *x = pd_cpu_wide(l->net->dtype, src, row * width, width, room);
		float *y = f32 ? (float *)dst + row * width : room + width;

		if (l->layer->interleaved)
			rotate_pairs(y, x, c, s, way, r->half);
		else
			rotate_halves(y, x, c, s, way, r->half);
		memcpy(y + 2 * r->half, x + 2 * r->half, sizeof(float) * (size_t)passed);
		if (!f32)
			pd_cpu_narrow(l->net->dtype, (uint16_t *)dst + row * width, y,
				      (size_t)width);
	}
}

static void rotate_all(const struct pd_compiled_layer *l, void *dst, const void *src, float way)
{
	int64_t places = l->net->batch * ((const struct rope *)l->own)->positions;

#pragma omp parallel for schedule(static)
	for (int64_t place = 0; place < places; place++)
		rotate(l, dst, src, place, way);
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	rotate_all(l, l->dst, l->src[0], 1);
	return 0;
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	if (l->diff_src[0])
		rotate_all(l, l->diff_src[0], l->diff_dst, -1);
	return 0;
}

const struct pd_compiled_kind pd_cpu_rope = {
	.plain = true,
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};
