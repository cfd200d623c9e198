/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/planner.h"

#include "base/mem.h"
#include "base/opt.h"
#include "planner/alternatives.h"
#include "planner/bound.h"
#include "planner/predict.h"
#include "planner/published.h"
#include "planner/search.h"
#include "replay/replay.h"
#include "schedule/schedule.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_COUNTS 8           /* numbers of stages that are searched one by one */
#define FEW_COUNTS 3            /* the same for networks of more than so many units */
#define MANY_UNITS 300
#define MOST_CANDIDATES (2 * (2 * (MOST_COUNTS + 2) + 2))
#define MOST_REPLAYS 6          /* candidates that are replayed, data parallelism among them */

struct candidate {
	struct pd_plan *plan;           /* its profile is the planner's */
	int64_t time_ns;
};

struct planner {
	struct pd_profile *profile;
	const struct pd_plan_request *request;
	const struct pd_topology *topology;
	struct pd_costs costs;
	int64_t limit_bytes;            /* of a device */
	bool straight;
	bool refused;                   /* a candidate, by its schedule: why */
	struct pd_error why;
	int count;
	struct candidate candidates[MOST_CANDIDATES];
};

/* The published formulas take no notice of memory: only what is said is a limit to them. */
static int64_t memory_limit(const struct pd_profile *profile, const struct pd_plan_request *request)
{
	bool known = profile->device_memory_bytes > 0 && request->cost == PD_COST_SIMULATED;

	if (request->memory_bytes > 0)
		return request->memory_bytes;
	if (request->topology->memory_bytes > 0)
		return request->topology->memory_bytes;
	return known ? profile->device_memory_bytes : INT64_MAX;
}

/* All devices in a row, joined by the slowest of the links. */
static struct pd_flat flat_of(const struct planner *p, const struct pd_costs *costs, bool straight)
{
	const struct pd_topology *topology = p->topology;
	struct pd_flat flat = { costs, topology->level[0], (int)topology->devices, straight };

	for (int k = 1; k < topology->levels; k++) {
		const struct pd_level *level = &topology->level[k];

		if (level->bandwidth_bytes_per_s < flat.link.bandwidth_bytes_per_s)
			flat.link.bandwidth_bytes_per_s = level->bandwidth_bytes_per_s;
		flat.link.latency_ns = pd_max64(flat.link.latency_ns, level->latency_ns);
	}
	if (straight && flat.devices > costs->unit_count)
		flat.devices = costs->unit_count;
	return flat;
}

static int64_t fullest(const struct pd_plan *plan, int *stage_p)
{
	int64_t most = -1;

	for (int s = 0; s < plan->stage_count; s++)
		if (plan->stages[s].memory_bytes > most) {
			most = plan->stages[s].memory_bytes;
			*stage_p = s;
		}
	return most;
}

/* Frees a plan whose profile belongs to somebody else. */
static void drop(struct pd_plan *plan)
{
	if (plan)
		plan->profile = NULL;
	pd_plan_free(plan);
}

/* The layout as a plan of 1f1b with stashing; the profile stays the planner's. */
static struct pd_plan *plain_plan_of(const struct planner *p, const struct pd_layout *layout)
{
	struct pd_topology topology = *p->topology;
	struct pd_error err;
	struct pd_plan *plan;

	if (p->request->chunks)         /* as if each stage had a device of its own */
		topology.devices = pd_max64(topology.devices, layout->stage_count);
	plan = pd_plan_new(p->profile, &topology, layout->stage_count, layout->layers,
			   layout->replicas, &err);
	if (!plan)
		pd_bug("planner: made no valid plan: %s", err.text);
	plan->topology = *p->topology;
	for (int s = 0; layout->ranks && s < layout->stage_count; s++)
		memcpy(plan->stages[s].ranks, layout->ranks[s],
		       (size_t)layout->replicas[s] * sizeof(int));
	pd_predict_stages(plan);
	return plan;
}

