/* SPDX-License-Identifier: Apache-2.0 */
/* Executes a step of sparse sums (struct pd_chunks).  Chunks are shared out among threads. */
#include "base/mem.h"
#include "run/device/cpu/cpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LANES 16

/* A float's bits, without its sign, ascend with it; of all numbers NaN is the largest. */
struct candidate {
	uint32_t norm;
	int64_t chunk;
};

static int by_norm(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	if (x->norm != y->norm)
		return x->norm < y->norm ? 1 : -1;
	return (x->chunk > y->chunk) - (x->chunk < y->chunk);
}

static void choose(const struct pd_chunks *w)
{
	struct candidate *list = pd_calloc((size_t)w->count, sizeof(*list));
	int32_t place = 0;

	for (int64_t c = 0; c < w->count; c++) {
		memcpy(&list[c].norm, &w->norms[w->first + c], sizeof(float));
		list[c].chunk = w->first + c;
		w->places[w->first + c] = -1;
	}
	if (w->count > 0)
		qsort(list, (size_t)w->count, sizeof(*list), by_norm);
	for (int64_t i = 0; i < w->sent; i++)
		w->places[list[i].chunk] = 0;
	for (int64_t c = w->first; c < w->first + w->count; c++)
		if (w->places[c] >= 0)
			w->places[c] = place++;
	free(list);
}

PD_VECTOR static double sum_absolutes(const float *g, size_t count)
{
	double lane[LANES] = { 0 }, sum = 0;
	size_t i = 0;

	for (; i + LANES <= count; i += LANES)
		for (int k = 0; k < LANES; k++)
			lane[k] += fabs((double)g[i + (size_t)k]);
	for (; i < count; i++)
		sum += fabs((double)g[i]);
	for (int k = 0; k < LANES; k++)
		sum += lane[k];
	return sum;
}

PD_VECTOR static void send(float *restrict packed, float *restrict g, float *restrict hg,
			   size_t count)
{
	for (size_t i = 0; i < count; i++) {
		packed[i] = g[i] += hg[i];
		hg[i] = 0;
	}
}

PD_VECTOR static void stay(float *restrict g, float *restrict hg, float keep, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		g[i] += hg[i];
		hg[i] = keep * g[i];
	}
}

static void pass(const struct pd_chunks *w, int64_t c)
{
	size_t at = (size_t)(c * w->chunk), count = (size_t)w->chunk;
	float *g = w->gradients + at, *hg = w->residual + at, *packed;

	if ((int64_t)(at + count) > w->floats)
		count = (size_t)w->floats - at;
	packed = w->packed + (w->places[c] > 0 ? w->places[c] * w->chunk : 0);
	if (w->step == PD_CHUNKS_UNPACK && w->places[c] >= 0) {
		memcpy(g, packed, count * sizeof(*g));
		w->norms[c] = (float)(sum_absolutes(g, count) / w->members);
	} else if (w->step == PD_CHUNKS_PACK && w->places[c] >= 0) {
		send(packed, g, hg, count);
	} else if (w->step == PD_CHUNKS_PACK) {
		stay(g, hg, w->keep, count);
		w->norms[c] = (float)sum_absolutes(g, count);
	}
}

void pd_cpu_chunks(const struct pd_chunks *w)
{
	if (w->step == PD_CHUNKS_CHOOSE) {
		choose(w);
		return;
	}
#pragma omp parallel for schedule(static)
	for (int64_t c = w->first; c < w->first + w->count; c++)
		pass(w, c);
}
