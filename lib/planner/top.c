/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/top.h"

#include "base/mem.h"
#include "base/sort.h"
#include "plan/prediction.h"
#include "planner/best.h"
#include "planner/ordered.h"
#include "planner/search/candidate.h"
#include "planner/search/recompute.h"
#include "predict/step.h"

#include <stdlib.h>
#include <string.h>

static void release_row(struct pd_top_row *row)
{
	free(row->stages);
	free(row->bottleneck);
}

void pd_top_release(struct pd_top *top)
{
	for (int i = 0; i < top->count; i++)
		release_row(&top->rows[i]);
	free(top->rows);
	top->rows = NULL;
	top->count = 0;
}

struct pd_top_row pd_top_row_of(const struct pd_plan *plan, int64_t time_ns)
{
	const struct pd_profile *profile = plan->profile;
	const struct pd_degrees *group = &profile->group;
	bool equal = pd_ordered_is_equal(plan);
	int width = plan->stages[0].replicas;

	return (struct pd_top_row){
		.samples_per_s = (double)profile->batch_size * 1e9 / (double)pd_max(time_ns, 1),
		.period_ns = time_ns, .batch_size = profile->batch_size,
		.microbatches = plan->microbatches, .period_from = plan->predicted.period_from,
		.group = *group, .schedule = plan->schedule, .weights = plan->weights,
		.pipelines = equal ? width : 0,
		.positions = equal ? plan->rank_count / width : plan->stage_count,
		.virtual_stages = equal ? plan->stage_count * width / plan->rank_count : 1,
		.stage_count = plan->stage_count, .step = pd_step_at(plan, time_ns),
		.optimizer_sharded = profile->memory.sharded, .bubble_percent = -1,
		.recomputed = pd_recompute_count(plan), .devices = pd_plan_devices(plan),
		.memory_bytes = pd_degrees_each(group, pd_candidate_fullest(plan, NULL)),
		.fits = true, .stages = pd_plan_stages_text(plan),
	};
}

static struct pd_top_row row_of(const struct pd_best_entry *entry)
{
	struct pd_top_row row = pd_top_row_of(entry->plan, entry->time_ns);

	row.value = entry->value;
	row.searched = entry->from == PD_BEST_SEARCHED;
	row.degree_asked = entry->variant->field->degree >= 0;
	return row;
}

static char *bottleneck_of(const struct pd_top *top, const struct pd_best_entry *entry)
{
	entry->plan->predicted.period_ns = entry->time_ns;
	return top->bottleneck(entry->plan);
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

		if (kept == top->most || (top->pareto && !row.pareto)) {
			release_row(&row);
			continue;
		}
		row.bottleneck = bottleneck_of(top, &best->entries[i]);
		top->rows[kept++] = row;
	}
	top->count = kept;
	if (top->pareto)
		qsort(top->rows, (size_t)kept, sizeof(*top->rows), by_devices);
}

void pd_top_add(struct pd_top *top, const struct pd_top_row *row)
{
	size_t behind;
	int at = 0;

	top->rows = pd_regrow(top->rows, (size_t)top->count + 1, sizeof(*top->rows));
	while (at < top->count && (top->pareto ? by_devices(&top->rows[at], row) < 0
					       : top->rows[at].value <= row->value))
		at++;
	behind = (size_t)(top->count - at);
	memmove(&top->rows[at + 1], &top->rows[at], behind * sizeof(*top->rows));
	top->rows[at] = *row;
	top->rows[at].pareto = row->fits;
	for (int k = 0; k <= top->count; k++)
		top->rows[at].pareto &= !is_beaten(&top->rows[at], &top->rows[k]);
	top->count++;
}
