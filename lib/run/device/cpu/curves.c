/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Curves whose formulas in run/device/curve.def are compiled: in any layout, piece by piece, in 16 bits in f32
 * and rounded once.
 */
#include "base/mem.h"
#include "run/device/cpu/cpu.h"
#include "run/device/cpu/exp.h"
#include "run/device/curve.h"

#include <math.h>

#define PIECE 2048
#define EXP(x) pd_exp_any(x)
#define EXPM1(x) pd_expm1(x)
#define TANH(x) pd_tanh(x)

struct curve {
	void (*value)(float *y, const float *x, float a, float b, size_t count);
	/* dx may be g */
	void (*gradient)(float *dx, const float *kept, const float *g, float a, float b,
			 size_t count);
};

#define IN_LIBRARY(name, of_x, of_v)
#define IN_LOOPS(name, of_x, of_v)                                                              \
	PD_VECTOR static void value_##name(float *restrict y, const float *restrict from, float a, \
					   float b, size_t count)                               \
	{                                                                                       \
		for (size_t i = 0; i < count; i++) {                                            \
			float x = from[i];                                                      \
			y[i] = of_x;                                                            \
		}                                                                               \
	}                                                                                       \
	PD_VECTOR static void gradient_##name(float *dx, const float *restrict kept,            \
					      const float *dy, float a, float b, size_t count)  \
	{                                                                                       \
		for (size_t i = 0; i < count; i++) {                                            \
			float v = kept[i], g = dy[i];                                           \
												\
			(void)v;                                                                \
			dx[i] = of_v;                                                           \
		}                                                                               \
	}
#define CURVE(name, cpu, flags, of_x, of_v) IN_##cpu(name, of_x, of_v)
#define VARIANT CURVE
#include "run/device/curve.def"
#undef VARIANT
#undef CURVE
#undef IN_LOOPS

#define IN_LOOPS(name, of_x, of_v) [PD_CURVE_##name] = { value_##name, gradient_##name },
static const struct curve curves[PD_CURVES] = {
#define CURVE(name, cpu, flags, of_x, of_v) IN_##cpu(name, of_x, of_v)
#define VARIANT CURVE
#include "run/device/curve.def"
#undef VARIANT
#undef CURVE
};
#undef IN_LOOPS

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	l->out = l->in[0];
	return 0;
}

/* The elements of a batch, padding too. */
static int64_t elements(const struct pd_compiled_layer *l)
{
	return (int64_t)(pd_layout_bytes(l->out) / pd_dtype_bytes(l->net->dtype));
}

static void forward_piece(const struct pd_compiled_layer *l, int64_t at, int64_t count)
{
	enum pd_dtype dtype = l->net->dtype;
	float room[PIECE], y[PIECE];

	curves[pd_curve_of(l->layer)].value(y, pd_cpu_wide(dtype, l->src[0], at, count, room),
					    (float)l->layer->alpha, (float)l->layer->beta, (size_t)count);
	pd_cpu_put(dtype, l->dst, at, y, count);
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	int64_t count = elements(l);

#pragma omp parallel for schedule(static) if (count > PIECE)
	for (int64_t at = 0; at < count; at += PIECE)
		forward_piece(l, at, count - at < PIECE ? count - at : PIECE);
	pd_layout_clear_padding(l->out, l->dst);
	return 0;
}

static void backward_piece(const struct pd_compiled_layer *l, int64_t at, int64_t count)
{
	enum pd_curve curve = pd_curve_of(l->layer);
	enum pd_dtype dtype = l->net->dtype;
	const void *kept = pd_curve_from_output(curve) ? l->dst : l->src[0];
	float room[PIECE], other[PIECE], dx[PIECE];

	curves[curve].gradient(dx, pd_cpu_wide(dtype, kept, at, count, room),
			       pd_cpu_wide(dtype, l->diff_dst, at, count, other),
			       (float)l->layer->alpha, (float)l->layer->beta, (size_t)count);
	pd_cpu_put(dtype, l->diff_src[0], at, dx, count);
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	int64_t count = elements(l);

	if (!l->diff_src[0])
		return 0;
#pragma omp parallel for schedule(static) if (count > PIECE)
	for (int64_t at = 0; at < count; at += PIECE)
		backward_piece(l, at, count - at < PIECE ? count - at : PIECE);
	pd_layout_clear_padding(l->out, l->diff_src[0]);        /* 0 / 0, of a logarithm */
	return 0;
}

#define IN_LOOPS(name, of_flags)                                                \
	const struct pd_compiled_kind pd_cpu_##name = {                         \
		.keeps_output = (of_flags) & PD_CURVE_FROM_OUTPUT,              \
		.in_place = (of_flags) & PD_CURVE_IDEMPOTENT,                   \
		.prepare = prepare,                                             \
		.forward = forward,                                             \
		.backward = backward,                                           \
	};
#undef IN_LIBRARY
#define IN_LIBRARY(name, of_flags)
#define CURVE(name, cpu, flags, of_x, of_v) IN_##cpu(name, flags)
#define VARIANT CURVE
#include "run/device/curve.def"
