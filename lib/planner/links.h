/* SPDX-License-Identifier: Apache-2.0 */
/* What a plan puts on the links of the machine; private to this folder. */
#ifndef PD_PLANNER_LINKS_H
#define PD_PLANNER_LINKS_H

#include "plan/plan.h"
#include "plan/wiring.h"

/* One direction of a link, per minibatch, in the mean. */
struct pd_load {
	double bytes;
	double busy_ns;                 /* a transfer holds each link of its way as long as that
					   needs for it (lib/transport/sim) */
};

/*
 * At level k, component c is the ranks from c size[k] to (c + 1) size[k] - 1, and its link is
 * that by which it joins the others of its level.
 */
struct pd_links {
	const struct pd_topology *topology;     /* borrowed */
	int64_t size[PD_MAX_LEVELS + 1];
	int components[PD_MAX_LEVELS];          /* as far as ranks are used */
	struct pd_load *up[PD_MAX_LEVELS], *down[PD_MAX_LEVELS];
};

/* What a plan puts on all links; between stages with very many pairs of replicas, nothing. */
void pd_links_init(struct pd_links *links, const struct pd_plan *plan,
		   const struct pd_wiring *wiring);
void pd_links_release(struct pd_links *links);

/* What keeps a member of an all-reduce from going on, at least. */
struct pd_reduce {
	int64_t sends_ns;               /* all that it sends, over the link that it takes longest at,
					   from its own last backward on */
	int64_t rest_ns;                /* what is left when the last member's part is there; */
	int64_t both_ns;                /* where that is not one behind `until` */
	int until;                      /* by number; -1: that says nothing */
};

/*
 * Every two members of a group exchange two shares each way (lib/topology/allreduce), parts of sums
 * and then sums, so that half of what one sends is left when the last part has come; and owners of
 * two groups that follow each other what both own.  In a chain of members nothing goes on from the
 * last one before its part is there, and from then on all of the buffer has to go from each one
 * behind that to the next, and back along all of them: a link that both pass takes twice as long.
 * reduces: one per rank.
 */
void pd_links_allreduce(const struct pd_topology *topology, const int *ranks, int count,
			int64_t bytes, struct pd_reduce *reduces);

/*
 * How long the busiest direction of any link carries something for one minibatch, in the mean:
 * no plan's period is below it.  A component's link carries what crosses it for all that are
 * inside.
 */
int64_t pd_links_busiest_ns(const struct pd_plan *plan, const struct pd_wiring *wiring);

/* Bytes of the parameters that a stage owns. */
int64_t pd_stage_parameter_bytes(const struct pd_plan *plan, int stage);

#endif
