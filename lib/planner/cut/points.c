/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/cut/points.h"

#include "base/mem.h"

#include <stdlib.h>

#define MOST_LAYERS 1024
#define MOST_STATES 1600

bool pd_points_one_order(const struct pd_profile *profile)
{
	for (int l = 1; l < profile->layer_count; l++) {
		const struct pd_profile_layer *layer = &profile->layers[l];
		bool uses = false;

		for (int i = 0; i < layer->input_count; i++)
			uses |= layer->inputs[i] == l - 1;
		if (!uses)
			return false;
	}
	return true;
}

int64_t *pd_points_sum_of(const struct pd_points *points, const struct pd_profile *profile,
			  int64_t (*of)(const struct pd_profile_layer *layer))
{
	const struct pd_costs *costs = points->row.costs;
	int64_t *sum = pd_calloc((size_t)points->last + 1, sizeof(*sum));

	for (int u = 0; u < points->last && !points->states; u++) {
		sum[u + 1] = sum[u];
		for (int l = costs->first[u]; l < costs->first[u + 1]; l++)
			sum[u + 1] = pd_plus(sum[u + 1], of(&profile->layers[l]));
	}
	for (int s = 1; points->states && s <= points->last; s++)
		for (int l = 0; l < points->states->profile->layer_count; l++)
			if (pd_states_has(points->states, s, l))
				sum[s] = pd_plus(sum[s], of(&profile->layers[l]));
	return sum;
}

int64_t *pd_points_sum(const struct pd_points *points,
		       int64_t (*of)(const struct pd_profile_layer *layer))
{
	return pd_points_sum_of(points, pd_points_profile(points), of);
}

static int64_t forward_of(const struct pd_profile_layer *layer)
{
	return layer->forward_ns;
}

static int64_t stash_of(const struct pd_profile_layer *layer)
{
	return layer->stash_bytes;
}

static int64_t state_of(const struct pd_profile_layer *layer)
{
	return layer->state_bytes;
}

static void add_layers(struct pd_points *points)
{
	points->forward_ns = pd_points_sum(points, forward_of);
	points->stash_bytes = pd_points_sum(points, stash_of);
}

void pd_points_of_units(struct pd_points *points, const struct pd_costs *costs)
{
	*points = (struct pd_points){
		.last = costs->unit_count, .compute_ns = costs->compute_ns,
		.parameter_bytes = costs->parameter_bytes, .cut_bytes = costs->cut_bytes,
	};
	pd_row_init(&points->row, costs);
	add_layers(points);
}

static void find_ends(struct pd_points *points)
{
	const struct pd_states *states = points->states;
	size_t count = 0, room = 0;

	points->first = pd_calloc((size_t)states->count + 1, sizeof(*points->first));
	for (int u = 0; u < states->count; u++) {
		points->first[u] = count;
		points->next = pd_grow(points->next, &room, count + (size_t)(states->count - u),
				       sizeof(*points->next));
		for (int v = u + 1; v < states->count; v++)
			if (pd_states_within(states, u, v))
				points->next[count++] = v;
	}
	points->first[states->count] = count;
}

static void find_workspaces(struct pd_points *points)
{
	const struct pd_states *states = points->states;

	points->workspace_bytes = pd_calloc((size_t)states->count, sizeof(int64_t));
	for (int s = 0; s < states->count; s++)
		for (int l = 0; l < states->profile->layer_count; l++)
			if (pd_states_has(states, s, l))
				points->workspace_bytes[s] =
					pd_max(points->workspace_bytes[s],
					       states->profile->layers[l].workspace_bytes);
}

struct tensors {
	const struct pd_states *states;
	uint64_t *uses;                 /* per tensor: the set of layers that use it */
	/* Per state: tensors inside that are used outside. */
	int *live, *first;              /* live[first[state]] to live[first[state + 1] - 1] */
};

/* Tells whether a layer of state b, but not of state a, uses it. */
static bool used_between(const struct tensors *tensors, int t, const uint64_t *a, const uint64_t *b)
{
	const uint64_t *uses = &tensors->uses[(size_t)t * tensors->states->words];

	for (size_t w = 0; w < tensors->states->words; w++)
		if (uses[w] & b[w] & ~a[w])
			return true;
	return false;
}

static void tensors_init(struct tensors *tensors, const struct pd_states *states)
{
	const uint64_t *all = pd_states_set(states, states->count - 1);
	int n = states->profile->layer_count, count = 0;
	size_t room = 0;

	*tensors = (struct tensors){ .states = states };
	tensors->uses = pd_calloc((size_t)n * states->words, sizeof(*tensors->uses));
	for (int l = 0; l < n; l++)
		for (int i = 0; i < states->profile->layers[l].input_count; i++)
			pd_set_put(&tensors->uses[(size_t)states->profile->layers[l].inputs[i] *
						  states->words], l);
	tensors->first = pd_calloc((size_t)states->count + 1, sizeof(*tensors->first));
	for (int s = 0; s < states->count; s++) {
		tensors->first[s] = count;
		tensors->live = pd_grow(tensors->live, &room, (size_t)(count + n),
					sizeof(*tensors->live));
		for (int t = 0; t < n; t++)
			if (pd_states_has(states, s, t) &&
			    used_between(tensors, t, pd_states_set(states, s), all))
				tensors->live[count++] = t;
	}
	tensors->first[states->count] = count;
}

