/* SPDX-License-Identifier: Apache-2.0 */
/* Which stages do each forward once more before its backward; private to this folder. */
#ifndef PD_PLANNER_RECOMPUTE_H
#define PD_PLANNER_RECOMPUTE_H

#include "planner/planner.h"
#include "schedule/schedule.h"

/*
 * Is that for the planner to decide?  Not with weights latest: there it is another computation,
 * and so for the user to ask for.
 */
bool pd_recompute_free(const struct pd_plan_request *request);

/* The stages that the request names, in a plan; none where it leaves that free.  false: refused. */
bool pd_recompute_asked(struct pd_plan *plan, const struct pd_plan_request *request,
			struct pd_error *err);

/*
 * Of each rank that is over the limit, by the stages' memory_bytes, one more stage that keeps less
 * so.  Whether there was any; schedule is the plan's.
 */
bool pd_recompute_more(struct pd_plan *plan, const struct pd_schedule *schedule,
		       int64_t limit_bytes);

/*
 * As few stages as make the plan fit with the warm-ups that it has, none at first; their memory
 * goes with it.  A rank's memory depends on its own stages: where each has one no other choice
 * fits that lets one of these compute less.  false: it does not fit, or is refused.
 */
bool pd_recompute_fit(struct pd_plan *plan, int64_t limit_bytes);

bool pd_recompute_any(const struct pd_plan *plan);
void pd_recompute_clear(struct pd_plan *plan);
/* "0,2": the stages that do, as --recompute takes them; NULL: none.  The caller's. */
char *pd_recompute_text(const struct pd_plan *plan);

#endif
