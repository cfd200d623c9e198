/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/scout.h"

#include "base/mem.h"
#include "planner/search/candidate.h"
#include "planner/search/gain.h"
#include "planner/search/placement.h"
#include "planner/search/recompute.h"
#include "planner/search/simulated.h"
#include "planner/search/warmup.h"
#include "predict/judge.h"
#include "predict/map.h"
#include "predict/predict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SHAPES 24               /* that the formula finds best, from which estimated ones come */
#define ESTIMATED 6             /* that fit */
#define PLACED 2                /* of these: tried at every place, with the best warm-ups */
#define OF_POSITIONS 2          /* shapes of one number of positions */
#define WIDTHS 6                /* numbers of replicas that are tried of one number of positions */
#define REPLAYED 10000          /* operations of a replay that judges one at once */
#define TOO_LARGE 8             /* how much slower a shape counts that hardly fits */
#define LEFT 64 /* part of a batch that may be left out, so that replicas divide the rest */

/* Sums over the layers before each, and what a stage takes of memory, about. */
struct totals {
	int64_t *forward_ns, *passes_ns, *weight_ns, *parameter_bytes, *stash_bytes;
	double still_bytes;             /* for each byte of parameters, whatever is in flight */
	double slot_bytes;              /* for each byte that a microbatch keeps */
	double alone_bytes;             /* the same without parameters or microbatches */
};

static void totals_init(struct totals *totals, const struct pd_variant *variant)
{
	const struct pd_profile *profile = variant->field->profile;
	size_t n = (size_t)profile->layer_count + 1;
	struct pd_memory none, one;

	totals->forward_ns = pd_calloc(5 * n, sizeof(int64_t));
	totals->passes_ns = totals->forward_ns + n;
	totals->weight_ns = totals->passes_ns + n;
	totals->parameter_bytes = totals->weight_ns + n;
	totals->stash_bytes = totals->parameter_bytes + n;
	for (size_t l = 0; l + 1 < n; l++) {
		const struct pd_profile_layer *layer = &profile->layers[l];

		totals->forward_ns[l + 1] = totals->forward_ns[l] + layer->forward_ns;
		totals->passes_ns[l + 1] = totals->passes_ns[l] + layer->forward_ns + layer->backward_ns;
		totals->weight_ns[l + 1] = totals->weight_ns[l] + pd_profile_weight_ns(layer);
		totals->parameter_bytes[l + 1] = pd_plus(totals->parameter_bytes[l], layer->parameter_bytes);
		totals->stash_bytes[l + 1] = pd_plus(totals->stash_bytes[l], layer->stash_bytes);
	}
	pd_memory_of(profile, 0, profile->layer_count, 1, 0, 0, 0, &none);
	pd_memory_of(profile, 0, profile->layer_count, 1, 1, 0, 0, &one);
	totals->slot_bytes = (double)(one.stash_bytes - none.stash_bytes) /
			     (double)pd_max(totals->stash_bytes[n - 1], 1);
	totals->still_bytes = (double)(none.weights_bytes + none.gradient_bytes + none.optimizer_bytes) /
			      (double)pd_max(totals->parameter_bytes[n - 1], 1);
	totals->alone_bytes = (double)(none.scratch_bytes + none.transfer_bytes);
}

/* What a position of a shape has. */
struct position {
	double forward_ns, passes_ns, weight_ns, parameter_bytes, stash_bytes;
};

static struct position *positions_of(const struct totals *totals, const struct pd_variant *variant,
				     const struct pd_partition *cut, int count)
{
	struct position *list = pd_calloc((size_t)count, sizeof(*list));
	bool ordered = pd_schedule_has(variant->request.schedule, PD_FACT_ORDERED);

	for (int s = 0, l = 0, end; s < cut->stage_count; l = end, s++) {
		struct position *at = &list[ordered ? pd_order_v(count, s)
					    : pd_schedule_position(variant->request.schedule, count, s)];

		end = l + cut->layers[s];
		at->forward_ns += (double)(totals->forward_ns[end] - totals->forward_ns[l]);
		at->passes_ns += (double)(totals->passes_ns[end] - totals->passes_ns[l]);
		at->weight_ns += (double)(totals->weight_ns[end] - totals->weight_ns[l]);
		at->parameter_bytes += (double)(totals->parameter_bytes[end] - totals->parameter_bytes[l]);
		at->stash_bytes += (double)(totals->stash_bytes[end] - totals->stash_bytes[l]);
	}
	return list;
}

