/* SPDX-License-Identifier: Apache-2.0 */
#include "run/device/cpu/cpu.h"

#include "base/half.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define PIECE 2048

PD_VECTOR static void add(float *restrict dst, const float *restrict src, size_t count)
{
	for (size_t i = 0; i < count; i++)
		dst[i] += src[i];
}

/*
 * Computes a + b, but 0 where y, a relu's output, is 0; y may be NULL, and dst a or b.
 */
PD_VECTOR static void add_two(float *dst, const float *a, const float *b, const float *y,
			      size_t count)
{
	if (y) {
#pragma omp simd
		for (size_t i = 0; i < count; i++)
			dst[i] = pd_relu_keeps(y[i]) ? a[i] + b[i] : 0;
	} else {
#pragma omp simd
		for (size_t i = 0; i < count; i++)
			dst[i] = a[i] + b[i];
	}
}

PD_VECTOR static void add_two_bf16(uint16_t *dst, const uint16_t *a, const uint16_t *b,
				   const int16_t *y, size_t count)
{
	int16_t minus_infinity = pd_minus_infinity(PD_BF16);

	if (y) {
#pragma omp simd
		for (size_t i = 0; i < count; i++) {
			uint16_t sum = pd_to_bf16(pd_from_bf16(a[i]) + pd_from_bf16(b[i]));

			dst[i] = pd_relu_keeps_bits(y[i], minus_infinity) ? sum : 0;
		}
	} else {
#pragma omp simd
		for (size_t i = 0; i < count; i++)
			dst[i] = pd_to_bf16(pd_from_bf16(a[i]) + pd_from_bf16(b[i]));
	}
}

static void add_up(float *piece, const float *const *src, int n, size_t at, size_t floats)
{
	if (n == 0)
		memset(piece, 0, floats * sizeof(float));
	else
		memcpy(piece, src[0] + at, floats * sizeof(float));
	for (int k = 1; k < n; k++)
		add(piece, src[k] + at, floats);
}

static void sum_piece(float *dst, const float *const *src, int n, size_t at, size_t floats)
{
	float piece[PIECE];      /* a buffer, since dst may be one of the sources */

	add_up(piece, src, n, at, floats);
	memcpy(dst + at, piece, floats * sizeof(float));
}

PD_VECTOR static void multiply(float *x, float factor, size_t count)
{
	for (size_t i = 0; i < count; i++)
		x[i] *= factor;
}

PD_VECTOR static void saturate(float *x, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		float size = fabsf(x[i]);

		x[i] = size > PD_F16_MAX && size <= FLT_MAX ? copysignf(PD_F16_MAX, x[i]) : x[i];
	}
}

/* Puts part of a source of a mixed sum, in f32, into room. */
static void widen(const struct pd_mixed_sum *sum, int k, size_t at, size_t count, float *room)
{
	if (!(sum->narrow_sources >> k & 1)) {
		memcpy(room, (const float *)sum->src[k] + at, count * sizeof(float));
		return;
	}
	pd_cpu_widen(sum->rounding.dtype, room, (const uint16_t *)sum->src[k] + at, count);
	if (sum->rounding.scale != 1)
		multiply(room, 1 / sum->rounding.scale, count);
}

static void mixed_piece(const struct pd_mixed_sum *sum, size_t at, size_t count)
{
	float piece[PIECE], other[PIECE];

	widen(sum, 0, at, count, piece);
	for (int k = 1; k < sum->n; k++) {
		widen(sum, k, at, count, other);
		add(piece, other, count);
	}
	if (!sum->narrow) {
		memcpy((float *)sum->dst + at, piece, count * sizeof(float));
		return;
	}
	if (sum->rounding.scale != 1)
		multiply(piece, sum->rounding.scale, count);
	if (sum->rounding.saturates)
		saturate(piece, count);
	pd_cpu_narrow(sum->rounding.dtype, (uint16_t *)sum->dst + at, piece, count);
}

void pd_cpu_mixed_sum(const struct pd_mixed_sum *sum)
{
#pragma omp parallel for schedule(static)
	for (size_t at = 0; at < sum->count; at += PIECE)
		mixed_piece(sum, at, sum->count - at < PIECE ? sum->count - at : PIECE);
}

void pd_cpu_sum(float *dst, const float *const *src, int n, size_t count)
{
	if (n == 2) {
		pd_cpu_sum_relu(PD_F32, dst, src[0], src[1], NULL, count);
		return;
	}
#pragma omp parallel for schedule(static)
	for (size_t at = 0; at < count; at += PIECE)
		sum_piece(dst, src, n, at, count - at < PIECE ? count - at : PIECE);
}

static void sum_all_piece(float *const *arrays, int n, size_t at, size_t floats)
{
	float piece[PIECE];

	add_up(piece, (const float *const *)arrays, n, at, floats);
	for (int k = 0; k < n; k++)
		memcpy(arrays[k] + at, piece, floats * sizeof(float));
}

/* A piece is still in the processor's cache when it is written to where it was read. */
void pd_cpu_sum_all(float *const *arrays, int n, size_t count)
{
#pragma omp parallel for schedule(static)
	for (size_t at = 0; at < count; at += PIECE)
		sum_all_piece(arrays, n, at, count - at < PIECE ? count - at : PIECE);
}

static void zero_where_relu_did(uint16_t *dst, const int16_t *y, size_t count)
{
	int16_t minus_infinity = pd_minus_infinity(PD_F16);

	for (size_t i = 0; i < count; i++)
		dst[i] = pd_relu_keeps_bits(y[i], minus_infinity) ? dst[i] : 0;
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
	if (n == 2) {
		pd_cpu_sum_relu(dtype, dst, src[0], src[1], NULL, count);
		return;
	}
#pragma omp parallel for schedule(static)
	for (size_t at = 0; at < count; at += PIECE)
		sum_piece_narrow(dtype, dst, src, n, at,
				  count - at < PIECE ? count - at : PIECE);
}

static void sum_two(enum pd_dtype dtype, void *dst, const void *const src[2], const void *y,
		    size_t at, size_t count)
{
	const void *relu = y ? (const char *)y + at * pd_dtype_bytes(dtype) : NULL;

	if (dtype == PD_F32) {
		add_two((float *)dst + at, (const float *)src[0] + at, (const float *)src[1] + at,
			relu, count);
	} else if (dtype == PD_BF16) {
		add_two_bf16((uint16_t *)dst + at, (const uint16_t *)src[0] + at,
			     (const uint16_t *)src[1] + at, relu, count);
	} else {
		sum_piece_narrow(dtype, dst, src, 2, at, count);
		if (y)
			zero_where_relu_did((uint16_t *)dst + at, relu, count);
	}
}

void pd_cpu_sum_relu(enum pd_dtype dtype, void *dst, const void *a, const void *b, const void *y,
		     size_t count)
{
	const void *const src[2] = { a, b };

#pragma omp parallel for schedule(static)
	for (size_t at = 0; at < count; at += PIECE)
		sum_two(dtype, dst, src, y, at, count - at < PIECE ? count - at : PIECE);
}
