/* SPDX-License-Identifier: Apache-2.0 */
#include "predict/cost.h"

#include "base/mem.h"

#include <stdlib.h>

#define LAYER_STEPS 16                  /* steps (base/effort.h) of a layer whose memory is added up */
#define KNOWN_UNITS 4096                /* above this, bytes of stages are not stored */

struct pd_known {                       /* bytes of a replica without warm-up, plus 1 */
	int64_t bytes[2];               /* without and with other replicas */
	int64_t slot_bytes;             /* in addition for each minibatch of warm-up */
};

const char *const pd_cost_kind_name[] = {
#define COST_KIND(symbol, name, what) name,
#include "predict/cost_kind.def"
#undef COST_KIND
	NULL
};

/*
 * Returns whether the network may be cut before each layer: not between layers that share
 * parameters, unless these have copies, nor where it is joined to the one before.
 */
static bool *legal_cuts(const struct pd_profile *profile, bool copies)
{
	int n = profile->layer_count, tied = 0;
	bool *legal = pd_calloc((size_t)n + 1, sizeof(*legal));
	int *change = pd_calloc((size_t)n + 1, sizeof(*change));

	for (int l = 0; !copies && l < n; l++) {
		int owner = pd_profile_owner(profile, l);

		/* no cut before any of low + 1 to high */
		change[(owner < l ? owner : l) + 1]++;
		change[(owner < l ? l : owner) + 1]--;
	}
	for (int l = 0; l <= n; l++) {
		tied += change[l];
		legal[l] = tied == 0 && !(l < n && profile->layers[l].joined);
	}
	free(change);
	return legal;
}

static int *last_uses(const struct pd_profile *profile)
{
	int *last = pd_calloc((size_t)profile->layer_count, sizeof(*last));

	for (int l = 0; l < profile->layer_count; l++) {
		last[l] = -1;
		for (int i = 0; i < profile->layers[l].input_count; i++)
			last[profile->layers[l].inputs[i]] = l;
	}
	return last;
}

/* Sets the bytes of the tensors that cross the cut before each layer (layer_count + 1 entries). */
static void cut_bytes(const struct pd_profile *profile, const int *last_use, int64_t *cut)
{
	int n = profile->layer_count;

	for (int l = 0; l < n; l++) {
		int64_t bytes = profile->layers[l].activation_bytes;

		if (last_use[l] < 0)
			continue;
		cut[l + 1] += bytes;
		cut[last_use[l] + 1] -= bytes;
	}
	for (int l = 1; l <= n; l++)
		cut[l] += cut[l - 1];
}

static void add_up(struct pd_costs *costs, const bool *legal, const int64_t *cut)
{
	const struct pd_profile *profile = costs->profile;
	int64_t ns = 0, bytes = 0;
	int u = 0;

	for (int l = 0; l < profile->layer_count; l++) {
		if (legal[l]) {
			costs->first[u] = l;
			costs->compute_ns[u] = ns;
			costs->parameter_bytes[u] = bytes;
			costs->cut_bytes[u++] = cut[l];
		}
		ns += pd_profile_step_ns(&profile->layers[l]);
		bytes += pd_memory_parameters(profile, l, costs->copies);
	}
	costs->unit_count = u;
	costs->first[u] = profile->layer_count;
	costs->compute_ns[u] = ns;
	costs->parameter_bytes[u] = bytes;
}

static bool is_chain(const struct pd_profile *profile)
{
	for (int l = 0; l < profile->layer_count; l++) {
		const struct pd_profile_layer *layer = &profile->layers[l];

		if (layer->input_count > 1 || (layer->input_count == 1 && layer->inputs[0] != l - 1))
			return false;
	}
	return true;
}

void pd_costs_init(struct pd_costs *costs, const struct pd_profile *profile, bool copies)
{
	size_t room = (size_t)profile->layer_count + 1;
	int64_t *cut = pd_calloc(room, sizeof(*cut));
	bool *legal = legal_cuts(profile, copies);

	*costs = (struct pd_costs){
		.profile = profile,
		.copies = copies,
		.first = pd_calloc(room, sizeof(*costs->first)),
		.compute_ns = pd_calloc(room, sizeof(*costs->compute_ns)),
		.parameter_bytes = pd_calloc(room, sizeof(*costs->parameter_bytes)),
		.cut_bytes = pd_calloc(room, sizeof(*costs->cut_bytes)),
		.last_use = last_uses(profile),
	};
	cut_bytes(profile, costs->last_use, cut);
	add_up(costs, legal, cut);
	costs->chain = is_chain(profile);
	if (costs->unit_count <= KNOWN_UNITS)
		costs->known = pd_calloc((size_t)costs->unit_count *
					 ((size_t)costs->unit_count + 1) / 2,
					 sizeof(*costs->known));
	free(cut);
	free(legal);
}

