/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sum of gradients costs, in the three ways that this is used: what it takes by itself, what links
 * and members are busy with, and what it takes at least, of its members and of any, wherever they are.
 */
#pragma once

#include "sums/reducer.h"
#include "sums/traffic.h"

/* A sum of buffers, of which each of the members has one. */
struct pd_sum {
	enum pd_reducer_kind kind;
	struct pd_members members;
	int64_t bytes;                  /* of a buffer, of f32 */
};

/* Returns its time with nobody else on the links between the members. */
int64_t pd_sum_alone_ns(const struct pd_sum *sum);
/*
 * Returns the time of one that is taken in each other's memory (sums/direct.h), from when all members are
 * ready; -1: it is by messages.
 */
int64_t pd_sum_memory_ns(const struct pd_sum *sum);
/* Returns the time that is expected of one that groups hand on (sums/allreduce.h); 0: it is another. */
int64_t pd_sum_grouped_ns(const struct pd_sum *sum);
/*
 * Returns its traffic, by member and level as pd_traffic_of() has it, for the caller to free; NULL where it is
 * in each other's memory.  Sets the part of it for which links are busy for sure.
 */
struct pd_traffic *pd_sum_traffic(const struct pd_sum *sum, double *sure_p);

/* The least times for which a sum delays a member. */
struct pd_sum_delay {
	int64_t sends_ns;               /* all that it sends, over its slowest link, from its own
					   last backward on */
	int64_t rest_ns;                /* what is left when the last member's part has come */
};

/*
 * Sets these times.  A dense sum in each other's memory begins when all are ready, and nothing is
 * sent.  Else every two members of a group exchange two shares each way
 * (sums/allreduce.h), first parts of sums and then sums, so that half of what a member sends
 * is left when the last part has come.  Owners of two adjacent groups exchange what both own.  In a
 * chain nothing goes on from the last member before its part is ready.  Then all of the buffer has
 * to go from each later member to the next, and back along all of them.  With any other reducer
 * all of the last member's part leaves it, and each other member gets a number that it has for each
 * gradient.  delays has one entry per member.
 */
void pd_sum_delays(const struct pd_sum *sum, struct pd_sum_delay *delays);

/* Returns what a sum takes by these, and by pd_sum_grouped_ns(), where all members are ready at once. */
int64_t pd_sum_together_ns(const struct pd_sum *sum);

/*
 * What a sum takes at least, by number of members, wherever these are: ns per byte that is summed.
 *
 * Of W bytes, each of m members sends a piece of W/m to each of the others, and the sum of its own
 * piece to each of them; or they are a chain (sums/allreduce.h).  If k_i of the members are
 * in component i below level k, the link of that component carries 2 k_i (m - k_i) W/m.  With S
 * components of D devices the largest of them is least either where all have a = ceil(m/S) or
 * fewer, or where one has D, so that its own load is 2 D (m - D) W/m: f = min(a (m - a),
 * D (m - D)); the latter only where D >= m - D, for the rest must be few enough elsewhere.
 * (k (m - k) rises up to m/2 and falls after it.)
 *
 * Members that may be on one host, and sum in each other's memory (sums/direct.h), send nothing.
 */
struct pd_sum_least {
	double *own_sum;                /* of a member, from its beginning on */
	double *own_link;               /* of a member's own link */
	double *own_outer;              /* what a member sends through outer links, from its
					   beginning on */
	double *outer_link;             /* of a component's shared link; does not fall */
};

/* Dense sums, of numbers of that type; direct_bytes_per_s is that of struct pd_members. */
void pd_sum_least_init(struct pd_sum_least *least, const struct pd_topology *topology,
		       enum pd_dtype dtype, int64_t direct_bytes_per_s);
void pd_sum_least_release(struct pd_sum_least *least);
