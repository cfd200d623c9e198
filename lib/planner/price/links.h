/* SPDX-License-Identifier: Apache-2.0 */
/* Loads of the machine's links by a plan; private to this folder. */
#ifndef PD_PLANNER_LINKS_H
#define PD_PLANNER_LINKS_H

#include "plan/plan.h"
#include "plan/wiring.h"
#include "schedule/schedule.h"

/* One direction of a link: its mean load per minibatch. */
struct pd_load {
	double bytes;
	double busy_ns;                 /* time for which transfers occupy the link
					   (lib/transport/sim) */
};

/*
 * The links of all components.  At level k, component c has the ranks from c size[k] to (c + 1)
 * size[k] - 1, and its link joins it to the others of its level.
 */
struct pd_links {
	const struct pd_topology *topology;     /* borrowed */
	int64_t size[PD_MAX_LEVELS + 1];
	int components[PD_MAX_LEVELS];          /* as far as ranks are used */
	struct pd_load *up[PD_MAX_LEVELS], *down[PD_MAX_LEVELS];
};

/*
 * Adds up what a plan puts on all links; pairs of stages with very many pairs of replicas are left
 * out.
 */
void pd_links_init(struct pd_links *links, const struct pd_plan *plan,
		   const struct pd_wiring *wiring);
void pd_links_release(struct pd_links *links);

/* The least times for which an all-reduce delays a member. */
struct pd_reduce {
	int64_t sends_ns;               /* all that it sends, over its slowest link, from its own
					   last backward on */
	int64_t rest_ns;                /* what is left when the last member's part has come */
	int64_t both_ns;                /* the same if that member is not behind `until` */
	int until;                      /* a member's number; -1: not used */
};

/*
 * Sets these times.  Every two members of a group exchange two shares each way
 * (lib/topology/allreduce), first parts of sums and then sums, so that half of what a member sends
 * is left when the last part has come.  Owners of two adjacent groups exchange what both own.  In a
 * chain nothing goes on from the last member before its part is ready.  Then all of the buffer has
 * to go from each later member to the next, and back along all of them: a link that both ways use
 * takes twice as long.  Where gradients are of 16 bits, half of
 * all that is counted.  reduces has one entry per rank.
 */
void pd_links_allreduce(const struct pd_members *members, int64_t bytes, struct pd_reduce *reduces);

/*
 * Returns the time for which the busiest direction of any link is used for one minibatch, in the
 * mean.  No plan's period is below it.  A component's link carries what crosses it for everything
 * inside.
 */
int64_t pd_links_busiest_ns(const struct pd_plan *plan, const struct pd_wiring *wiring);

/*
 * Returns a time that no plan's period is below, with any schedule: the busiest link's, the busiest
 * rank's (all its passes and updates), or that of processors which ranks share.
 */
int64_t pd_links_floor_ns(const struct pd_schedule *schedule);

/*
 * Tells whether the all-reduce of a stage stands between its last backward and the next forward.  In
 * a list the step is right behind it and both are done by one stream.  If all stages agree on an
 * update, steps with 2bw may come later (lib/schedule/tick.c).  Sums of several buckets are under
 * backward; only the last of them is behind it.
 */
static inline bool pd_reduce_is_serial(const struct pd_schedule *schedule, int stage)
{
	return (!schedule->agrees || schedule->delay[stage] == 0) && schedule->buckets[stage] == 1;
}

/* Returns the bytes of the parameters that a stage owns. */
int64_t pd_stage_parameter_bytes(const struct pd_plan *plan, int stage);

#endif
