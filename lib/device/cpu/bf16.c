/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between bf16 and f32.  Integer arithmetic, which rounds alike on processors with and without
 * instructions for it: those take denormal numbers for zero.
 */
#include "base/half.h"
#include "device/cpu/cpu.h"

PD_VECTOR void pd_cpu_widen(float *restrict dst, const void *restrict src, size_t count)
{
	const uint16_t *from = src;

	for (size_t i = 0; i < count; i++)
		dst[i] = pd_from_bf16(from[i]);
}

PD_VECTOR void pd_cpu_narrow(void *restrict dst, const float *restrict src, size_t count)
{
	uint16_t *to = dst;

	for (size_t i = 0; i < count; i++)
		to[i] = pd_to_bf16(src[i]);
}
