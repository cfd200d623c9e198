/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversions between 16 bits and f32 give the bits of base/half.h on every processor.  bf16 uses
 * integer arithmetic, since its instructions flush denormal numbers to zero.  The instructions for
 * f16 do not, and give the bits of base/half.h.
 */
#include "base/half.h"
#include "run/device/cpu/cpu.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define F16C __attribute__((target("avx2,f16c")))
#endif

#define PIECE 32768

PD_VECTOR static void widen_bf16(float *restrict dst, const uint16_t *restrict src, size_t count)
{
	for (size_t i = 0; i < count; i++)
		dst[i] = pd_from_bf16(src[i]);
}

PD_VECTOR static void narrow_bf16(uint16_t *restrict dst, const float *restrict src, size_t count)
{
	for (size_t i = 0; i < count; i++)
		dst[i] = pd_to_bf16(src[i]);
}

#ifdef F16C
static bool has_f16c(void)
{
	return __builtin_cpu_supports("avx2");  /* every processor with AVX2 has F16C */
}

/* These convert groups of eight, and return how many elements that were. */
F16C static size_t widen_eights(float *restrict dst, const uint16_t *restrict src, size_t count)
{
	for (size_t i = 0; i + 8 <= count; i += 8)
		_mm256_storeu_ps(dst + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(src + i))));
	return count & ~(size_t)7;
}

F16C static size_t narrow_eights(uint16_t *restrict dst, const float *restrict src, size_t count)
{
	for (size_t i = 0; i + 8 <= count; i += 8)
		_mm_storeu_si128((void *)(dst + i), _mm256_cvtps_ph(_mm256_loadu_ps(src + i),
								    _MM_FROUND_TO_NEAREST_INT));
	return count & ~(size_t)7;
}
#else
static bool has_f16c(void)
{
	return false;
}

static size_t widen_eights(float *dst, const uint16_t *src, size_t count)
{
	return 0;
}

static size_t narrow_eights(uint16_t *dst, const float *src, size_t count)
{
	return 0;
}
#endif

static void widen_f16(float *restrict dst, const uint16_t *restrict src, size_t count)
{
	for (size_t i = has_f16c() ? widen_eights(dst, src, count) : 0; i < count; i++)
		dst[i] = pd_from_f16(src[i]);
}

static void narrow_f16(uint16_t *restrict dst, const float *restrict src, size_t count)
{
	for (size_t i = has_f16c() ? narrow_eights(dst, src, count) : 0; i < count; i++)
		dst[i] = pd_to_f16(src[i]);
}

static void widen(enum pd_dtype dtype, float *dst, const uint16_t *src, size_t count)
{
	if (dtype == PD_BF16)
		widen_bf16(dst, src, count);
	else
		widen_f16(dst, src, count);
}

static void narrow(enum pd_dtype dtype, uint16_t *dst, const float *src, size_t count)
{
	if (dtype == PD_BF16)
		narrow_bf16(dst, src, count);
	else
		narrow_f16(dst, src, count);
}

void pd_cpu_widen(enum pd_dtype dtype, float *dst, const void *src, size_t count)
{
	if (count <= PIECE) {           /* starting even one thread costs more */
		widen(dtype, dst, src, count);
		return;
	}
#pragma omp parallel for schedule(static)
	for (size_t at = 0; at < count; at += PIECE)
		widen(dtype, dst + at, (const uint16_t *)src + at,
		      count - at < PIECE ? count - at : PIECE);
}

void pd_cpu_narrow(enum pd_dtype dtype, void *dst, const float *src, size_t count)
{
	if (count <= PIECE) {
		narrow(dtype, dst, src, count);
		return;
	}
#pragma omp parallel for schedule(static)
	for (size_t at = 0; at < count; at += PIECE)
		narrow(dtype, (uint16_t *)dst + at, src + at,
		       count - at < PIECE ? count - at : PIECE);
}

const float *pd_cpu_wide(enum pd_dtype dtype, const void *tensor, int64_t at, int64_t count,
			 float *room)
{
	if (dtype == PD_F32)
		return (const float *)tensor + at;
	pd_cpu_widen(dtype, room, (const uint16_t *)tensor + at, (size_t)count);
	return room;
}

void pd_cpu_put(enum pd_dtype dtype, void *tensor, int64_t at, const float *values, int64_t count)
{
	if (dtype == PD_F32)
		memcpy((float *)tensor + at, values, (size_t)count * sizeof(*values));
	else
		pd_cpu_narrow(dtype, (uint16_t *)tensor + at, values, (size_t)count);
}
