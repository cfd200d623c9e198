/* SPDX-License-Identifier: Apache-2.0 */
/* Plans while they compete; private to this folder. */
#ifndef PD_PLANNER_CANDIDATE_H
#define PD_PLANNER_CANDIDATE_H

#include "planner/planner.h"
#include "planner/search.h"
#include "planner/views.h"

/* What is being planned. */
struct pd_task {
	struct pd_profile *profile;     /* borrowed, by its plans too */
	struct pd_views *views;         /* borrowed; NULL: stages are runs of its layers */
	const struct pd_plan_request *request;
	const struct pd_topology *topology;
	struct pd_costs costs;
	int64_t limit_bytes;            /* of a device */
	bool straight;
	int64_t bound_ns;               /* pd_task_bound_ns(), once that was asked; or 0 */
};

/* All devices in a row, joined by the slowest of the links. */
struct pd_flat pd_task_flat(const struct pd_task *task, const struct pd_costs *costs,
			    bool straight);

/* A layout as the plan that the task asks for, with its stages' predictions and warm-ups as
 * usual or the layout's; NULL where the schedule refuses it. */
struct pd_plan *pd_candidate_plan(const struct pd_task *task, const struct pd_layout *layout,
				  struct pd_error *err);
/* The same as 1f1b with stashing, whatever the task asks for; cannot fail. */
struct pd_plan *pd_candidate_plain(const struct pd_task *task, const struct pd_layout *layout);
/* Its stages' memory again, after a change of warm-ups; false where the schedule refuses it. */
bool pd_candidate_weigh(struct pd_plan *plan, struct pd_error *err);
/* Frees a plan whose profile belongs to somebody else; or NULL. */
void pd_candidate_drop(struct pd_plan *plan);
struct pd_plan *pd_candidate_copy(const struct pd_plan *plan);

/* Bytes at the fullest rank, and its stage. */
int64_t pd_candidate_fullest(const struct pd_plan *plan, int *stage_p);

/*
 * Which of two equally fast plans is better: fewer devices, then stages, of these then fewer that
 * recompute, then bytes at the fullest rank, then shorter first stages, then the profile's order;
 * 0 only for the same plan.
 */
int pd_candidate_compare(const struct pd_plan *x, const struct pd_plan *y);

/* What the request asks for, its schedule and weights being named. */
struct pd_plan *pd_task_solve(struct pd_task *task, int64_t *time_ns_p, struct pd_error *err);
/* The same over all that the request leaves open, and the least of their bounds. */
struct pd_plan *pd_auto_plan(const struct pd_task *task, int64_t *time_ns_p, int64_t *bound_ns_p,
			     struct pd_error *err);
/*
 * What a device holds: as asked, else as the topology says, else the profile; INT64_MAX: nobody
 * does.  The published formulas take no notice of memory: there the profile's is no limit.
 */
int64_t pd_task_limit_bytes(const struct pd_profile *profile,
			    const struct pd_plan_request *request);
/* A bound for every plan under the options. */
int64_t pd_task_bound_ns(struct pd_task *task);
/* The fewest devices with which a plan may take so long; more than there are where none does. */
int pd_task_needs(const struct pd_task *task, int64_t period_ns);
/* Of the cost "simulated": no plan takes less than that by such a part, nor as little on fewer
 * devices. */
#define PD_PROVEN 100000
bool pd_task_proves(const struct pd_task *task, int64_t period_ns, int devices, int64_t part);

/*
 * What each kind of request makes: a plan that fits, and its time; or NULL.
 * By a published formula (the profile's order may change, and task->costs with it); with
 * task->request->stages; with chunks; and by replays.
 */
struct pd_plan *pd_formula_plan(struct pd_task *task, int64_t *time_ns_p,
				struct pd_error *err);
struct pd_plan *pd_hand_plan(const struct pd_task *task, int64_t *time_ns_p, struct pd_error *err);
struct pd_plan *pd_chunks_plan(const struct pd_task *task, int64_t *time_ns_p,
			       struct pd_error *err);
struct pd_plan *pd_simulated_plan(const struct pd_task *task, int64_t *time_ns_p,
				  struct pd_error *err);

/* Is there a plan that fits, as far as a quick look tells? */
bool pd_simulated_fits(const struct pd_task *task);

/* The only plan there is does not fit: which stage, by how much, and whether it would with
 * recomputation. */
int pd_none_hand(const struct pd_task *task, struct pd_plan *plan, const char *what,
		 struct pd_error *err);
/* No plan does. */
void pd_none_explain(const struct pd_task *task, struct pd_error *err);

#endif