/* Returns how many microbatches' part of a position is in flight at the first one, about. */
static double in_flight(enum pd_schedule_kind kind, const struct pd_pipelines *shape,
			double microbatches)
{
	double p = shape->positions, most = p;

	switch (kind) {
	case PD_SCHEDULE_NONE: return 1;
	case PD_SCHEDULE_GPIPE: return microbatches;
	case PD_SCHEDULE_INTERLEAVED: most = p + (p - 1) / shape->chunks; break;
	case PD_SCHEDULE_ZB_H2: most = 2 * p - 1; break;
	case PD_SCHEDULE_V_HALF: most = p / 2 + 1; break;
	case PD_SCHEDULE_V_MIN: most = p / 3 + 1; break;
	case PD_SCHEDULE_DUALPIPE_V: most = p + 1; break;
	default: break;
	}
	return fmin(most, microbatches);
}

/* Returns how long a pipeline that drains is idle, of positions that take so long. */
static double bubble_ns(enum pd_schedule_kind kind, const struct pd_pipelines *shape, double all_ns,
			double longest_ns, double weight_ns)
{
	double before = shape->positions - 1;

	switch (kind) {
	case PD_SCHEDULE_INTERLEAVED: return before * longest_ns / shape->chunks;
	case PD_SCHEDULE_ZB_H1: return before * fmax(0, longest_ns - 2 * weight_ns);
	case PD_SCHEDULE_ZB_H2: case PD_SCHEDULE_ZB_V: case PD_SCHEDULE_ORDERED: return 0;
	case PD_SCHEDULE_V_HALF: return before * longest_ns / 2;
	case PD_SCHEDULE_V_MIN: return before * longest_ns * 2 / 3;
	case PD_SCHEDULE_DUALPIPE_V: return before * longest_ns / 4;
	default: return all_ns - longest_ns;
	}
}

/*
 * Returns about what a sample takes, times the weight of the devices: m microbatches of a pipeline one behind the other
 * at the longest position, its fill and drain, and the longest sum of gradients.  Positions that do not fit recompute.
 */
static double value_of(const struct pd_variant *variant, const struct pd_map *map,
		       const struct totals *totals, const struct pd_partition *cut,
		       const struct pd_pipelines *shape)
{
	const struct pd_plan_request *request = &variant->request;
	bool groups = pd_updates_in_groups(request->schedule, request->weights) || shape->microbatches > 1;
	double each = groups ? (double)shape->microbatches / shape->replicas : 1,
	       limit = (double)variant->task.limit_bytes;
	double slots = in_flight(request->schedule, shape, groups ? each : INFINITY);
	struct position *list = positions_of(totals, variant, cut, shape->positions);
	double longest_ns = 0, weight_ns = 0, sum_ns = 0, all_ns = 0, ns;
	bool large = false;

	for (int q = 0; q < shape->positions; q++) {
		struct position *at = &list[q];
		struct pd_span span = { 0, shape->replicas };
		double still = totals->alone_bytes + at->parameter_bytes * totals->still_bytes;
		double left = pd_schedule_has(request->schedule, PD_FACT_LEADS) ? fmin(slots, shape->positions - q) : slots;

		if (still + left * at->stash_bytes * totals->slot_bytes > limit) {
			at->passes_ns += at->forward_ns;
			large |= !pd_recompute_free(request) || still > limit;
		}
		if (shape->replicas > 1)
			sum_ns = fmax(sum_ns, (double)pd_map_reduce_ns(map, &span, at->parameter_bytes / shape->replicas));
		all_ns += at->passes_ns;
		if (at->passes_ns > longest_ns) {
			longest_ns = at->passes_ns;
			weight_ns = at->weight_ns;
		}
	}
	free(list);
	if (pd_schedule_has(request->schedule, PD_FACT_ALONE))
		longest_ns = all_ns;
	ns = each * longest_ns + sum_ns;
	if (pd_weights_have(request->weights, PD_WEIGHTS_DRAINS))
		ns += bubble_ns(request->schedule, shape, all_ns, longest_ns, weight_ns);
	return ns / (each * shape->replicas) *
	       pd_gain_weight(request->min_gain, shape->positions * shape->replicas) *
	       (large ? TOO_LARGE : 1) / (double)variant->field->profile->batch_size;
}

