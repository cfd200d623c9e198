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
