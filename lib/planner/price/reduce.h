/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times of an all-reduce: of given members, made of what they send (topology/traffic.h); and the least
 * of any members, wherever they are.  Private to the planner.
 */
#pragma once

#include "schedule/schedule.h"
#include "topology/reducer.h"

/* The least times for which an all-reduce delays a member. */
struct pd_reduce {
	int64_t sends_ns;               /* all that it sends, over its slowest link, from its own
					   last backward on */
	int64_t rest_ns;                /* what is left when the last member's part has come */
};

/*
 * Sets these times.  A dense sum in each other's memory begins when all are ready, and nothing is
 * sent.  Else every two members of a group exchange two shares each way
 * (topology/allreduce.h), first parts of sums and then sums, so that half of what a member sends
 * is left when the last part has come.  Owners of two adjacent groups exchange what both own.  In a
 * chain nothing goes on from the last member before its part is ready.  Then all of the buffer has
 * to go from each later member to the next, and back along all of them.  With any other reducer
 * all of the last member's part leaves it, and each other member gets a number that has it for each
 * gradient.  reduces has one entry per member.
 */
void pd_reduce_times(enum pd_reducer_kind kind, const struct pd_members *members, int64_t bytes,
		     struct pd_reduce *reduces);

/*
 * Returns how long the sum of a stage's gradients is expected to take if it is one in groups, which
 * hand it on (topology/allreduce.h); 0: there is one group.
 */
int64_t pd_reduce_grouped_ns(const struct pd_plan *plan, int stage);

/*
 * Tells whether the all-reduce of a stage stands between its last backward and the next forward.  In
 * a list the step is right behind it and both are done by one stream.  With 2bw steps may come later
 * (lib/schedule/tick.c).  Sums of several buckets are under
 * backward; only the last of them is behind it.
 */
static inline bool pd_reduce_is_serial(const struct pd_schedule *schedule, int stage)
{
	return (!schedule->agrees || schedule->delay[stage] == 0) && schedule->buckets[stage] == 1 &&
	       !pd_schedule_defers(schedule, stage);
}

/*
 * What an all-reduce takes at least, by number of members, wherever these are: ns per byte that is
 * summed.
 *
 * Of W bytes, each of m members sends a piece of W/m to each of the others, and the sum of its own
 * piece to each of them; or they are a chain (lib/topology/allreduce.h).  If k_i of the members are
 * in component i below level k, the link of that component carries 2 k_i (m - k_i) W/m.  With S
 * components of D devices the largest of them is least either where all have a = ceil(m/S) or
 * fewer, or where one has D, so that its own load is 2 D (m - D) W/m: f = min(a (m - a),
 * D (m - D)); the latter only where D >= m - D, for the rest must be few enough elsewhere.
 * (k (m - k) rises up to m/2 and falls after it.)
 *
 * Members that may be on one host, and sum in each other's memory (lib/topology/direct), send nothing.
 */
struct pd_reduce_least {
	double *own_sum;                /* of a member, from its beginning on */
	double *own_link;               /* of a member's own link */
	double *own_outer;              /* what a member sends through outer links, from its
					   beginning on */
	double *outer_link;             /* of a component's shared link; does not fall */
};

/* Dense sums, of numbers of that type; direct_bytes_per_s is that of struct pd_members. */
void pd_reduce_least_init(struct pd_reduce_least *least, const struct pd_topology *topology,
			  enum pd_dtype dtype, int64_t direct_bytes_per_s);
void pd_reduce_least_release(struct pd_reduce_least *least);
