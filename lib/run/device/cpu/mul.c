/* SPDX-License-Identifier: Apache-2.0 */
/* mul: the product of two inputs.  In 16 bits in f32, a piece at a time, and rounded once. */
#include "base/mem.h"
#include "run/device/cpu/cpu.h"

#define PIECE 2048

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	l->out = pd_cpu_plain(l->net, &l->layer->output);
	return 0;
}

PD_VECTOR static void multiply(float *dst, const float *a, const float *b, size_t count)
{
#pragma omp simd
	for (size_t i = 0; i < count; i++)
		dst[i] = a[i] * b[i];
}

static void multiply_narrow(enum pd_dtype dtype, uint16_t *dst, const uint16_t *a,
			    const uint16_t *b, size_t count)
{
	float wide[PIECE], other[PIECE];

	pd_cpu_widen(dtype, wide, a, count);
	pd_cpu_widen(dtype, other, b, count);
	multiply(wide, wide, other, count);
	pd_cpu_narrow(dtype, dst, wide, count);
}

/* Multiplies a by b, of the whole batch; dst may be a or b. */
static void product(const struct pd_compiled_layer *l, void *dst, const void *a, const void *b)
{
	size_t count = pd_layout_bytes(l->out) / pd_dtype_bytes(l->net->dtype);

#pragma omp parallel for schedule(static)
	for (size_t at = 0; at < count; at += PIECE) {
		size_t n = count - at < PIECE ? count - at : PIECE;

		if (l->net->dtype == PD_F32)
			multiply((float *)dst + at, (const float *)a + at, (const float *)b + at, n);
		else
			multiply_narrow(l->net->dtype, (uint16_t *)dst + at,
					(const uint16_t *)a + at, (const uint16_t *)b + at, n);
	}
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	product(l, l->dst, l->src[0], l->src[1]);
	return 0;
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	for (int i = 0; i < 2; i++)
		if (l->diff_src[i])
			product(l, l->diff_src[i], l->diff_dst, l->src[1 - i]);
	return 0;
}

const struct pd_compiled_kind pd_cpu_mul = {
	.broadcast = &pd_cpu_broadcast,
	.plain = true,
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};