/* The layout as the plan that is asked for, with its stages' predictions; NULL where the
 * schedule refuses it. */
static struct pd_plan *plan_of(const struct planner *p, const struct pd_layout *layout,
			       struct pd_error *err)
{
	const struct pd_plan_request *request = p->request;
	struct pd_plan *plan = plain_plan_of(p, layout);
	struct pd_schedule *schedule;

	if (pd_planner_plain(request) && request->startup == PD_STARTUP_FRUGAL)
		return plan;
	plan->schedule = request->schedule;
	plan->weights = request->weights;
	plan->startup = request->startup;
	if (request->chunks) {
		plan->rank_count = layout->stage_count / request->chunks;
		for (int s = 0; s < plan->stage_count; s++)
			plan->stages[s].ranks[0] = s % plan->rank_count;
	}
	plan->microbatches = request->microbatches ? request->microbatches
						   : pd_planner_microbatches(plan);
	schedule = pd_schedule_new(plan, err);
	if (!schedule) {
		drop(plan);
		return NULL;
	}
	pd_predict_memory(plan, schedule);
	pd_schedule_free(schedule);
	return plan;
}

/* The time by which candidates are sorted. */
static int64_t time_of(const struct planner *p, const struct pd_plan *plan)
{
	return p->request->cost == PD_COST_SIMULATED ? pd_predict_period_ns(plan)
						     : pd_published_ns(p->request->cost, plan);
}

/* Time, then devices, stages, bytes at the fullest rank; for qsort, which finds no ties. */
static int compare(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;
	int stage = 0;

	if (x->time_ns != y->time_ns)
		return x->time_ns < y->time_ns ? -1 : 1;
	if (x->plan->rank_count != y->plan->rank_count)
		return x->plan->rank_count < y->plan->rank_count ? -1 : 1;
	if (x->plan->stage_count != y->plan->stage_count)
		return x->plan->stage_count < y->plan->stage_count ? -1 : 1;
	if (fullest(x->plan, &stage) != fullest(y->plan, &stage))
		return fullest(x->plan, &stage) < fullest(y->plan, &stage) ? -1 : 1;
	for (int s = 0; s < x->plan->stage_count; s++) {
		const struct pd_stage *p = &x->plan->stages[s], *q = &y->plan->stages[s];
		int order;

		if (p->layer_count != q->layer_count)
			return p->layer_count < q->layer_count ? -1 : 1;
		if (p->replicas != q->replicas)
			return p->replicas < q->replicas ? -1 : 1;
		order = memcmp(p->ranks, q->ranks, (size_t)p->replicas * sizeof(int));
		if (order)
			return order;
	}
	return 0;
}

/* Adds a layout (or NULL) that fits and is new; frees it. */
static void consider(struct planner *p, struct pd_layout *layout)
{
	struct candidate new;
	int stage = 0;
	bool take;

	if (!layout)
		return;
	new.plan = plan_of(p, layout, &p->why);
	if (!new.plan) {
		p->refused = true;
		pd_layout_free(layout);
		return;
	}
	new.time_ns = time_of(p, new.plan);
	take = fullest(new.plan, &stage) <= p->limit_bytes;
	for (int i = 0; i < p->count && take; i++)
		take = compare(&new, &p->candidates[i]) != 0;
	if (take)
		p->candidates[p->count++] = new;
	else
		drop(new.plan);
	pd_layout_free(layout);
}

static void consider_flat(struct planner *p, bool straight)
{
	struct pd_flat flat = flat_of(p, &p->costs, straight);
	int most = straight != p->straight ? 0
		: p->costs.unit_count > MANY_UNITS ? FEW_COUNTS : MOST_COUNTS;

	consider(p, pd_flat_search(&flat, 0));
	for (int count = 1; count <= most && count <= flat.devices &&
	     count <= p->costs.unit_count; count++)
		consider(p, pd_flat_search(&flat, count));
	if (straight)
		consider(p, pd_straight_layout(&p->costs, flat.devices,
					       flat.link.bandwidth_bytes_per_s));
}

