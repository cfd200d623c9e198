/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Per element, with s the logistic function:
 *     i = s(i'), f = s(f'), g = tanh(g'), o = s(o'),  c = f c_before + i g,  h = o tanh(c)
 * exp is made of 2^k and a polynomial on [-ln 2 / 2, ln 2 / 2], so that loops are vectorised and
 * round alike on every processor; both functions are right to a few units in the last place.
 */
#include "run/device/cpu/lstm.h"

#include "base/half.h"
#include "run/device/cpu/cpu.h"

#include <math.h>

#if defined(__GNUC__)
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#else
#define ALWAYS_INLINE static inline
#endif

/* e^x - 1 = scale * rest + (scale - 1), for x from -87 to 0. */
struct power {
	float scale, rest;
};

ALWAYS_INLINE struct power power_of(float x)
{
	const float magic = 12582912;   /* 1.5 * 2^23: its addition rounds to a whole number */
	float k = x * 1.44269504f + magic - magic;
	float r = x - k * 0.693359375f - k * -2.12194440e-4f, p;

	p = 1.f / 720 + r * (1.f / 5040);
	p = 1.f / 120 + r * p;
	p = 1.f / 24 + r * p;
	p = 1.f / 6 + r * p;
	p = 0.5f + r * p;
	return (struct power){ pd_bits_float((uint32_t)((int32_t)k + 127) << 23), r + r * r * p };
}

ALWAYS_INLINE float at_least(float x, float least)
{
	return x < least ? least : x;
}

ALWAYS_INLINE float logistic(float x)
{
	struct power p = power_of(at_least(-fabsf(x), -87));
	float e = p.scale * p.rest + p.scale;

	return (x < 0 ? e : 1) / (1 + e);
}

ALWAYS_INLINE float hyperbolic(float x)
{
	struct power p = power_of(at_least(-2 * fabsf(x), -87));
	float m = p.scale * p.rest + (p.scale - 1);

	return copysignf(-m / (m + 2), x);
}

PD_VECTOR void pd_lstm_gates(float *restrict gates, const float *restrict recurrent,
			     const float *restrict bias, const float *restrict before,
			     float *restrict cell, float *restrict hidden, int64_t count)
{
	for (int64_t j = 0; j < 4 * count; j++)
		gates[j] += bias[j];
	for (int64_t j = 0; j < 4 * count && recurrent; j++)
		gates[j] += recurrent[j];
	for (int64_t j = 0; j < 2 * count; j++)
		gates[j] = logistic(gates[j]);
	for (int64_t j = 2 * count; j < 3 * count; j++)
		gates[j] = hyperbolic(gates[j]);
	for (int64_t j = 3 * count; j < 4 * count; j++)
		gates[j] = logistic(gates[j]);
	for (int64_t j = 0; j < count; j++)
		cell[j] = gates[count + j] * before[j] + gates[j] * gates[2 * count + j];
	for (int64_t j = 0; j < count; j++)
		hidden[j] = gates[3 * count + j] * hyperbolic(cell[j]);
}

PD_VECTOR static void back(const float *restrict gates, const float *restrict before,
			   const float *restrict cell, const float *restrict output,
			   const float *restrict recurrent, float *restrict cells,
			   float *restrict to, int64_t count)
{
	const float *in = gates, *forget = gates + count, *g = gates + 2 * count,
		*out = gates + 3 * count;

	for (int64_t j = 0; j < count; j++) {
		float t = hyperbolic(cell[j]);
		float dh = recurrent[j] + output[j];
		float dc = cells[j] + dh * out[j] * (1 - t * t);

		to[j] = dc * g[j] * (in[j] * (1 - in[j]));
		to[count + j] = dc * before[j] * (forget[j] * (1 - forget[j]));
		to[2 * count + j] = dc * in[j] * (1 - g[j] * g[j]);
		to[3 * count + j] = dh * t * (out[j] * (1 - out[j]));
		cells[j] = dc * forget[j];
	}
}

void pd_lstm_gates_back(const struct pd_lstm_back *s, int64_t count)
{
	back(s->gates, s->before, s->cell, s->output, s->recurrent, s->cells, s->back, count);
}
