/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recomputation as a choice.
 *
 * A stage that recomputes keeps, of all minibatches in flight but one, only what came in, or of all
 * of them what its blocks begin with; it pays with a forward for each.  It is never faster than the
 * same stage without, so of plans with the same stages and warm-ups the best is the one in which
 * those recompute that would not fit otherwise, and no others.  What is left to choose is how many
 * are in flight: fewer without recomputation, or more with it (warmup.c).
 *
 * Blocks are added one by one until the stage fits; if all are not enough, it is computed again as a
 * whole, where that takes less.  Where layers may be chosen, those are first that take the least time
 * for each byte that they need not keep.
 */
#include "planner/search/recompute.h"

#include "base/mem.h"
#include "base/opt.h"
#include "base/sort.h"
#include "memory/again.h"
#include "planner/search/candidate.h"
#include "predict/predict.h"

#include <stdlib.h>
#include <string.h>

const char *const pd_recompute_kind_name[] = {
#define RECOMPUTE_KIND(symbol, name, what) name,
#include "planner/search/recompute_kind.def"
#undef RECOMPUTE_KIND
	NULL
};

bool pd_recompute_free(const struct pd_plan_request *request)
{
	return (request->recompute == PD_RECOMPUTE_AUTO || request->recompute == PD_RECOMPUTE_SELECTIVE) &&
	       !request->recomputed && !request->segments_asked &&
	       request->cost == PD_COST_SIMULATED && !pd_weights_have(request->weights, PD_WEIGHTS_REREADS);
}

int pd_recompute_count(const struct pd_plan *plan)
{
	int count = 0;

	for (int s = 0; s < plan->stage_count; s++)
		count += plan->stages[s].recompute;
	return count;
}

void pd_recompute_blocks(const struct pd_task *task, double *part_p, int64_t *most_bytes_p)
{
	const struct pd_plan_request *request = task->request;
	const struct pd_profile *profile = task->profile;
	int64_t all = 0, begin = 0, block = 0;

	*part_p = 1;
	*most_bytes_p = 0;
	if (!request->segments || !pd_recompute_free(request))
		return;
	for (int l = 0; l < profile->layer_count; l++) {
		int number = request->segments[pd_profile_number(profile, l)];
		bool ends = l + 1 == profile->layer_count ||
			    request->segments[pd_profile_number(profile, l + 1)] != number;

		if (number < 0)
			continue;
		block = pd_plus(block, profile->layers[l].stash_bytes);
		if (!ends)
			continue;
		all = pd_plus(all, block);
		begin = pd_plus(begin, profile->layers[l].activation_bytes);
		*most_bytes_p = pd_max(*most_bytes_p, block);
		block = 0;
	}
	if (begin < all)
		*part_p = (double)begin / (double)all;
}

static void clear(struct pd_plan *plan)
{
	for (int s = 0; s < plan->stage_count; s++)
		plan->stages[s].recompute = false;
}

/* Returns what a layer of a plan belongs to, of what may be computed again by itself; -1: nothing. */
static int source_of(const struct pd_plan *plan, const int *segments, int layer)
{
	return segments ? segments[pd_profile_number(plan->profile, layer)] : 0;
}

/*
 * Numbers the segments of a stage, of the layers that are marked in plan->segment by a number from 0.
 * Layers that overwrite others go with them.  Backward in two parts keeps all to the second.
 */
static void number_segments(struct pd_plan *plan, const struct pd_stage *stage)
{
	bool one = pd_plan_splits(plan);
	int number = -1, last = -1;

	for (int l = stage->first_layer; l < stage->first_layer + stage->layer_count; l++) {
		int over = pd_profile_overwrites(plan->profile, l), mark = plan->segment[l];

		if (over >= stage->first_layer && mark < 0 && plan->segment[over] >= 0) {
			plan->segment[l] = plan->segment[over];
			continue;
		}
		if (mark < 0)
			continue;
		number += mark != last;
		last = mark;
		plan->segment[l] = one ? 0 : number;
	}
}

/* Lets a stage compute all again that may be, or all of its layers at once. */
static void mark(struct pd_plan *plan, const struct pd_stage *stage, const int *segments)
{
	for (int l = stage->first_layer; l < stage->first_layer + stage->layer_count; l++)
		plan->segment[l] = source_of(plan, segments, l);
	number_segments(plan, stage);
}

