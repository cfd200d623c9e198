/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of sums: of arrays, of arrays of two widths, of squares. */
#include "engine/device/submit.h"
#include "stream.h"
#include "tap.h"

#include "base/half.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

/* Tests sums of arrays in order; the destination is one of the sources or another array. */
void test_sum(const struct pd_device_ops *ops, struct chain *c)
{
	enum { N = 5003 };
	float *x[3], *dst, expected[3] = { 1e8f, 1, -1e8f };
	bool good = true;

	for (int variant = -2; variant < 3; variant++) {
		float *host = pd_calloc(N, sizeof(float));
		int n = variant == -2 ? 0 : 3;

		for (int k = 0; k < 3; k++) {
			x[k] = (float *)ops->memory.alloc(c->device, N * sizeof(float), NULL);
			for (int i = 0; i < N; i++)
				host[i] = expected[k];
			chain_copy(c, x[k], host, N * sizeof(float), PD_COPY_TO_DEVICE);
		}
		dst = variant >= 0 ? x[variant] : ops->memory.alloc(c->device, N * sizeof(float),
								    NULL);
		pd_submit_sum(c->stream, dst, (const float *const *)x, n, N, NULL);
		chain_copy(c, host, dst, N * sizeof(float), PD_COPY_TO_HOST);
		for (int i = 0; i < N; i++)
			good = good && host[i] == (n ? (1e8f + 1) - 1e8f : 0);
		if (variant < 0)
			ops->memory.free(c->device, dst);
		for (int k = 0; k < 3; k++)
			ops->memory.free(c->device, x[k]);
		free(host);
	}
	ok(good, "%s: sums", ops->name);
}

static uint16_t narrow(const struct pd_rounding *r, float x)
{
	x *= r->scale;
	if (r->saturates && isfinite(x) && fabsf(x) > 65504)
		x = copysignf(65504, x);
	return r->dtype == PD_BF16 ? pd_to_bf16(x) : pd_to_f16(x);
}

static float widen(const struct pd_rounding *r, uint16_t x)
{
	return (r->dtype == PD_BF16 ? pd_from_bf16(x) : pd_from_f16(x)) / r->scale;
}

enum { MIXED = 5003, MIXED_SOURCES = 3 };

/* Returns numbers at which f16 with a scale of 1024 overflows, is normal or denormal; some are infinite. */
static float mixed_number(int k, int i)
{
	return i % 97 == 5 && k == 0 ? INFINITY
		: ldexpf((float)((i * 7919 + k * 104729) % 65537 - 32768), i % 41 - 47);
}

/* Compares a sum of sources, of which those in `narrow_sources` are of 16 bits, with plain C. */
static bool mixed_is_right(const struct pd_device_ops *ops, struct chain *c,
			   const struct pd_rounding *r, uint32_t narrow_sources, bool narrows, int n)
{
	struct pd_mixed_sum sum = { .rounding = *r, .n = n, .narrow = narrows,
				    .narrow_sources = narrow_sources, .count = MIXED };
	void *device[MIXED_SOURCES + 1];
	float host[MIXED], right[MIXED];
	uint16_t half[MIXED];
	bool good = true;

	for (int k = 0; k <= n; k++)
		device[k] = ops->memory.alloc(c->device, MIXED * sizeof(float), NULL);
	for (int k = 0; k < n; k++) {
		bool narrow_source = narrow_sources >> k & 1;

		for (int i = 0; i < MIXED; i++) {
			host[i] = mixed_number(k, i);
			half[i] = narrow(r, host[i]);
			host[i] = narrow_source ? widen(r, half[i]) : host[i];
			right[i] = k == 0 ? host[i] : right[i] + host[i];
		}
		chain_copy(c, device[k], narrow_source ? (void *)half : host,
		     MIXED * (narrow_source ? sizeof(*half) : sizeof(*host)), PD_COPY_TO_DEVICE);
		sum.src[k] = device[k];
	}
	sum.dst = device[n];
	pd_submit_mixed_sum(c->stream, &sum, NULL);
	chain_copy(c, narrows ? (void *)half : host, device[n],
	     MIXED * (narrows ? sizeof(*half) : sizeof(*host)), PD_COPY_TO_HOST);
	for (int i = 0; i < MIXED; i++)
		good = good && (narrows ? half[i] == narrow(r, right[i]) : host[i] == right[i]);
	for (int k = 0; k <= n; k++)
		ops->memory.free(c->device, device[k]);
	return good;
}

