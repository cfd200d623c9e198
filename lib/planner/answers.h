/* SPDX-License-Identifier: Apache-2.0 */
/* What answers a task: plans by each kind of request, why there is none, and what a plan is compared with. */
#pragma once

#include "planner/cut/partition.h"
#include "planner/cut/task.h"

/*
 * These plan by one kind of request, and return a plan that fits, and its time; or NULL: by a
 * published formula (this may change the profile's order, and task->costs with it); and with
 * task->request->stages.
 */
struct pd_plan *pd_formula_plan(struct pd_task *task, int64_t *time_ns_p, struct pd_error *err);
struct pd_plan *pd_hand_plan(const struct pd_task *task, int64_t *time_ns_p, struct pd_error *err);

/* Reads --stages: "8x1,6" is 8 layers on one rank, then 6 on one. */
struct pd_partition *pd_fixed_partition(const struct pd_costs *costs, const char *list,
					enum pd_weight_kind weights, int64_t devices,
					struct pd_error *err);
/* Returns the partition of task->request->stages; refuses one with which its chunks and replicas do not go. */
struct pd_partition *pd_hand_partition(const struct pd_task *task, struct pd_error *err);
/* Returns a plan's time between two minibatches: by a replay, or by the formula that is asked for. */
int pd_task_period(const struct pd_task *task, const struct pd_plan *plan, int64_t *period_ns_p,
		   enum pd_period_kind *from_p, struct pd_error *err);

/*
 * Fills in plan->predicted the figures of data parallelism and, but for published costs, alternatives and
 * sent_bytes_per_sample.  The plan's own period, memory and bound are there already; its profile is the
 * task's.  Impossible alternatives are left out.
 */
int pd_alternatives_find(struct pd_plan *plan, const struct pd_task *task, struct pd_error *err);
/* Adds data parallelism of another task's devices that share layers out: what is called tensor parallelism. */
void pd_alternatives_add_tensor(struct pd_plan *plan, const struct pd_task *task);

/*
 * Reports that the only plan does not fit: which stage, by how much, and whether recomputation
 * would help.
 */
int pd_none_hand(const struct pd_task *task, struct pd_plan *plan, const char *what,
		 struct pd_error *err);
/* Reports that no plan fits; closest: a plan that needs least, or NULL where none can be made. */
void pd_none_explain(const struct pd_task *task, const struct pd_plan *closest, struct pd_error *err);