/* Returns the bytes of microbatches that a stage recomputes for, as it does, and what it sends of them. */
static int64_t stage_bytes(struct pd_plan *plan, const struct pd_schedule *schedule, int s)
{
	int in_flight = pd_schedule_in_flight(schedule, s, false);
	int64_t slots = pd_schedule_slots(schedule, s, false), out = 0;
	struct pd_segments segments;

	free(pd_plan_segments(plan, plan->profile, s, false, &segments));
	if (s + 1 < plan->stage_count && in_flight > slots)
		out = plan->profile->layers[plan->stages[s + 1].first_layer - 1].activation_bytes;
	return pd_plus(pd_times(in_flight, (int64_t)segments.kept_bytes),
		       pd_times(slots, pd_plus((int64_t)segments.slot_bytes, out)));
}

/* Returns those of a stage that does not. */
static int64_t whole_bytes(const struct pd_plan *plan, const struct pd_schedule *schedule, int s)
{
	const struct pd_stage *stage = &plan->stages[s];
	int64_t bytes = 0;

	for (int l = stage->first_layer; l < stage->first_layer + stage->layer_count; l++)
		bytes = pd_plus(bytes, plan->profile->layers[l].stash_bytes);
	return pd_times(pd_schedule_in_flight(schedule, s, false), bytes);
}

/*
 * Lets a stage recompute by segments; also as a whole, where that takes less.  Returns whether it
 * saves memory; else it does not recompute.
 */
static bool set_stage(struct pd_plan *plan, const struct pd_schedule *schedule, int s,
		      const int *segments, bool or_whole)
{
	struct pd_stage *stage = &plan->stages[s];
	int64_t once = whole_bytes(plan, schedule, s), by_segment = INT64_MAX, whole;

	stage->recompute = true;
	whole = or_whole && pd_schedule_in_flight(schedule, s, false) > pd_schedule_slots(schedule, s, false)
		? 0 : INT64_MAX;
	if (plan->segment && whole == 0) {
		mark(plan, stage, NULL);
		whole = stage_bytes(plan, schedule, s);
	}
	if (plan->segment && segments) {
		mark(plan, stage, segments);
		if (pd_plan_rerun_count(plan, s) > 0)
			by_segment = stage_bytes(plan, schedule, s);
		if (whole <= by_segment)
			mark(plan, stage, NULL);
	}
	stage->recompute = pd_min(whole, by_segment) < once;
	return stage->recompute;
}

/* Lets all stages recompute where that saves memory. */
static bool set_all(struct pd_plan *plan, const int *segments, bool or_whole, struct pd_error *err)
{
	struct pd_schedule *schedule = pd_schedule_new(plan, err);

	if (!schedule)
		return false;
	for (int s = 0; s < plan->stage_count; s++)
		set_stage(plan, schedule, s, segments, or_whole);
	pd_schedule_free(schedule);
	return true;
}

static bool set_list(struct pd_plan *plan, const char *list, const int *segments,
		     struct pd_error *err)
{
	struct pd_schedule *schedule = pd_schedule_new(plan, err);
	char *text = pd_strdup(list), *next;
	bool good = schedule != NULL;

	for (char *one = text; one && good; one = next) {
		int64_t s;

		next = strchr(one, ',');
		if (next)
			*next++ = '\0';
		good = pd_parse_count(one, 0, plan->stage_count - 1, &s, err) == 0;
		if (good && !set_stage(plan, schedule, (int)s, segments, true))
			plan->stages[s].recompute = !plan->segment;
		else if (!good)
			pd_error_prefix(err, "--recompute: a stage");
	}
	free(text);
	pd_schedule_free(schedule);
	return good;
}

bool pd_recompute_asked(struct pd_plan *plan, const struct pd_plan_request *request,
			struct pd_error *err)
{
	if (request->segments_asked)
		return set_all(plan, request->segments, false, err);
	if (request->recomputed)
		return set_list(plan, request->recomputed, request->segments, err);
	return request->recompute != PD_RECOMPUTE_ALL || set_all(plan, request->segments, true, err);
}

/* A layer, with those that overwrite its output. */
struct group {
	int first_layer;
	int64_t forward_ns, stash_bytes;
};

static int by_cost(const void *a, const void *b)
{
	const struct group *x = a, *y = b;
	double x_cost = (double)x->forward_ns * (double)y->stash_bytes;
	double y_cost = (double)y->forward_ns * (double)x->stash_bytes;

	PD_ORDER(x_cost, y_cost);
	PD_ORDER(x->first_layer, y->first_layer);
	return 0;
}

