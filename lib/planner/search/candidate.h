/* SPDX-License-Identifier: Apache-2.0 */
/* Plans that compete in a search; private to this folder. */
#pragma once

#include "planner/cut/partition.h"
#include "planner/cut/task.h"

/*
 * Makes a plan of a partition, as the task asks for, with its stages' predictions; warm-ups are the
 * partition's or the usual ones.  NULL if the schedule refuses it.
 */
struct pd_plan *pd_candidate_plan(const struct pd_task *task, const struct pd_partition *partition,
				  struct pd_error *err);
/* Does the same with the least warm-ups and, if that is free, with recomputation wherever it saves memory. */
struct pd_plan *pd_candidate_least(const struct pd_task *task, const struct pd_partition *partition,
				   struct pd_error *err);
/* Does the same for 1f1b with stashing, whatever the task asks for; cannot fail. */
struct pd_plan *pd_candidate_plain(const struct pd_task *task,
				   const struct pd_partition *partition);
/*
 * Does the same for another schedule and other weights; microbatches 0: the usual number.  The stages'
 * memory is not known then.
 */
struct pd_plan *pd_candidate_with(const struct pd_task *task, const struct pd_partition *partition,
				  enum pd_schedule_kind schedule, enum pd_weight_kind weights,
				  int64_t microbatches);
/*
 * Lowers warm-ups until no stage admits more than the one before, and with 2BW the first no more than an
 * update has microbatches; returns whether there were any to lower.
 */
bool pd_candidate_lower_leads(struct pd_plan *plan);
/*
 * Recomputes the stages' memory after a change of warm-ups; false if the schedule refuses the plan.
 */
bool pd_candidate_weigh(struct pd_plan *plan, struct pd_error *err);
/* Does the same, and tells whether the plan keeps to a limit. */
bool pd_candidate_fits(struct pd_plan *plan, int64_t limit_bytes);
/* Frees a plan, which may be NULL, without its profile. */
void pd_candidate_drop(struct pd_plan *plan);
struct pd_plan *pd_candidate_copy(const struct pd_plan *plan);

/* Returns the memory that a stage may take: so much, and no more than the least of its devices has. */
int64_t pd_stage_limit(const struct pd_plan *plan, int stage, int64_t limit_bytes);
/* Tells whether all stages keep to that. */
bool pd_candidate_keeps(const struct pd_plan *plan, int64_t limit_bytes);
/* Returns the bytes at the fullest rank, and sets its stage. */
int64_t pd_candidate_fullest(const struct pd_plan *plan, int *stage_p);

/*
 * Compares two equally fast plans.  The better one has fewer devices, then fewer stages, then fewer
 * that recompute, then fewer bytes at the fullest rank, then shorter first stages, then an earlier
 * order.  Returns 0 only for equal plans.
 */
int pd_candidate_compare(const struct pd_plan *x, const struct pd_plan *y);
/* Returns a number that is the same for equal plans, and most likely another for others. */
uint64_t pd_candidate_hash(const struct pd_plan *plan);
