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

/*
 * How long each member of an all-reduce sends over the link that it takes longest at: every two members of a group exchange two shares
 * each way (lib/topology/allreduce), parts of sums and then sums, and owners of two groups that
 * follow each other what both own.
 * A member cannot go on before it has sent all that, nor before it has sent the second half of it
 * from when the last one's part has come.  sends_ns: one per rank.
 */
void pd_links_allreduce(const struct pd_topology *topology, const int *ranks, int count,
			int64_t bytes, int64_t *sends_ns);

/*
 * How long the busiest direction of any link carries something for one minibatch, in the mean:
 * no plan's period is below it.  A component's link carries what crosses it for all that are
 * inside.
 */
int64_t pd_links_busiest_ns(const struct pd_plan *plan, const struct pd_wiring *wiring);

/* Bytes of the parameters that a stage owns. */
int64_t pd_stage_parameter_bytes(const struct pd_plan *plan, int stage);

#endif