static void search_once(struct planner *p)
{
	if (p->topology->levels > 1)
		consider(p, pd_sosp19_search(&p->costs, p->topology, p->straight));
	consider_flat(p, p->straight);
	if (!p->straight) {
		consider_flat(p, true);
		consider(p, pd_data_parallel_layout(&p->costs, p->topology->devices));
	}
}

/* What stashing would hold is no limit where other weights are asked for. */
static void search(struct planner *p)
{
	search_once(p);
	if (!pd_planner_plain(p->request) && p->costs.memory_limit_bytes != INT64_MAX) {
		p->costs.memory_limit_bytes = INT64_MAX;
		search_once(p);
		p->costs.memory_limit_bytes = p->limit_bytes;
	}
}

static int too_large(const struct pd_plan *plan, const char *what, int64_t limit,
		     struct pd_error *err)
{
	const struct pd_stage *stage;
	char need[32], have[32], more[32];
	int s = 0;
	int64_t bytes = fullest(plan, &s);

	stage = &plan->stages[s];
	return pd_error_no(err, "%s %s (%" PRId64 " bytes) on stage %d (layers \"%.60s\" to "
			   "\"%.60s\"), %s more than the %s of a device", what,
			   pd_show_bytes(bytes, need), bytes, s,
			   plan->profile->layers[stage->first_layer].name,
			   plan->profile->layers[stage->first_layer + stage->layer_count - 1].name,
			   pd_show_bytes(bytes - limit, more), pd_show_bytes(limit, have));
}

static int explain_none(struct planner *p, struct pd_error *err)
{
	struct pd_flat flat = flat_of(p, &p->costs, p->straight);
	struct pd_layout *layout = pd_flat_least_memory(&flat);
	struct pd_plan *plan = plan_of(p, layout, err);

	if (plan)
		too_large(plan, "no plan fits: the closest needs", p->limit_bytes, err);
	drop(plan);
	pd_layout_free(layout);
	return -1;
}

/* The only candidate; frees the layout. */
static int take_only(struct planner *p, struct pd_layout *layout, const char *what,
		     struct pd_error *err)
{
	struct candidate *only = &p->candidates[0];
	int stage = 0;

	only->plan = plan_of(p, layout, err);
	if (only->plan) {
		only->time_ns = time_of(p, only->plan);
		p->count = 1;
	}
	pd_layout_free(layout);
	if (!only->plan)
		return -1;
	if (fullest(only->plan, &stage) <= p->limit_bytes)
		return 0;
	return too_large(only->plan, what, p->limit_bytes, err);
}

/* The profile's order may have changed, and with it where it can be cut. */
static int by_formula(struct planner *p, struct pd_error *err)
{
	struct pd_layout *layout = pd_published_layout(p->profile, p->request, err);

	if (!layout)
		return -1;
	pd_costs_release(&p->costs);
	pd_costs_init(&p->costs, p->profile, p->request->cost, p->limit_bytes);
	return take_only(p, layout, "--cost: it takes no notice of memory, and its plan needs", err);
}

static int by_hand(struct planner *p, struct pd_error *err)
{
	const struct pd_plan_request *request = p->request;
	int64_t most = request->chunks ? request->chunks * p->topology->devices
				       : p->topology->devices;
	struct pd_layout *layout = pd_fixed_layout(&p->costs, request->stages, most, err);
	int status = 0;

	if (!layout)
		return -1;
	if (request->chunks && layout->stage_count % request->chunks != 0)
		status = pd_error_input(err, "--stages: expected a multiple of the %d chunks of each"
					" rank, found %d stages", request->chunks,
					layout->stage_count);
	for (int s = 0; status == 0 && s < layout->stage_count; s++)
		if (layout->replicas[s] > 1 && (request->straight || request->chunks))
			status = pd_error_input(err, "--stages: stage %d has %d replicas, but %s "
						"allows one", s, layout->replicas[s],
						request->chunks ? "--chunks" : "--straight");
	if (status < 0) {
		pd_layout_free(layout);
		return -1;
	}
	return take_only(p, layout, "--stages: this plan needs", err);
}

