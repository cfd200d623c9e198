/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an all-reduce takes at least, wherever its members are; private to bound.c.
 *
 * Of W bytes, each of m members sends a piece of W/m to each of the others, and the sum of its own
 * piece to each of them; or they are a chain (lib/topology/allreduce.h).  If k_i of the members are
 * in component i below level k, the link of that component carries 2 k_i (m - k_i) W/m.  With S
 * components of D devices the largest of them is least either where all have a = ceil(m/S) or
 * fewer, or where one has D, so that its own load is 2 D (m - D) W/m: f = min(a (m - a),
 * D (m - D)); the latter only where D >= m - D, for the rest must be few enough elsewhere.
 * (k (m - k) rises up to m/2 and falls after it.)
 */
#ifndef PD_PLANNER_REDUCE_BOUND_H
#define PD_PLANNER_REDUCE_BOUND_H

#include "model/dtype.h"
#include "topology/topology.h"

/* By number of members: ns per byte that is summed, a lower bound. */
struct pd_reduce_bound {
	double *own_link;               /* of a member */
	double *own_outer;              /* what a member sends through outer links, from its
					   beginning on */
	double *outer_link;             /* of a component's shared link; does not fall */
};

/* With gradients of 16 bits nothing sends less than half. */
void pd_reduce_bound_init(struct pd_reduce_bound *bound, const struct pd_topology *topology,
			  enum pd_dtype dtype);
void pd_reduce_bound_release(struct pd_reduce_bound *bound);

#endif
