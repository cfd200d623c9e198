/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the stages that do each forward once more before its backward; private to this folder. */
#pragma once

#include "planner/cut/task.h"
#include "schedule/schedule.h"

/*
 * Tells whether the planner may choose.  It may not with weights latest, since recomputing changes
 * the results there; then the user decides.
 */
bool pd_recompute_free(const struct pd_plan_request *request);

/*
 * Lets the stages recompute that the request names; none if it leaves this open.  Returns false if
 * the schedule refuses the plan.
 */
bool pd_recompute_asked(struct pd_plan *plan, const struct pd_plan_request *request,
			struct pd_error *err);

enum pd_fit {
	PD_REFUSED,             /* by the schedule */
	PD_TOO_LARGE,
	PD_CHANGED,             /* the same, but more stages recompute now */
	PD_FITS
};

/*
 * Sets the stages' memory, and tells whether it keeps to the limit.  more: on each rank above the limit one more
 * stage recomputes, or more of its layers, if that saves memory.  *schedule_p, which the caller frees, is NULL or that
 * of the step before, and becomes the plan's as it was before more recomputed; NULL if it is refused.
 */
enum pd_fit pd_recompute_step(struct pd_plan *plan, const struct pd_plan_request *request,
			      int64_t limit_bytes, bool more, struct pd_schedule **schedule_p);

/*
 * Lets as few stages recompute as are needed to fit with the plan's warm-ups, and updates their
 * memory.  A rank's memory depends only on its own stages, so with one stage each, no other choice
 * that fits computes less.  Returns false if the plan does not fit or is refused.
 */
bool pd_recompute_fit(struct pd_plan *plan, const struct pd_plan_request *request, int64_t limit_bytes);

/*
 * Sets the memory of the stages, and which of them recompute: those that must to fit, if the planner
 * decides or the request names stages; none if the plan does not fit anyway.  Returns false if the
 * plan is refused.
 */
bool pd_recompute_weigh(struct pd_plan *plan, const struct pd_plan_request *request,
			int64_t limit_bytes);

/*
 * Sets the part of what blocks keep that stays if they are computed again, what they begin with, and
 * the most that one of them keeps; 1 and 0 where the planner does not choose blocks.
 */
void pd_recompute_blocks(const struct pd_task *task, double *part_p, int64_t *most_bytes_p);

/* Returns how many stages recompute. */
int pd_recompute_count(const struct pd_plan *plan);