/* Cuts stages with the most units in two until there are so many: first[s] is a unit. */
static void divide(int *first, int stages, int target)
{
	for (; stages < target; stages++) {
		int most = 0;

		for (int s = 1; s < stages; s++)
			if (first[s + 1] - first[s] > first[most + 1] - first[most])
				most = s;
		memmove(&first[most + 2], &first[most + 1],
			(size_t)(stages - most) * sizeof(*first));
		first[most + 1] = (first[most] + first[most + 2]) / 2;
	}
}

/*
 * Interleaved: the best straight plan with as many stages as there are chunks, and where
 * that needs fewer, its longest stages divided: each rank must have all its chunks.
 */
static int by_chunks(struct planner *p, struct pd_error *err)
{
	const struct pd_costs *costs = &p->costs;
	struct pd_costs free_costs;
	struct pd_flat flat = flat_of(p, costs, true);
	int64_t chunks = p->request->chunks, ranks = costs->unit_count / chunks;
	struct pd_layout *layout;
	int *first, u = 0;

	if (ranks > p->topology->devices)
		ranks = p->topology->devices;
	if (ranks < 1)
		return pd_error_input(err, "--chunks: the network can be cut into %d stages, expected"
				      " at least %" PRId64, costs->unit_count, chunks);
	pd_costs_init(&free_costs, p->profile, p->request->cost, INT64_MAX);
	flat.costs = &free_costs;
	flat.devices = (int)(ranks * chunks);
	layout = pd_flat_search(&flat, flat.devices);
	first = pd_calloc((size_t)flat.devices + 2, sizeof(*first));
	for (int s = 0, layer = 0; s < layout->stage_count; s++) {
		for (layer += layout->layers[s]; costs->first[u] < layer;)
			u++;
		first[s + 1] = u;
	}
	divide(first, layout->stage_count, flat.devices);
	pd_layout_free(layout);
	layout = pd_zalloc(sizeof(*layout));
	*layout = (struct pd_layout){ .cost_ns = PD_NEVER, .stage_count = flat.devices };
	layout->layers = pd_calloc((size_t)flat.devices, sizeof(*layout->layers));
	layout->replicas = pd_calloc((size_t)flat.devices, sizeof(*layout->replicas));
	for (int s = 0; s < flat.devices; s++) {
		layout->layers[s] = costs->first[first[s + 1]] - costs->first[first[s]];
		layout->replicas[s] = 1;
	}
	free(first);
	pd_costs_release(&free_costs);
	return take_only(p, layout, "no plan fits: interleaved needs", err);
}

/* A bound for every plan under the options. */
static int64_t lower_bound(const struct planner *p)
{
	const struct pd_plan_request *request = p->request;
	struct pd_bound with = {
		.topology = p->topology, .schedule = request->schedule,
		.weights = request->weights, .chunks = request->chunks,
		.straight = p->straight,
		.microbatches = pd_planner_plain(request) ? 1 : request->microbatches,
	};

	return request->cost == PD_COST_SIMULATED ? pd_bound_ns(&p->costs, &with)
						  : pd_published_bound_ns(p->profile, request);
}

/* What the schedule makes of a plan: the period of a replay in virtual time. */
static int replay(struct candidate *candidate, struct pd_error *err)
{
	struct pd_trace *trace = pd_replay(candidate->plan, NULL, err);
	double period;

	if (!trace)
		return -1;
	period = pd_replay_period_ns(trace);
	pd_trace_free(trace);
	candidate->time_ns = period < (double)PD_COST_MAX ? (int64_t)ceil(period) : PD_COST_MAX;
	return 0;
}

