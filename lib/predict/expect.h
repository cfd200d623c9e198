/* SPDX-License-Identifier: Apache-2.0 */
/* What a run of a plan will take, by its replay under the run's conditions. */
#pragma once

#include "schedule/list.h"
#include "trace/durations.h"

/*
 * Sets it, with processors that all ranks share and threads of each (0: as the plan says), and the order of
 * `lists` unless that is NULL; release it.  The period is 0 if the plan cannot be replayed, or its profile
 * does not say how far its times may be off.
 */
void pd_expect_run(const struct pd_plan *plan, const struct pd_lists *lists, int64_t processors,
		   int64_t threads, struct pd_expected_run *out_p);