/* Enters a shape among the best, of which few have one number of positions; returns how many there are. */
static int add_shape(struct pd_pipelines *list, int count, int most, const struct pd_pipelines *new)
{
	int same = 0, at = count;

	for (int i = 0; i < count; i++)
		if (list[i].positions == new->positions && list[i].chunks == new->chunks &&
		    ++same == OF_POSITIONS) {
			if (list[i].value <= new->value)
				return count;
			memmove(&list[i], &list[i + 1], (size_t)(--count - i) * sizeof(*list));
		}
	if (count == most && list[most - 1].value <= new->value)
		return count;
	if (count == most)
		count--;
	for (at = count; at > 0 && list[at - 1].value > new->value; at--)
		list[at] = list[at - 1];
	list[at] = *new;
	return count + 1;
}

/* Sets the microbatches of an update of so many replicas; returns false if there is no such update. */
static bool set_microbatches(const struct pd_variant *variant, struct pd_pipelines *shape)
{
	const struct pd_plan_request *request = &variant->request;
	int64_t all = request->batch_microbatches;

	if (all > 0) {
		shape->microbatches = all / shape->replicas * shape->replicas;
		return shape->microbatches > 0 &&
		       shape->microbatches >= all - all / LEFT - (all < LEFT ? shape->replicas : 0);
	}
	shape->microbatches = request->microbatches ? request->microbatches
		: pd_updates_in_groups(request->schedule, request->weights) ? (int64_t)shape->positions * shape->replicas : 1;
	return request->microbatches == 0 || shape->microbatches == 1 ||
	       shape->microbatches % shape->replicas == 0;
}

/* Tells whether the variant may have so many virtual stages on a rank. */
static bool may_have(const struct pd_variant *variant, int chunks)
{
	const struct pd_plan_request *request = &variant->request;

	if (!pd_schedule_has(request->schedule, PD_FACT_SHARES))
		return chunks == 1;
	if (pd_schedule_has(request->schedule, PD_FACT_ORDERED))
		return chunks == request->chunks || (request->chunks == 0 && chunks <= PD_PLANNER_CHUNKS);
	return request->any_chunks ? chunks >= PD_PLANNER_CHUNKS && chunks <= PD_PLANNER_CHUNKS_MOST
				   : chunks == request->chunks;
}

int pd_scout_shapes(const struct pd_variant *variant, struct pd_pipelines *list, int most)
{
	const struct pd_cuts *cuts = pd_variant_cuts(variant);
	const struct pd_task *task = &variant->task;
	int devices = (int)task->topology->devices, count = 0;
	int64_t round = pd_profile_lane_round(task->profile);
	int most_chunks = (int)pd_max(variant->request.chunks, PD_PLANNER_CHUNKS_MOST);
	struct totals totals;
	struct pd_map map;

	totals_init(&totals, variant);
	pd_map_init(&map, task->topology, devices, 0);
	for (int p = 1; p <= devices && p <= cuts->most; p++)
		for (int chunks = 1; (int64_t)chunks * p <= cuts->most && chunks <= most_chunks; chunks++) {
			int tried = 0, widest = task->straight ? 1 : devices / p;

			if (!may_have(variant, chunks) || !cuts->even[p * chunks - 1])
				continue;
			for (int w = widest; w >= 1 && tried < WIDTHS; w = tried < WIDTHS / 2 ? w - 1 : w / 2) {
				struct pd_pipelines shape = { .positions = p, .replicas = w, .chunks = chunks };

				if (p * w < variant->least_ranks ||
				    (round > 0 && round % w != 0) ||
				    !set_microbatches(variant, &shape))
					continue;
				shape.value = value_of(variant, &map, &totals, cuts->even[p * chunks - 1], &shape);
				count = add_shape(list, count, most, &shape);
				tried++;
			}
		}
	pd_map_release(&map);
	free(totals.forward_ns);
	return count;
}