static void tensors_release(struct tensors *tensors)
{
	free(tensors->uses);
	free(tensors->live);
	free(tensors->first);
}

/* A stage receives what it uses, and sends on what it made or received (lib/plan/wiring). */
static int64_t stage_bytes(const struct tensors *tensors, int from, int to)
{
	const struct pd_profile_layer *layers = tensors->states->profile->layers;
	const uint64_t *a = pd_states_set(tensors->states, from);
	const uint64_t *b = pd_states_set(tensors->states, to);
	int64_t sum = 0;

	for (int i = tensors->first[from]; i < tensors->first[from + 1]; i++)
		if (used_between(tensors, tensors->live[i], a, b))
			sum += layers[tensors->live[i]].activation_bytes;
	for (int i = tensors->first[to]; i < tensors->first[to + 1]; i++) {
		int t = tensors->live[i];

		if (!pd_states_has(tensors->states, from, t) || used_between(tensors, t, a, b))
			sum += layers[t].activation_bytes;
	}
	return sum;
}

/* Computes what enters and leaves every stage between two states, unless there are very many. */
static void find_traffic(struct pd_points *points)
{
	const struct pd_states *states = points->states;
	struct tensors tensors;

	if (states->profile->layer_count > MOST_LAYERS || states->count > MOST_STATES)
		return;
	points->traffic = pd_calloc(points->first[states->count] + 1, sizeof(*points->traffic));
	tensors_init(&tensors, states);
	for (int u = 0; u < states->count; u++)
		for (size_t i = points->first[u]; i < points->first[u + 1]; i++)
			points->traffic[i] = stage_bytes(&tensors, u, points->next[i]);
	tensors_release(&tensors);
}

void pd_points_of_states(struct pd_points *points, const struct pd_states *states)
{
	*points = (struct pd_points){
		.states = states, .last = states->count - 1, .compute_ns = states->compute_ns,
		.parameter_bytes = states->parameter_bytes, .cut_bytes = states->cut_bytes,
	};
	find_ends(points);
	find_traffic(points);
	add_layers(points);
	points->state_bytes = pd_points_sum(points, state_of);
	find_workspaces(points);
}

void pd_points_release(struct pd_points *points)
{
	if (!points->states)
		pd_row_release(&points->row);
	free(points->first);
	free(points->next);
	free(points->traffic);
	free(points->forward_ns);
	free(points->stash_bytes);
	free(points->state_bytes);
	free(points->workspace_bytes);
	*points = (struct pd_points){ 0 };
}

void pd_points_set(struct pd_points *points, int u)
{
	if (!points->states)
		pd_row_set(&points->row, u);
}

const struct pd_profile *pd_points_profile(const struct pd_points *points)
{
	if (points->states)
		return points->states->profile;
	return points->row.costs ? points->row.costs->profile : NULL;
}

/* Copies that layers share are counted more than once; a weight and a gradient of 16 bits are half of f32's. */
bool pd_points_exceed(const struct pd_points *points, int u, int v, int64_t bytes)
{
	return !points->states && !points->row.costs->copies &&
	       pd_times(pd_points_profile(points)->memory.sharded ? 1 : 3, points->parameter_bytes[v] - points->parameter_bytes[u]) > bytes;
}

/* Counts all that crosses a cut as what the stage uses of it, and the largest workspace as scratch. */
int64_t pd_points_memory(const struct pd_points *points, int u, int v, int replicas, int warmup)
{
	struct pd_memory memory;

	if (!points->states)
		return pd_row_memory(&points->row, v, replicas, warmup);
	pd_memory_price(points->states->profile, &(struct pd_memory_sums){
				.parameters = points->parameter_bytes[v] - points->parameter_bytes[u],
				.stash = points->stash_bytes[v] - points->stash_bytes[u],
				.state = points->state_bytes[v] - points->state_bytes[u],
				.scratch = points->workspace_bytes[v] },
			replicas, warmup, points->cut_bytes[u], points->cut_bytes[v], &memory);
	return memory.total_bytes;
}

/*
 * Returns what recomputing saves: one slot serves all microbatches, and there are two outboxes
 * (pd_schedule_outboxes).
 */
int64_t pd_points_saved(const struct pd_points *points, int u, int v, int warmup)
{
	int64_t out = pd_points_out_bytes(points, v);

	return pd_times(warmup, points->stash_bytes[v] - points->stash_bytes[u]) -
	       pd_times(pd_min(warmup + 1, 2), out);
}

void pd_points_layers(const struct pd_points *points, const int *ends, int stage_count,
		      int **layers_p, int **order_p)
{
	const int *first;

	if (points->states) {
		pd_states_layers(points->states, ends, stage_count, layers_p, order_p);
		return;
	}
	first = points->row.costs->first;
	*layers_p = pd_calloc((size_t)stage_count, sizeof(**layers_p));
	*order_p = NULL;
	for (int s = 0, u = 0; s < stage_count; u = ends[s++])
		(*layers_p)[s] = first[ends[s]] - first[u];
}
