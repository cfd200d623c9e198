/* SPDX-License-Identifier: Apache-2.0 */
/* What a plan puts on the links of the machine; private to this folder. */
#ifndef PD_PLANNER_LINKS_H
#define PD_PLANNER_LINKS_H

#include "plan/plan.h"
#include "plan/wiring.h"

/*
 * An all-reduce among these ranks: every pair of them exchanges two pieces each way
 * (lib/transport/collective), parts of sums and then sums, and a link carries one after the
 * other.  *alone_p: how long the busiest link is at work, for it takes no less where all begin
 * at once.  sends_ns[i], per member, is the least that it takes when the others begin earlier:
 * what the member itself sends, counted from its own beginning; half of that, its sums, is what
 * it does at least when the last part has come.
 */
void pd_links_allreduce(const struct pd_topology *topology, const int *ranks, int count,
			int64_t bytes, int64_t *alone_p, int64_t *sends_ns);

/*
 * How long the busiest direction of any link carries something for one minibatch, in the mean:
 * no plan's period is below it.  A transfer takes all links of its way for as long as the
 * slowest of them needs (lib/transport/sim); a component's link carries what crosses it for all
 * that are inside.
 */
int64_t pd_links_busiest_ns(const struct pd_plan *plan, const struct pd_wiring *wiring);

/* Bytes of the parameters that a stage owns. */
int64_t pd_stage_parameter_bytes(const struct pd_plan *plan, int stage);

#endif
