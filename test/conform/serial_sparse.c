/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Algorithm 1 of GradientFlow (arXiv 1902.06855) for a stage with replicas, in the order of its arena
 * of gradients, which is that of backward.  A chunk belongs to the bucket in which it ends.
 * Of C chunks of a bucket ceil((1 - s) C) are important, at least one, with s the sparsity times
 * m / warmup while that is below 1, m the minibatch with which the group begins: the chunks of the
 * largest norms, of equal ones the first.  All norms are 0 at first.  In the group, at replica k:
 *
 *     g = its gradients + hg_k
 *     important:  hg_k = 0;  the sum of all g updates weights and velocity, as without chunks
 *     others:     hg_k = residual g;  weights and velocity stay
 *
 * Gradients that are sent are rounded as in serial.c, so the norm of an important chunk is that of a
 * rounded sum.
 *
 * The norm of a chunk is then the sum over the replicas of |g|_1, or, if it was important, of
 * |sum of all g|_1 / replicas.  The residual is --residual, by default the momentum.
 */
#include "serial.h"

#include "base/mem.h"
#include "engine/device/submit.h"
#include "memory/buckets.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct sparse {
	size_t begin, floats, chunks;           /* the stage's part of the whole network's arena */
	float *norms, *residual[64];
	bool *sets[64];                         /* per replica and chunk: it is important */
};

static const struct pd_plan *opened;    /* the plan that `stages` is for */
static struct sparse *stages;

bool serial_is_sparse(const struct pd_plan *plan, int s)
{
	return plan->chunk > 0 && plan->stages[s].replicas > 1;
}

static void open_stage(const struct pd_plan *plan, int s, struct sparse *sparse)
{
	const struct pd_stage *stage = &plan->stages[s];

	for (int l = plan->profile->layer_count - 1; l >= stage->first_layer; l--) {
		size_t floats = (size_t)pd_plan_layer_bytes(plan, l) / sizeof(float);

		if (l >= stage->first_layer + stage->layer_count)
			sparse->begin += floats;
		else
			sparse->floats += floats;
	}
	sparse->chunks = (sparse->floats + (size_t)plan->chunk - 1) / (size_t)plan->chunk;
	sparse->norms = pd_calloc(sparse->chunks, sizeof(float));
	for (int k = 0; k < stage->replicas; k++) {
		sparse->residual[k] = pd_calloc(sparse->floats, sizeof(float));
		sparse->sets[k] = pd_calloc(sparse->chunks, sizeof(bool));
	}
}

void serial_sparse_open(struct trainer *t)
{
	opened = t->plan;
	stages = pd_calloc((size_t)t->plan->stage_count, sizeof(*stages));
	for (int s = 0; s < t->plan->stage_count; s++)
		if (serial_is_sparse(t->plan, s))
			open_stage(t->plan, s, &stages[s]);
}

void serial_sparse_close(void)
{
	for (int s = 0; s < opened->stage_count; s++) {
		free(stages[s].norms);
		for (int k = 0; k < opened->stages[s].replicas; k++) {
			free(stages[s].residual[k]);
			free(stages[s].sets[k]);
		}
	}
	free(stages);
}

/* Copies a stage's part of the arena of gradients to or from host memory. */
static void copy(struct trainer *t, const struct sparse *sparse, float *host, enum pd_copy way)
{
	float *there = (float *)t->gradients + sparse->begin;
	struct pd_event ev;

	pd_event_arm(&ev);
	pd_submit_copy(t->stream, way == PD_COPY_TO_HOST ? host : there,
			    way == PD_COPY_TO_HOST ? there : host, sparse->floats * sizeof(float),
			    way, &ev);
	pd_event_wait(&ev, &t->gate);
}

static bool of_stage(const struct trainer *t, const struct tensor *v, int s)
{
	return v->named->part == PD_PART_PARAMETER &&
	       pd_plan_stage_of_layer(t->plan, v->named->layer) == s;
}

/* Returns the gradients of replica k in the order of the arena, and clears them at the tensors. */
static float *gather(struct trainer *t, int s, int k)
{
	float *g = pd_calloc(stages[s].floats, sizeof(*g));

	memset(g, 0, stages[s].floats * sizeof(*g));
	copy(t, &stages[s], g, PD_COPY_TO_DEVICE);
	for (int i = 0; i < t->count; i++) {
		struct tensor *v = &t->tensors[i];

		if (!of_stage(t, v, s))
			continue;
		t->ops->net.import(t->net, i, PD_FULL, t->gradients, v->parts[k]);
		memset(v->parts[k], 0, v->elements * sizeof(float));
	}
	copy(t, &stages[s], g, PD_COPY_TO_HOST);
	return g;
}

static bool larger(const float *norms, size_t a, size_t b)
{
	return norms[a] != norms[b] ? norms[a] > norms[b] : a < b;
}

/* Chooses the important chunks among chunks first to end - 1. */
static void choose(const float *norms, size_t first, size_t end, double sparsity, bool *set)
{
	double count = (double)(end - first);
	size_t most = (size_t)fmax(1, ceil((1 - sparsity) * count - 1e-9));

	for (size_t c = first; c < end; c++) {
		size_t rank = 0;

		for (size_t other = first; other < end; other++)
			rank += larger(norms, other, c);
		set[c] = rank < most;
	}
}