/* Sets the first layer of each layer's group, counted within the stage. */
static int *groups_of(const struct pd_plan *plan, const struct pd_stage *stage)
{
	int *group = pd_calloc((size_t)stage->layer_count, sizeof(*group));

	for (int l = 0; l < stage->layer_count; l++) {
		int over = pd_profile_overwrites(plan->profile, stage->first_layer + l) - stage->first_layer;

		group[l] = over >= 0 ? group[over] : l;
	}
	return group;
}

/*
 * Lets more layers of a stage recompute, the cheapest first, until so many bytes are saved; so many
 * microbatches need not keep them.  Returns whether there were any.
 */
static bool rerun_more(struct pd_plan *plan, const struct pd_stage *stage, const int *blocks,
		       int64_t bytes, int in_flight)
{
	size_t layers = (size_t)stage->layer_count;
	struct group *groups = pd_calloc(layers, sizeof(*groups));
	int *group = groups_of(plan, stage), *segment = plan->segment + stage->first_layer, run = 0;
	bool *chosen = pd_calloc(layers, sizeof(*chosen)), any = false;

	for (size_t l = 0; l < layers; l++) {
		const struct pd_profile_layer *layer = &plan->profile->layers[stage->first_layer + (int)l];
		struct group *one = &groups[group[l]];

		one->first_layer = group[l];
		one->forward_ns += layer->forward_ns;
		one->stash_bytes += layer->stash_bytes;
	}
	qsort(groups, layers, sizeof(*groups), by_cost);
	for (size_t g = 0; g < layers && bytes > 0; g++)
		if (groups[g].stash_bytes > 0 && segment[groups[g].first_layer] < 0) {
			chosen[groups[g].first_layer] = any = true;
			bytes -= pd_times(in_flight, groups[g].stash_bytes);
		}
	for (size_t l = 0; l < layers; l++)
		if (chosen[group[l]])
			segment[l] = 0;
	for (size_t l = 0, before = -1; l < layers; before = l++) {     /* runs within blocks */
		int at = stage->first_layer + (int)l;

		run += l > 0 && (segment[before] < 0 || (blocks && source_of(plan, blocks, at) !=
								   source_of(plan, blocks, at - 1)));
		segment[l] = segment[l] >= 0 ? run : -1;
	}
	number_segments(plan, stage);
	free(chosen);
	free(group);
	free(groups);
	return any;
}

/* Returns what a block of a stage keeps, and sets its end; the last layer's output stays. */
static int64_t block_bytes(const struct pd_plan *plan, const int *blocks, int first, int end,
			   int *end_p)
{
	const struct pd_profile_layer *layers = plan->profile->layers;
	int l = first, block = source_of(plan, blocks, first);
	int64_t bytes = 0;

	for (; l < end && source_of(plan, blocks, l) == block; l++)
		bytes = pd_plus(bytes, layers[l].stash_bytes);
	*end_p = l;
	return bytes;
}

/*
 * Lets more blocks of a stage recompute, the first ones first, until about so many bytes are saved.
 * Returns whether there were any.
 */
static bool block_more(struct pd_plan *plan, const struct pd_stage *stage, const int *blocks,
		       int64_t bytes, int in_flight, int slots)
{
	int end = stage->first_layer + stage->layer_count, *segment = plan->segment;
	bool first = true, any = false;

	for (int l = stage->first_layer; l < end; l++)
		first &= segment[l] < 0;
	for (int l = stage->first_layer, next; l < end; l = next) {
		int block = source_of(plan, blocks, l);
		int64_t kept = block_bytes(plan, blocks, l, end, &next), slot = first ? pd_times(slots, kept) : 0;
		bool chosen = block >= 0 && (segment[l] >= 0 || bytes > 0);

		if (chosen && segment[l] < 0) {
			bytes += slot - pd_times(in_flight, kept - plan->profile->layers[next - 1].activation_bytes);
			any = true;
			first = false;
		}
		for (int i = l; i < next; i++)
			segment[i] = chosen ? block : -1;
	}
	number_segments(plan, stage);
	return any;
}

/* Lets a stage that recomputes by blocks do so as a whole, if that takes less. */
static bool whole_instead(struct pd_plan *plan, const struct pd_schedule *schedule, int s)
{
	const struct pd_stage *stage = &plan->stages[s];
	size_t bytes = (size_t)stage->layer_count * sizeof(int);
	int *before = pd_memdup(plan->segment + stage->first_layer, bytes);
	int64_t by_block = stage_bytes(plan, schedule, s);
	bool less;

	mark(plan, stage, NULL);
	less = stage_bytes(plan, schedule, s) < by_block;
	if (!less)
		memcpy(plan->segment + stage->first_layer, before, bytes);
	free(before);
	return less;
}

