/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/best.h"

#include "base/mem.h"
#include "planner/search/candidate.h"
#include "planner/search/gain.h"
#include "planner/search/recompute.h"
#include "predict/judge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SETTLE_WORK 250000     /* operations that are replayed to settle what a plan takes */

void pd_best_init(struct pd_best *best, int most)
{
	*best = (struct pd_best){ .most = most, .why.status = PD_EXIT_YES, .closest_bytes = INT64_MAX };
	best->entries = pd_calloc((size_t)most + 1, sizeof(*best->entries));
}

void pd_best_release(struct pd_best *best)
{
	for (int i = 0; i < best->count; i++)
		pd_candidate_drop(best->entries[i].plan);
	free(best->entries);
}

double pd_best_value(const struct pd_variant *variant, const struct pd_plan *plan, int64_t time_ns)
{
	return pd_gain_value(variant->request.min_gain, time_ns, plan->rank_count,
			     variant->field->profile->batch_size);
}

double pd_best_least(const struct pd_best *best)
{
	return best->count > 0 ? best->entries[0].value : INFINITY;
}

static bool entry_beats(const struct pd_best_entry *x, const struct pd_best_entry *y)
{
	if (x->value != y->value)
		return x->value < y->value;
	if (x->variant->named != y->variant->named)
		return x->variant->named;
	return pd_candidate_compare(x->plan, y->plan) < 0;
}

/* Tells whether two are of one shape, of which a list has the better. */
static bool is_same_shape(const struct pd_best_entry *x, const struct pd_best_entry *y)
{
	const struct pd_plan *a = x->plan, *b = y->plan;

	return x->variant->field == y->variant->field && a->schedule == b->schedule && a->weights == b->weights &&
	       a->rank_count == b->rank_count && a->stage_count == b->stage_count &&
	       a->microbatches == b->microbatches && (pd_recompute_count(a) > 0) == (pd_recompute_count(b) > 0);
}

static void entry_remove(struct pd_best *best, int at)
{
	pd_candidate_drop(best->entries[at].plan);
	best->count--;
	memmove(&best->entries[at], &best->entries[at + 1], (size_t)(best->count - at) * sizeof(*best->entries));
}

/* Notes what is told of a variant and its field. */
static void note_plan(const struct pd_best_entry *new)
{
	struct pd_variant *variant = new->variant;
	struct pd_field *field = variant->field;
	const struct pd_plan *plan = new->plan;
	struct pd_schedule_tried *tried = &field->tried[plan->schedule][plan->weights];
	double samples = (double)field->profile->batch_size * 1e9 / (double)pd_max(new->time_ns, 1);
	int width = plan->stages[0].replicas;

	if (tried->period_ns == 0 || new->time_ns < tried->period_ns)
		*tried = (struct pd_schedule_tried){ new->time_ns, pd_candidate_fullest(plan, NULL) };
	if (variant->value == 0 || new->value < variant->value) {
		variant->value = new->value;
		variant->microbatches = plan->microbatches;
		variant->chunks = variant->request.chunks == 0 ? 0 : plan->stage_count * width / plan->rank_count;
	}
	if (field->value == 0 || new->value < field->value) {
		field->value = new->value;
		field->samples_per_s = samples;
		field->ranks = plan->rank_count;
		field->microbatches = plan->microbatches;
	}
	if (new->from == PD_BEST_LOOKED && plan->stage_count * width == plan->rank_count * pd_max(variant->chunks, 1) &&
	    samples > field->look_samples_per_s) {
		field->look_samples_per_s = samples;
		field->width = width;
		field->depth = plan->rank_count / width;
		field->recomputed = pd_recompute_count(plan) > 0;
	}
}

/* Puts an entry in its place; returns whether it is the first. */
static bool entry_insert(struct pd_best *best, struct pd_best_entry new)
{
	int at;

	for (at = best->count; at > 0 && entry_beats(&new, &best->entries[at - 1]); at--)
		best->entries[at] = best->entries[at - 1];
	best->entries[at] = new;
	if (++best->count > best->most)
		entry_remove(best, best->most);
	return at == 0;
}

bool pd_best_offer(struct pd_best *best, struct pd_variant *variant, struct pd_plan *plan, int64_t time_ns,
		   enum pd_best_from from)
{
	struct pd_best_entry new = { plan, variant, time_ns, pd_best_value(variant, plan, time_ns), from, false };

	note_plan(&new);
	for (int i = 0; i < best->count; i++)
		if (is_same_shape(&best->entries[i], &new)) {
			if (!entry_beats(&new, &best->entries[i])) {
				pd_candidate_drop(plan);
				return false;
			}
			entry_remove(best, i);
			break;
		}
	return entry_insert(best, new);
}

void pd_best_refuse(struct pd_best *best, struct pd_variant *variant, const struct pd_error *why,
		    int64_t closest_bytes)
{
	if (variant->field->why.status == PD_EXIT_YES || why->status == PD_EXIT_NO)
		variant->field->why = *why;
	if (best->why.status != PD_EXIT_YES &&
	    (why->status != PD_EXIT_NO || (best->why.status == PD_EXIT_NO && closest_bytes >= best->closest_bytes)))
		return;
	best->why = *why;
	best->closest_bytes = closest_bytes;
}

int64_t pd_best_settled_ns(const struct pd_best_entry *entry, enum pd_period_kind *from_p)
{
	int64_t time_ns = entry->time_ns;
	struct pd_error err;

	*from_p = entry->plan->predicted.period_from;
	if (!entry->settled && *from_p == PD_PERIOD_ESTIMATE &&
	    pd_judge_about(entry->plan, SETTLE_WORK, &time_ns, from_p, &err) < 0)
		return PD_COST_MAX;
	return time_ns;
}

void pd_best_settle(struct pd_best *best)
{
	while (best->count > 0 && !best->entries[0].settled) {
		struct pd_best_entry entry = best->entries[0];

		entry.time_ns = pd_best_settled_ns(&entry, &entry.plan->predicted.period_from);
		entry.settled = true;
		entry.value = pd_best_value(entry.variant, entry.plan, entry.time_ns);
		best->count--;
		memmove(&best->entries[0], &best->entries[1], (size_t)best->count * sizeof(*best->entries));
		entry_insert(best, entry);
	}
}
