/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/top.h"

#include "base/mem.h"
#include "base/sort.h"
#include "plan/prediction.h"
#include "planner/best.h"
#include "planner/ordered.h"
#include "planner/search/candidate.h"
#include "planner/search/recompute.h"

#include <stdlib.h>

void pd_top_release(struct pd_top *top)
{
	for (int i = 0; i < top->count; i++)
		free(top->rows[i].stages);
	free(top->rows);
	top->rows = NULL;
	top->count = 0;
}

static struct pd_top_row row_of(const struct pd_best_entry *entry)
{
	const struct pd_plan *plan = entry->plan;
	const struct pd_profile *profile = entry->variant->field->profile;
	bool equal = pd_ordered_is_equal(plan);
	int width = plan->stages[0].replicas;

	return (struct pd_top_row){
		.samples_per_s = (double)profile->batch_size * 1e9 / (double)pd_max(entry->time_ns, 1),
		.period_ns = entry->time_ns, .batch_size = profile->batch_size, .microbatches = plan->microbatches,
		.period_from = plan->predicted.period_from, .searched = entry->from == PD_BEST_SEARCHED,
		.group = profile->group, .degree_asked = entry->variant->field->degree >= 0, .schedule = plan->schedule, .weights = plan->weights,
		.pipelines = equal ? width : 0, .positions = equal ? plan->rank_count / width : plan->stage_count,
		.virtual_stages = equal ? plan->stage_count * width / plan->rank_count : 1,
		.recomputed = pd_recompute_count(plan), .devices = plan->rank_count * entry->variant->field->devices,
		.memory_bytes = pd_degrees_each(&profile->group, pd_candidate_fullest(plan, NULL)),
		.stages = pd_plan_stages_text(plan),
	};
}

static bool is_beaten(const struct pd_top_row *x, const struct pd_top_row *by)
{
	return by->samples_per_s >= x->samples_per_s && by->devices <= x->devices && by->memory_bytes <= x->memory_bytes &&
	       (by->samples_per_s > x->samples_per_s || by->devices < x->devices || by->memory_bytes < x->memory_bytes);
}

static int by_devices(const void *a, const void *b)
{
	const struct pd_top_row *x = a, *y = b;

	PD_ORDER(x->devices, y->devices);
	PD_ORDER(y->samples_per_s, x->samples_per_s);
	return 0;
}

void pd_top_fill(struct pd_top *top, const struct pd_best *best)
{
	int kept = 0;

	top->rows = pd_calloc((size_t)best->count, sizeof(*top->rows));
	for (int i = 0; i < best->count; i++)
		top->rows[i] = row_of(&best->entries[i]);
	for (int i = 0; i < best->count; i++) {
		top->rows[i].pareto = true;
		for (int k = 0; k < best->count; k++)
			top->rows[i].pareto &= !is_beaten(&top->rows[i], &top->rows[k]);
	}
	for (int i = 0; i < best->count; i++) {
		struct pd_top_row row = top->rows[i];

		if (kept < top->most && (row.pareto || !top->pareto))
			top->rows[kept++] = row;
		else
			free(row.stages);
	}
	top->count = kept;
	if (top->pareto)
		qsort(top->rows, (size_t)kept, sizeof(*top->rows), by_devices);
}
