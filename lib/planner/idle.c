/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/idle.h"

#include "planner/scout.h"

/* Takes what was found on more devices, if it is faster. */
static void take_faster(const struct pd_best *best, int64_t used, struct pd_more *more)
{
	for (int i = 0; i < best->count; i++) {
		const struct pd_best_entry *entry = &best->entries[i];
		const struct pd_field *field = entry->variant->field;
		int64_t devices = entry->plan ? entry->plan->rank_count * field->devices : 0;
		double each = (double)field->profile->batch_size * 1e9;
		enum pd_period_kind from;

		if (devices <= used || each / (double)pd_max(entry->time_ns, 1) <= more->samples_per_s)
			continue;
		each /= (double)pd_max(pd_best_settled_ns(entry, &from), 1);
		if (each > more->samples_per_s)
			*more = (struct pd_more){ devices, each };
	}
}

/*
 * Returns the variant whose equal pipelines are looked at, for an order one of another schedule; or
 * NULL.
 */
static const struct pd_variant *variant_of_pipelines(const struct pd_variants *variants,
						     const struct pd_variant *won)
{
	if (!pd_schedule_has(won->request.schedule, PD_FACT_ORDERED))
		return won;
	for (int i = 0; i < variants->count; i++) {
		const struct pd_variant *one = &variants->list[i];

		if (one->field == won->field &&
		    !pd_schedule_has(one->request.schedule, PD_FACT_ORDERED))
			return one;
	}
	return NULL;
}

/* Looks at equal pipelines of so many ranks or more, whatever one more of them brings. */
static void look_at_pipelines(const struct pd_variant *looked, int least_ranks, int64_t used,
			      struct pd_more *more)
{
	struct pd_variant variant = *looked;
	struct pd_field field;
	struct pd_best spare;

	pd_variant_cuts(&variant);
	field = *variant.field;
	variant.field = &field;         /* which keeps what was found of it */
	variant.request.min_gain = 0;
	variant.task.request = &variant.request;
	variant.least_ranks = least_ranks;
	pd_best_init(&spare, 4);
	pd_scout(&spare, &variant);
	pd_best_settle(&spare);
	take_faster(&spare, used, more);
	pd_best_release(&spare);
}

void pd_idle_look(const struct pd_best *best, const struct pd_variants *variants,
		  const struct pd_variant *won, struct pd_plan *plan)
{
	const struct pd_variant *looked = variant_of_pipelines(variants, won);
	struct pd_more *more = &plan->predicted.more;
	int64_t used = plan->rank_count * won->field->devices;

	if (plan->rank_count == won->field->topology.devices)
		return;
	more->devices *= won->field->devices;
	take_faster(best, used, more);
	if (more->devices == 0 && looked)
		look_at_pipelines(looked, plan->rank_count + 1, used, more);
}