/* Puts the best candidate first: the first few by formula are replayed. */
static int choose(struct planner *p, struct pd_error *err)
{
	int count = p->count < MOST_REPLAYS ? p->count : MOST_REPLAYS;

	qsort(p->candidates, (size_t)p->count, sizeof(p->candidates[0]), compare);
	if (p->request->cost != PD_COST_SIMULATED)
		return 0;
	for (int i = count; i < p->count; i++)
		if (p->candidates[i].plan->stage_count == 1 &&
		    p->candidates[i].plan->rank_count == p->topology->devices) {
			struct candidate other = p->candidates[count - 1];

			p->candidates[count - 1] = p->candidates[i];
			p->candidates[i] = other;
			break;
		}
	for (int i = 0; i < count; i++)
		if (replay(&p->candidates[i], err) < 0)
			return -1;
	qsort(p->candidates, (size_t)count, sizeof(p->candidates[0]), compare);
	return 0;
}

static int data_parallel(struct planner *p, struct pd_prediction *predicted, struct pd_error *err)
{
	struct pd_layout *layout = pd_data_parallel_layout(&p->costs, p->topology->devices);
	struct candidate all;
	int stage = 0, status = 0;

	all.plan = plain_plan_of(p, layout);
	all.time_ns = 0;
	if (p->request->cost == PD_COST_SIMULATED)
		status = replay(&all, err);
	else
		all.time_ns = pd_published_data_parallel_ns(p->profile, p->request);
	predicted->data_parallel_period_ns = all.time_ns;
	predicted->data_parallel_memory_bytes = fullest(all.plan, &stage);
	drop(all.plan);
	pd_layout_free(layout);
	return status;
}

static int finish(struct planner *p, struct pd_error *err)
{
	struct pd_prediction *predicted = &p->candidates[0].plan->predicted;
	int64_t period = p->candidates[0].time_ns;
	int stage = 0;

	if (data_parallel(p, predicted, err) < 0)
		return -1;
	predicted->period_ns = period;
	predicted->memory_bytes = fullest(p->candidates[0].plan, &stage);
	predicted->lower_bound_ns = lower_bound(p);
	if (period > 0) {
		predicted->samples_per_s = (double)p->profile->batch_size * 1e9 / (double)period;
		predicted->gap = 1 - (double)predicted->lower_bound_ns / (double)period;
		predicted->speedup_over_data_parallel =
			(double)predicted->data_parallel_period_ns / (double)period;
	}
	if (p->request->cost != PD_COST_SIMULATED)
		return 0;
	return pd_alternatives_find(p->candidates[0].plan, p->request, &p->costs, err);
}

struct pd_plan *pd_planner_plan(struct pd_profile *profile, const struct pd_plan_request *request,
				struct pd_error *err)
{
	struct planner p = { .profile = profile, .request = request, .topology = request->topology };
	int status;

	p.limit_bytes = memory_limit(profile, request);
	p.straight = request->straight || request->schedule == PD_SCHEDULE_NF1B;
	pd_costs_init(&p.costs, profile, request->cost, p.limit_bytes);
	if (request->stages) {
		status = by_hand(&p, err);
	} else if (request->chunks) {
		status = by_chunks(&p, err);
	} else if (request->cost != PD_COST_SIMULATED) {
		status = by_formula(&p, err);
	} else {
		search(&p);
		status = p.count > 0 ? 0 : explain_none(&p, err);
		if (status < 0 && p.refused)
			*err = p.why;
	}
	if (status == 0)
		status = choose(&p, err);
	if (status == 0)
		status = finish(&p, err);
	pd_costs_release(&p.costs);
	for (int i = status == 0; i < p.count; i++)
		drop(p.candidates[i].plan);
	return status == 0 ? p.candidates[0].plan : NULL;
}