struct pd_partition *pd_scout_partition(const struct pd_variant *variant,
					const struct pd_pipelines *shape)
{
	const struct pd_partition *even = pd_variant_cuts(variant)
						  ->even[shape->positions * shape->chunks - 1];
	struct pd_partition *partition = NULL;

	if (shape->chunks == PD_PLANNER_CHUNKS &&
	    (pd_schedule_has(variant->request.schedule, PD_FACT_V | PD_FACT_ORDERED)))
		partition = pd_v_partition(&variant->task.costs, shape->positions);
	if (!partition && even) {
		partition = pd_partition_new(even->stage_count);
		memcpy(partition->layers, even->layers, (size_t)even->stage_count * sizeof(int));
	}
	for (int s = 0; partition && s < partition->stage_count; s++)
		partition->replicas[s] = shape->replicas;
	return partition;
}

/* An estimated shape. */
struct look {
	struct pd_pipelines shape;
	struct pd_plan *plan;
	int64_t time_ns;
	double value;
};

/* Fits a plan at its place into the memory, and sets what is expected of it; returns false if it does not fit. */
static bool fit_plan(const struct pd_task *task, struct pd_plan *plan, bool choose,
		     int64_t *time_ns_p)
{
	const struct pd_plan_request *request = task->request;
	struct pd_warmup_limits limits = { .request = request, .limit_bytes = task->limit_bytes,
					   .effort = request->effort };
	struct pd_expected expected;
	int64_t work = 0;
	struct pd_error err;
	bool fits;

	if (!pd_schedule_has(plan->schedule, PD_FACT_LEADS)) {
		fits = pd_recompute_weigh(plan, request, task->limit_bytes) &&
		       pd_candidate_keeps(plan, task->limit_bytes);
	} else if (choose && !request->equal) {
		fits = pd_warmup_choose(plan, &limits, &expected, &work);
	} else {
		fits = pd_warmup_fit(plan, &limits);
		limits.recompute = !fits && pd_recompute_free(request);
		fits |= limits.recompute && pd_warmup_fit(plan, &limits);
	}
	if (!fits || pd_judge_expect(plan, false, &expected, &err) < 0 || expected.estimate_ns <= 0)
		return false;
	pd_effort_spend(request->effort, expected.steps);
	*time_ns_p = expected.estimate_ns;
	return true;
}

/* Keeps the faster plan at one shape. */
static void keep_faster(struct look *look, struct pd_plan *plan, int64_t time_ns)
{
	if (look->plan && look->time_ns <= time_ns) {
		pd_candidate_drop(plan);
		return;
	}
	pd_candidate_drop(look->plan);
	look->plan = plan;
	look->time_ns = time_ns;
}

/* Makes a plan of a shape; returns false where it does not fit. */
static bool look_once(const struct pd_variant *variant, struct look *look)
{
	const struct pd_pipelines *shape = &look->shape;
	struct pd_plan_request with = variant->request;
	struct pd_task task = variant->task;
	struct pd_partition *partition = pd_scout_partition(variant, shape);
	struct pd_plan *plan;
	struct pd_error err;

	if (!partition)
		return false;
	with.chunks = pd_schedule_has(with.schedule, PD_FACT_SHARES) ? shape->chunks : 0;
	with.microbatches = with.batch_microbatches || with.microbatches ? shape->microbatches : 0;
	task.request = &with;
	plan = pd_candidate_plan(&task, partition, &err);
	pd_partition_free(partition);
	if (!plan)
		return false;
	if (!fit_plan(&task, plan, false, &look->time_ns)) {
		pd_candidate_drop(plan);
		return false;
	}
	look->plan = plan;
	look->value = pd_best_value(variant, plan, look->time_ns);
	return true;
}