/* Lets a stage that recomputes, or begins to, do so with more of its layers; returns whether that saves anything. */
static bool segments_more(struct pd_plan *plan, const struct pd_schedule *schedule, int s,
			  int64_t bytes, const struct pd_plan_request *request)
{
	struct pd_stage *stage = &plan->stages[s];
	int in_flight = pd_schedule_in_flight(schedule, s, false),
	    slots = pd_schedule_slots(schedule, s, false);
	bool selective = request->recompute == PD_RECOMPUTE_SELECTIVE, more;

	do {
		more = selective ? rerun_more(plan, stage, request->segments, bytes, in_flight)
				 : block_more(plan, stage, request->segments, bytes, in_flight, slots);
		if (more && stage_bytes(plan, schedule, s) < whole_bytes(plan, schedule, s))
			return true;
		bytes = INT64_MAX / 2;          /* what is gained by little may be lost by the slot */
	} while (more);
	return !selective && in_flight > slots && pd_plan_reruns_some(plan, s) &&
	       whole_instead(plan, schedule, s) &&
	       stage_bytes(plan, schedule, s) < whole_bytes(plan, schedule, s);
}

/* Lets a stage that does not fit recompute, or more of it; returns whether that saves anything. */
static bool stage_more(struct pd_plan *plan, const struct pd_schedule *schedule, int s,
		       int64_t limit_bytes, const struct pd_plan_request *request)
{
	struct pd_stage *stage = &plan->stages[s];
	bool before = stage->recompute,
	     all = !plan->segment ||
		   (request->recompute != PD_RECOMPUTE_SELECTIVE && pd_plan_splits(plan));
	bool more;

	if (before && (all || !pd_plan_reruns_some(plan, s)))
		return false;
	stage->recompute = true;
	for (int l = 0; l < stage->layer_count && plan->segment && !before; l++)
		plan->segment[stage->first_layer + l] = all ? 0 : -1;
	more = all ? pd_schedule_in_flight(schedule, s, false) > pd_schedule_slots(schedule, s, false)
		   : segments_more(plan, schedule, s, stage->memory_bytes - limit_bytes, request);
	stage->recompute = more || before;
	return more;
}

/* Lets one more stage recompute on each rank above the limit; returns whether there was any. */
static bool recompute_more(struct pd_plan *plan, const struct pd_schedule *schedule,
			   int64_t limit_bytes, const struct pd_plan_request *request)
{
	bool *done = pd_calloc((size_t)plan->rank_count, sizeof(*done)), any = false;

	for (int s = 0; s < plan->stage_count; s++) {
		struct pd_stage *stage = &plan->stages[s];

		int64_t limit = pd_stage_limit(plan, s, limit_bytes);

		if (stage->memory_bytes > limit && !done[stage->ranks[0]] &&
		    stage_more(plan, schedule, s, limit, request))
			any = done[stage->ranks[0]] = true;
	}
	free(done);
	return any;
}

enum pd_fit pd_recompute_step(struct pd_plan *plan, const struct pd_plan_request *request,
			      int64_t limit_bytes, bool more, struct pd_schedule **schedule_p)
{
	struct pd_error err;
	struct pd_schedule *schedule = *schedule_p = pd_schedule_again(*schedule_p, plan, &err);
	enum pd_fit how = PD_TOO_LARGE;

	if (!schedule)
		return PD_REFUSED;
	pd_predict_memory(plan, schedule);
	if (pd_candidate_keeps(plan, limit_bytes))
		how = PD_FITS;
	else if (more && recompute_more(plan, schedule, limit_bytes, request))
		how = PD_CHANGED;
	return how;
}

bool pd_recompute_fit(struct pd_plan *plan, const struct pd_plan_request *request,
		      int64_t limit_bytes)
{
	struct pd_schedule *schedule = NULL;
	enum pd_fit how;

	clear(plan);
	do {
		how = pd_recompute_step(plan, request, limit_bytes, true, &schedule);
	} while (how == PD_CHANGED);
	pd_schedule_free(schedule);
	return how == PD_FITS;
}

bool pd_recompute_weigh(struct pd_plan *plan, const struct pd_plan_request *request,
			int64_t limit_bytes)
{
	struct pd_plan_request with = *request;
	struct pd_error err;

	with.weights = plan->weights;
	with.recomputed = NULL;
	if (pd_recompute_free(&with) && pd_recompute_fit(plan, &with, limit_bytes))
		return true;
	clear(plan);
	return pd_recompute_asked(plan, &with, &err) && pd_candidate_weigh(plan, &err);
}
