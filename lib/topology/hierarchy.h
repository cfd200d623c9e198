/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Members of a sum by the hosts that they are on: GradientFlow's hierarchical all-reduce (arXiv
 * 1902.06855, section 2.3).  In each host gradients go along a chain to its master, in pieces; masters
 * sum what they have round a ring; the sums go back along the chains.
 *
 * A host is a component below the outermost level of links at which the members part.  Where that is
 * the innermost level each is a host of its own, and there is but the ring.
 */
#pragma once

#include "topology/reducer.h"

struct pd_hierarchy {
	int hosts, host;                /* how many; mine, in the order of ranks */
	int size, place;                /* of my host; my place there, 0 is its master */
	int before, behind;             /* the members beside me in the chain; -1: none */
	int master_before, master_next; /* members: masters of the hosts beside mine in the ring */
	int before_size;                /* of the host before mine */
	int most;                       /* of all hosts */
	int64_t host_ranks;             /* ranks of a host on this machine */
};

void pd_hierarchy_of(const struct pd_members *members, int me, struct pd_hierarchy *out_p);
/* Returns in how many pieces `bytes` go along a chain. */
int pd_hierarchy_pieces(int64_t bytes);

extern const struct pd_reducer pd_reducer_hierarchical;