void pd_costs_release(struct pd_costs *costs)
{
	free(costs->first);
	free(costs->compute_ns);
	free(costs->parameter_bytes);
	free(costs->cut_bytes);
	free(costs->last_use);
	free(costs->known);
	*costs = (struct pd_costs){ 0 };
}

double pd_cost_of_pairs(const struct pd_profile *profile, enum pd_schedule_kind schedule)
{
	double least = profile->pairs > 0 ? profile->pairs : 1;

	for (int k = 0; k < profile->other_count; k++)
		if (profile->others[k]->pairs > 0 && profile->others[k]->pairs < least)
			least = profile->others[k]->pairs;
	return pd_schedule_has(schedule, PD_FACT_PAIRS) ? least : 1;
}

int pd_costs_unit(const struct pd_costs *costs, int layer)
{
	int low = 0, high = costs->unit_count;

	while (low < high) {
		int middle = low + (high - low) / 2;

		if (costs->first[middle] < layer)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

void pd_row_init(struct pd_row *row, const struct pd_costs *costs)
{
	size_t room = (size_t)costs->unit_count + 1;

	*row = (struct pd_row){
		.costs = costs,
		.unit = -1,
		.in_bytes = pd_calloc(room, sizeof(*row->in_bytes)),
		.out_bytes = pd_calloc(room, sizeof(*row->out_bytes)),
		.seen = pd_calloc((size_t)costs->profile->layer_count, sizeof(*row->seen)),
	};
}

void pd_row_release(struct pd_row *row)
{
	free(row->in_bytes);
	free(row->out_bytes);
	free(row->seen);
	*row = (struct pd_row){ 0 };
}

/* The sums of a row, from layer to layer. */
struct tally {
	int64_t in;             /* bytes that arrive */
	int64_t held;           /* bytes in the stage that a later layer uses */
};

/* Adds an input of layer l; an input named twice is used once. */
static void tally_input(struct pd_row *row, struct tally *tally, int l, int i)
{
	const struct pd_costs *costs = row->costs;
	const struct pd_profile_layer *layer = &costs->profile->layers[l];
	int t = layer->inputs[i];
	int64_t bytes = costs->profile->layers[t].activation_bytes;

	for (int k = 0; k < i; k++)
		if (layer->inputs[k] == t)
			return;
	if (t < costs->first[row->unit] && row->seen[t] != row->stamp) {
		row->seen[t] = row->stamp;
		tally->in += bytes;
		tally->held += bytes;
	}
	if (costs->last_use[t] == l)
		tally->held -= bytes;
}

/*
 * Tensors arrive at a stage that uses them, and leave it for later stages that use them, whether
 * the stage made them or received them (lib/plan/wiring).
 */
void pd_row_set(struct pd_row *row, int unit)
{
	const struct pd_costs *costs = row->costs;
	struct tally tally = { 0 };

	row->unit = unit;
	if (costs->chain)
		return;
	row->stamp++;
	for (int v = unit; v < costs->unit_count; v++) {
		for (int l = costs->first[v]; l < costs->first[v + 1]; l++) {
			const struct pd_profile_layer *layer = &costs->profile->layers[l];

			for (int i = 0; i < layer->input_count; i++)
				tally_input(row, &tally, l, i);
			if (costs->last_use[l] >= 0)
				tally.held += layer->activation_bytes;
		}
		row->in_bytes[v + 1] = tally.in;
		row->out_bytes[v + 1] = tally.held;
	}
}

static int64_t price(const struct pd_row *row, int v, const struct pd_memory_sums *sums,
		     int replicas, int warmup)
{
	struct pd_memory memory;

	pd_memory_price(row->costs->profile, sums, replicas, warmup, pd_row_in_bytes(row, v),
			pd_row_out_bytes(row, v), &memory);
	return pd_saturate(memory.total_bytes);
}

static void work_out_memory(const struct pd_row *row, int v, struct pd_known *known)
{
	const struct pd_costs *costs = row->costs;
	int first = costs->first[row->unit], count = costs->first[v] - first;
	struct pd_memory_sums sums;

	pd_effort_spend(costs->effort, LAYER_STEPS * count);
	pd_memory_add_up(costs->profile, first, count, &sums);
	for (int many = 0; many < 2; many++)
		known->bytes[many] = price(row, v, &sums, 1 + many, 0) + 1;
	known->slot_bytes = price(row, v, &sums, 1, 1) + 1 - known->bytes[0];
}

/* Memory is linear in the warm-up, and the same for any number of replicas above one. */
int64_t pd_row_memory(const struct pd_row *row, int v, int replicas, int warmup)
{
	const struct pd_costs *costs = row->costs;
	size_t u = (size_t)row->unit, U = (size_t)costs->unit_count;
	struct pd_known own = { 0 }, *known = costs->known
		? &costs->known[u * U - u * (u + 1) / 2 + (size_t)v - 1] : &own;

	if (!known->bytes[0])                           /* 0 means not known yet */
		work_out_memory(row, v, known);
	return pd_saturate((__int128)known->slot_bytes * warmup + known->bytes[replicas > 1] - 1);
}