void test_mixed_sum(const struct pd_device_ops *ops, struct chain *c)
{
	static const struct pd_rounding roundings[] = {
		{ PD_BF16, 1, false }, { PD_F16, 1, false }, { PD_F16, 1024, true },
	};

	for (size_t r = 0; r < PD_COUNT(roundings); r++) {
		bool good = true;

		for (int n = 1; n <= MIXED_SOURCES; n++)
			for (uint32_t from = 0; from < 1U << n; from++)
				for (int to = 0; to < 2; to++)
					good = good && mixed_is_right(ops, c, &roundings[r], from, to, n);
		ok(good, "%s: sums of f32 and %s, scale %g", ops->name,
		   pd_dtype_name[roundings[r].dtype], (double)roundings[r].scale);
	}
}

/* Tests the vector on which ranks agree, sums of squares by layer and the scale last, and its union. */
void test_squares(const struct pd_device_ops *ops, struct chain *c)
{
	struct stage *s = &c->stages[0];
	int layers = c->model->layer_count;
	size_t bytes = sizeof(double) * (size_t)(layers + 1);
	struct pd_scale scale = { .loss_scale = 4 };
	double *sums = pd_calloc((size_t)layers + 1, sizeof(*sums)), off = 0;
	double *got = pd_calloc((size_t)layers + 1, sizeof(*got));
	char *vector = chain_put(c, sums, bytes), *other, *at = chain_put(c, &scale, sizeof(scale));
	struct pd_squares what = { .gradients = s->gradients, .clear = true,
				   .vector = (double *)vector,
				   .scale = (const struct pd_scale *)at };
	const struct pd_named *list;
	int n = ops->net.named(s->net, &list);
	int64_t count, k = 0;
	float *g;

	chain_forward(c);
	chain_backward(c);
	g = chain_export(c, GRADIENTS, &count);
	for (int i = 0; i < n; i++)
		for (int64_t e = 0; list[i].part == PD_PART_PARAMETER && e < list[i].elements; e++, k++)
			sums[list[i].layer] += (double)g[k] * (double)g[k];
	pd_submit_squares(c->stream, s->net, &what, NULL);
	chain_copy(c, got, vector, bytes, PD_COPY_TO_HOST);
	for (int l = 0; l < layers; l++)
		off = fmax(off, sums[l] > 0 ? fabs(got[l] / sums[l] - 1)
					    : fabs(got[l] - PD_ABSENT));
	if (!ok(off < 1e-12 && got[layers] == 4, "%s: sums of squares by layer", ops->name))
		diag("off by %g, scale %g", off, got[layers]);
	for (int l = 0; l <= layers; l++)
		sums[l] = 100 + l;
	other = chain_put(c, sums, bytes);
	pd_submit_unite(c->stream, (double *)vector, (const double *)other, (size_t)layers + 1,
			NULL);
	chain_copy(c, sums, vector, bytes, PD_COPY_TO_HOST);
	off = 0;
	for (int l = 0; l <= layers; l++)
		off = fmax(off, fabs(sums[l] - (got[l] == PD_ABSENT ? 100 + l : got[l])));
	ok(off == 0, "%s: and united", ops->name);
	ops->memory.free(c->device, vector);
	ops->memory.free(c->device, other);
	ops->memory.free(c->device, at);
	free(g);
	free(sums);
	free(got);
}
