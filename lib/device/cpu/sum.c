/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cpu/cpu.h"

#include <string.h>

PD_VECTOR static void add(float *restrict dst, const float *restrict src, size_t count)
{
	for (size_t i = 0; i < count; i++)
		dst[i] += src[i];
}

static void sum_piece(float *dst, const float *const *src, int n, size_t at, size_t floats)
{
	float piece[2048];      /* apart, since dst may be any of the sources */

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
	for (size_t at = 0; at < count; at += 2048)
		sum_piece(dst, src, n, at, count - at < 2048 ? count - at : 2048);
}