/* Tries a plan's other places, and more warm-ups where its schedule has some. */
static void look_again(const struct pd_variant *variant, struct look *look)
{
	struct pd_plan *base = pd_candidate_copy(look->plan);
	struct pd_placements seen = { 0 };

	pd_placements_add(&seen, base);
	for (int n = 0; n < PD_PLACEMENTS; n++) {
		struct pd_plan *plan;
		int64_t time_ns;

		if (n > 0 && (!pd_placement_set(base, n) || !pd_placements_add(&seen, base)))
			continue;
		if (n == 0 && !pd_schedule_has(base->schedule, PD_FACT_LEADS))
			continue;
		plan = pd_candidate_copy(base);
		pd_predict_times(plan);
		if (fit_plan(&variant->task, plan, true, &time_ns))
			keep_faster(look, plan, time_ns);
		else
			pd_candidate_drop(plan);
	}
	pd_placements_release(&seen);
	pd_candidate_drop(base);
	look->value = pd_best_value(variant, look->plan, look->time_ns);
}

static int by_value(const void *a, const void *b)
{
	const struct look *x = a, *y = b;

	if (x->value != y->value)
		return x->value < y->value ? -1 : 1;
	return x->shape.positions - y->shape.positions;
}

/* Offers an estimated plan; a replay judges it where that takes little. */
static void offer_look(struct pd_best *best, struct pd_variant *variant, struct pd_plan *plan,
		       int64_t time_ns)
{
	int64_t work = 0;
	struct pd_error err;

	plan->predicted.period_from = PD_PERIOD_ESTIMATE;
	if (pd_judge_work(plan) <= REPLAYED &&
	    pd_judge_rival(plan, REPLAYED, PD_NEVER, &time_ns, &plan->predicted.period_from, &work,
			   &err) < 0) {
		pd_candidate_drop(plan);
		return;
	}
	pd_best_offer(best, variant, plan, time_ns, PD_BEST_LOOKED);
}

/* Offers a plan of unequal stages, found by the line search alone. */
static void look_at_line(struct pd_best *best, struct pd_variant *variant)
{
	struct pd_plan_request with = variant->request;
	struct pd_task task = variant->task;
	struct pd_plan *plan;
	int64_t time_ns;

	if (with.batch_microbatches)
		with.microbatches = with.batch_microbatches;
	task.request = &with;
	plan = pd_schedule_has(with.schedule, PD_FACT_SHARES) || pd_task_is_large(&task)
		? NULL : pd_simulated_glance(&task, &time_ns);
	if (plan)
		offer_look(best, variant, plan, time_ns);
}

void pd_scout(struct pd_best *best, struct pd_variant *variant)
{
	enum pd_schedule_kind schedule = variant->request.schedule;
	struct pd_pipelines shapes[SHAPES];
	struct look looks[ESTIMATED] = { 0 };
	int count = 0, found;

	best->looked++;
	if (!pd_schedule_goes_with(schedule, variant->request.weights) ||
	    pd_topology_mixed(variant->task.topology) ||
	    pd_schedule_has(schedule, PD_FACT_ORDERED | PD_FACT_STRAIGHT))
		return;
	found = pd_scout_shapes(variant, shapes, SHAPES);
	for (int i = 0; i < found && count < ESTIMATED; i++) {
		looks[count] = (struct look){ .shape = shapes[i] };
		count += look_once(variant, &looks[count]);
		best->estimated++;
	}
	qsort(looks, (size_t)count, sizeof(*looks), by_value);
	for (int i = 0; i < count; i++) {
		if (i < PLACED)
			look_again(variant, &looks[i]);
	offer_look(best, variant, looks[i].plan, looks[i].time_ns);
	}
	look_at_line(best, variant);
}