static void choose_all(struct trainer *t, int s, int64_t m, const float *norms, bool *set)
{
	int count = pd_plan_bucket_count(t->plan, s);
	struct pd_bucket *buckets = pd_calloc((size_t)count, sizeof(*buckets));
	double sparsity = t->plan->sparsity;
	size_t end = 0, first = 0, last;

	if (m < t->plan->sparsity_warmup)
		sparsity *= (double)m / (double)t->plan->sparsity_warmup;
	pd_plan_buckets(t->plan, s, buckets);
	for (int i = 0; i < count; i++, first = last) {
		end += (size_t)buckets[i].bytes / sizeof(float);
		last = i == count - 1 ? stages[s].chunks : end / (size_t)t->plan->chunk;
		choose(norms, first, last, sparsity, set);
	}
	free(buckets);
}

static double absolutes(const float *x, size_t count)
{
	double sum = 0;

	for (size_t i = 0; i < count; i++)
		sum += fabs((double)x[i]);
	return sum;
}

/*
 * Adds the residuals to the replicas' gradients g of chunk c, which begins at `at`, and sums them in g[0]
 * if it is important; returns its norm.
 */
__attribute__((optimize("fp-contract=off")))
static float learn_chunk(struct sparse *sparse, int replicas, float **g, size_t at, size_t count,
			 size_t c)
{
	double keep = asked.residual >= 0 ? asked.residual : asked.momentum;
	float norm = 0, each;

	for (int k = 0; k < replicas; k++) {
		float *hg = sparse->residual[k] + at;

		for (size_t i = 0; i < count; i++) {
			g[k][at + i] += hg[i];
			hg[i] = sparse->sets[k][c] ? 0 : (float)(asked.mutation == CORRECTION ? 1 : keep)
							 * g[k][at + i];
		}
		each = (float)absolutes(g[k] + at, count);
		norm = k == 0 ? each : norm + each;
	}
	if (!sparse->sets[0][c])
		return norm;
	for (int k = 0; k < replicas; k++)
		serial_round(opened, g[k] + at, count);
	for (int k = 1; k < replicas; k++)
		for (size_t i = 0; i < count; i++)
			g[0][at + i] += sparse->sets[k][c] ? g[k][at + i] : 0;
	serial_round_sum(opened, g[0] + at, count);
	each = (float)(absolutes(g[0] + at, count) / (asked.mutation == TWICE ? 1 : replicas));
	norm = each;
	for (int k = 1; k < replicas; k++)
		norm += each;
	return norm;
}

/* Stores each tensor's sum, and its mask of elements that are updated. */
static void scatter(struct trainer *t, int s, float *sum, const bool *set)
{
	float *mask = pd_calloc(stages[s].floats, sizeof(*mask));

	for (size_t i = 0; i < stages[s].floats; i++)
		mask[i] = set[i / (size_t)t->plan->chunk];
	copy(t, &stages[s], sum, PD_COPY_TO_DEVICE);
	for (int i = 0; i < t->count; i++)
		if (of_stage(t, &t->tensors[i], s))
			t->ops->net.export(t->net, i, PD_FULL, t->gradients, t->tensors[i].sum);
	copy(t, &stages[s], mask, PD_COPY_TO_DEVICE);
	for (int i = 0; i < t->count; i++)
		if (of_stage(t, &t->tensors[i], s))
			t->ops->net.export(t->net, i, PD_FULL, t->gradients, t->tensors[i].mask);
	free(mask);
}

void serial_sparse_sum(struct trainer *t, int s, int64_t b)
{
	struct sparse *sparse = &stages[s];
	int64_t group = serial_group(t->plan, &t->plan->stages[s]);
	int64_t m = (t->first + b / group * group) / t->plan->microbatches;
	int replicas = t->plan->stages[s].replicas;
	size_t chunk = (size_t)t->plan->chunk;
	float *g[64];

	for (int k = 0; k < replicas; k++) {
		g[k] = gather(t, s, k);
		choose_all(t, s, m, sparse->norms, sparse->sets[k]);
	}
	if (asked.mutation == SET && replicas > 1)      /* one replica chooses other chunks */
		for (size_t c = 0; c + 1 < sparse->chunks; c++)
			sparse->sets[1][c] = sparse->sets[0][c + 1];
	for (size_t c = 0; c < sparse->chunks; c++) {
		size_t at = c * chunk, end = at + chunk < sparse->floats ? at + chunk : sparse->floats;

		sparse->norms[c] = learn_chunk(sparse, replicas, g, at, end - at, c);
	}
	scatter(t, s, g[0], sparse->sets[0]);
	for (int k = 0; k < replicas; k++)
		free(g[k]);
}

const float *serial_sparse_norms(int s, size_t *count_p)
{
	*count_p = stages[s].chunks;
	return stages[s].norms;
}

float *serial_sparse_residual(struct trainer *t, int number, int replica)
{
	const struct tensor *v = &t->tensors[number];
	int s = pd_plan_stage_of_layer(t->plan, v->named->layer);
	float *values = pd_calloc(v->elements, sizeof(*values));

	copy(t, &stages[s], stages[s].residual[replica], PD_COPY_TO_DEVICE);
	t->ops->net.export(t->net, number, PD_FULL, t->gradients, values);
	return values;
}
