/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cpu/cpu.h"

#include <string.h>

#define PIECE 2048

PD_VECTOR static void add(float *restrict dst, const float *restrict src, size_t count)
{
	for (size_t i = 0; i < count; i++)
		dst[i] += src[i];
}

static void sum_piece(float *dst, const float *const *src, int n, size_t at, size_t floats)
{
	float piece[PIECE];      /* apart, since dst may be any of the sources */

	if (n == 0)
		memset(piece, 0, floats * sizeof(float));
	else
		memcpy(piece, src[0] + at, floats * sizeof(float));
	for (int k = 1; k < n; k++)
		add(piece, src[k] + at, floats);
	memcpy(dst + at, piece, floats * sizeof(float));
}

void pd_cpu_sum(float *dst, const float *const *src, int n, size_t count)
{
#pragma omp parallel for schedule(static)
	for (size_t at = 0; at < count; at += PIECE)
		sum_piece(dst, src, n, at, count - at < PIECE ? count - at : PIECE);
}

static void sum_piece_narrow(enum pd_dtype dtype, uint16_t *dst, const void *const *src, int n,
			     size_t at, size_t count)
{
	float piece[PIECE], other[PIECE];

	pd_cpu_widen(dtype, piece, (const uint16_t *)src[0] + at, count);
	for (int k = 1; k < n; k++) {
		pd_cpu_widen(dtype, other, (const uint16_t *)src[k] + at, count);
		add(piece, other, count);
	}
	pd_cpu_narrow(dtype, dst + at, piece, count);
}

void pd_cpu_sum_narrow(enum pd_dtype dtype, void *dst, const void *const *src, int n,
		       size_t count)
{
#pragma omp parallel for schedule(static)
	for (size_t at = 0; at < count; at += PIECE)
		sum_piece_narrow(dtype, dst, src, n, at,
				  count - at < PIECE ? count - at : PIECE);
}
