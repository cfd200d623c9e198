/* SPDX-License-Identifier: Apache-2.0 */
/* Plans that compete in a search; private to this folder. */
#pragma once

#include "planner/planner.h"
#include "planner/cut/partition.h"
#include "planner/cut/views.h"

/* The task of planning. */
struct pd_task {
	struct pd_profile *profile;     /* borrowed, also by its plans */
	struct pd_profile *fastest;     /* pd_profile_fastest() of it, or itself where devices are alike */
	struct pd_views *views;         /* borrowed; NULL: stages are runs of its layers */
	/* Layers that share parameters have a copy each in this one; NULL: no layers share. */
	struct pd_task *copied;
	const struct pd_plan_request *request;
	const struct pd_topology *topology;
	struct pd_costs costs;          /* of the fastest */
	int64_t limit_bytes;            /* memory of a device, of the kind that has most (pd_stage_limit) */
	bool straight;                  /* no stage has replicas */
	int64_t bound_ns;               /* of every plan with these options; 0: not known yet */
	int64_t *closest_bytes;         /* set where no plan fits: what the closest needs */
};

/* Returns how many stages a plan can have on so many devices: with chunks, several on each. */
static inline int64_t pd_task_stages(const struct pd_task *task, int64_t devices)
{
	return devices * (task->request->chunks ? task->request->chunks : 1);
}

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
 * update has microbatches.
 */
void pd_candidate_lower_leads(struct pd_plan *plan);
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

/* Reads --stages: "8x1,6" is 8 layers on one rank, then 6 on one. */
struct pd_partition *pd_fixed_partition(const struct pd_costs *costs, const char *list,
					enum pd_weight_kind weights, int64_t devices,
					struct pd_error *err);
/* Returns the partition of task->request->stages; refuses one with which its chunks and replicas do not go. */
struct pd_partition *pd_hand_partition(const struct pd_task *task, struct pd_error *err);
/* Returns one stage on all devices. */
struct pd_partition *pd_data_parallel_partition(const struct pd_costs *costs, int64_t devices);
/*
 * Returns the memory of a device: the request's, else the topology's, else the profile's; INT64_MAX
 * if none is known.  For published formulas, which ignore memory, the profile's is no limit.
 */
int64_t pd_task_limit_bytes(const struct pd_profile *profile,
			    const struct pd_plan_request *request);
/* Returns a plan's time between two minibatches: by a replay, or by the formula that is asked for. */
int pd_task_period(const struct pd_task *task, const struct pd_plan *plan, int64_t *period_ns_p,
		   enum pd_period_kind *from_p, struct pd_error *err);
/*
 * These plan by one kind of request, and return a plan that fits, and its time; or NULL: by a
 * published formula (this may change the profile's order, and task->costs with it); with an order that is
 * searched for; with task->request->stages; and by replays.
 */
struct pd_plan *pd_formula_plan(struct pd_task *task, int64_t *time_ns_p,
				struct pd_error *err);
struct pd_plan *pd_ordered_plan(const struct pd_task *task, int64_t *time_ns_p, struct pd_error *err);
struct pd_plan *pd_hand_plan(const struct pd_task *task, int64_t *time_ns_p, struct pd_error *err);
struct pd_plan *pd_simulated_plan(const struct pd_task *task, int64_t *time_ns_p,
				  struct pd_error *err);

/*
 * Returns stages for interleaved on so many ranks or, where there are too few layers, as many as can be:
 * pd_even_partition(), or stages of equally many units where that would be too much work.
 */
struct pd_partition *pd_chunks_partition(const struct pd_task *task, int64_t ranks, int64_t bandwidth_bytes_per_s,
					 struct pd_error *err);

/* Tells, after a quick look, whether there is a plan that fits. */
bool pd_simulated_fits(const struct pd_task *task);

/*
 * Fills in plan->predicted the figures of data parallelism and, but for published costs, alternatives and
 * sent_bytes_per_sample.  The plan's own period, memory and bound are there already; its profile is the
 * task's.  Impossible alternatives are left out.
 */
int pd_alternatives_find(struct pd_plan *plan, const struct pd_task *task, struct pd_error *err);

/*
 * Reports that the only plan does not fit: which stage, by how much, and whether recomputation
 * would help.
 */
int pd_none_hand(const struct pd_task *task, struct pd_plan *plan, const char *what,
		 struct pd_error *err);
/* Reports that no plan fits; closest: a plan that needs least, or NULL where none can be made. */
void pd_none_explain(const struct pd_task *task, const struct pd_plan *closest, struct pd_error *err);
