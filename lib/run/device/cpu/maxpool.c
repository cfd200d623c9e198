/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Max pooling of tensors in which some numbers are not finite: oneDNN's kernels take a NaN and -infinity
 * for smaller than every number.  Here a NaN is the largest of its window, the last of several, as in PyTorch.
 * Plain loops over one channel at a time do: they are run where something has gone wrong already.
 */
#include "run/device/cpu/maxpool.h"

#include "base/finite.h"
#include "base/mem.h"
#include "run/device/cpu/cpu.h"

#include <math.h>

#define PIECE 32768

PD_VECTOR static bool all_finite(const float *x, size_t count)
{
	return pd_all_finite(x, count);
}

PD_VECTOR static bool all_finite_narrow(const uint16_t *x, uint16_t last_bit, size_t count)
{
	return pd_all_finite_narrow(x, last_bit, count);
}

bool pd_maxpool_must(const struct pd_maxpool *m, const void *src)
{
	size_t count = (size_t)(m->batch * m->blocks * m->lanes * m->in[0] * m->in[1]);
	uint16_t last_bit = m->dtype == PD_BF16 ? PD_BF16_LAST_BIT : PD_F16_LAST_BIT;
	bool found = false;

#pragma omp parallel for schedule(static) reduction(|| : found) if (count > PIECE)
	for (size_t at = 0; at < count; at += PIECE) {
		size_t n = count - at < PIECE ? count - at : PIECE;

		found = found || !(m->dtype == PD_F32
			? all_finite((const float *)src + at, n)
			: all_finite_narrow((const uint16_t *)src + at, last_bit, n));
	}
	return found;
}

/* A number for each output: which of its window was the largest, row by row. */
static size_t choice_bytes(const struct pd_maxpool *m)
{
	return m->kernel[0] * m->kernel[1] <= 256 ? sizeof(uint8_t) : sizeof(int32_t);
}

size_t pd_maxpool_bytes(const struct pd_maxpool *m)
{
	return choice_bytes(m) * (size_t)(m->batch * m->blocks * m->lanes * m->out[0] * m->out[1]);
}

static int64_t choice_at(const struct pd_maxpool *m, const void *choices, int64_t i)
{
	return choice_bytes(m) == 1 ? ((const uint8_t *)choices)[i] : ((const int32_t *)choices)[i];
}

static void choose(const struct pd_maxpool *m, void *choices, int64_t i, int64_t choice)
{
	if (choice_bytes(m) == 1)
		((uint8_t *)choices)[i] = (uint8_t)choice;
	else
		((int32_t *)choices)[i] = (int32_t)choice;
}

static float value_at(const struct pd_maxpool *m, const void *tensor, int64_t i)
{
	float room;

	return *pd_cpu_wide(m->dtype, tensor, i, 1, &room);
}

/* Returns where element `at` of a channel's plane of `size` elements lies. */
static int64_t place_of(const struct pd_maxpool *m, int64_t channel, int64_t size, int64_t at)
{
	return (channel / m->lanes * size + at) * m->lanes + channel % m->lanes;
}

/* Finds the largest input of output (p, q). */
static void largest(const struct pd_maxpool *m, void *dst, void *choices, const void *src,
		    int64_t channel, int64_t p, int64_t q)
{
	int64_t to = place_of(m, channel, m->out[0] * m->out[1], p * m->out[1] + q), best = -1;
	float most = 0;

	for (int64_t k = 0; k < m->kernel[0] * m->kernel[1]; k++) {
		int64_t y = p * m->stride[0] - m->padding[0] + k / m->kernel[1];
		int64_t x = q * m->stride[1] - m->padding[1] + k % m->kernel[1];
		float value;

		if (y < 0 || y >= m->in[0] || x < 0 || x >= m->in[1])
			continue;
		value = value_at(m, src, place_of(m, channel, m->in[0] * m->in[1], y * m->in[1] + x));
		if (best < 0 || value > most || isnan(value)) {
			most = value;
			best = k;
		}
	}
	pd_cpu_put(m->dtype, dst, to, &most, 1);
	choose(m, choices, to, best);
}

void pd_maxpool_forward(const struct pd_maxpool *m, void *dst, void *choices, const void *src)
{
#pragma omp parallel for schedule(static)
	for (int64_t c = 0; c < m->batch * m->blocks * m->lanes; c++)
		for (int64_t p = 0; p < m->out[0]; p++)
			for (int64_t q = 0; q < m->out[1]; q++)
				largest(m, dst, choices, src, c, p, q);
}

/* Returns the gradient of input (y, x): the sum of those of the outputs that chose it. */
static float chosen(const struct pd_maxpool *m, const void *choices, const void *diff_dst,
		    int64_t channel, int64_t y, int64_t x)
{
	float sum = 0;

	for (int64_t k = m->kernel[0] * m->kernel[1] - 1; k >= 0; k--) {
		int64_t row = y + m->padding[0] - k / m->kernel[1], p = row / m->stride[0];
		int64_t column = x + m->padding[1] - k % m->kernel[1], q = column / m->stride[1], at;

		if (row < 0 || column < 0 || row % m->stride[0] || column % m->stride[1] ||
		    p >= m->out[0] || q >= m->out[1])
			continue;
		at = place_of(m, channel, m->out[0] * m->out[1], p * m->out[1] + q);
		if (choice_at(m, choices, at) == k)
			sum += value_at(m, diff_dst, at);
	}
	return sum;
}

void pd_maxpool_backward(const struct pd_maxpool *m, void *diff_src, const void *choices,
			 const void *diff_dst)
{
#pragma omp parallel for schedule(static)
	for (int64_t c = 0; c < m->batch * m->blocks * m->lanes; c++)
		for (int64_t y = 0; y < m->in[0]; y++)
			for (int64_t x = 0; x < m->in[1]; x++) {
				float sum = chosen(m, choices, diff_dst, c, y, x);

				pd_cpu_put(m->dtype, diff_src, place_of(m, c, m->in[0] * m->in[1],
									y * m->in[1] + x), &sum, 1);
			}
}
