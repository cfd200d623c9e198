/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/pattern.h"

static const struct pd_pattern *const kinds[PD_SCHEDULE_KINDS] = {
#define SCHEDULE_KIND(symbol, name, usual, weights, facts, what) &pd_pattern_##symbol,
#include "plan/schedule_kind.def"
#undef SCHEDULE_KIND
};

const struct pd_pattern *pd_pattern_of(enum pd_schedule_kind kind)
{
	return kinds[kind];
}

int pd_pattern_check_v(const struct pd_schedule *schedule, struct pd_error *err)
{
	if (schedule->chunks == 2)
		return 0;
	return pd_error_input(err, "%s: stages: schedule \"%s\" has two on each rank, found %d",
			      pd_plan_name(schedule->plan),
			      pd_schedule_kind_name[schedule->plan->schedule], schedule->chunks);
}
