/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of reducers: what is known of each from topology, ranks and bytes alone.  Plans,
 * predictions and the worker ask it, so that all members and every figure agree.  What a reducer
 * does at run time is in lib/reduce.
 */
#ifndef PD_TOPOLOGY_REDUCER_H
#define PD_TOPOLOGY_REDUCER_H

#include "topology/topology.h"

#include <stdbool.h>
#include <stdint.h>

enum pd_reducer_kind {
#define REDUCER_KIND(symbol, name, what) PD_REDUCER_##symbol,
#include "topology/reducer_kind.def"
#undef REDUCER_KIND
	PD_REDUCER_KINDS
};

extern const char *const pd_reducer_kind_name[PD_REDUCER_KINDS + 1];    /* NULL-terminated */

#define PD_REDUCER_MOST_NS (INT64_MAX / 4)

struct pd_reducer {
	/* The bytes that one of n ranks allocates to sum a buffer of `bytes`, beside that buffer. */
	int64_t (*staging_bytes)(const struct pd_topology *topology, const int *ranks, int n,
				 int64_t bytes);
	bool keeps_order;               /* adds the members' parts in their order */
	/*
	 * Whom member `me` of n sends to, number i of them from 0 on, and how much of the buffer in
	 * all.  Returns false behind the last.  NULL: groups and pieces decide (allreduce.h).
	 */
	bool (*sends)(int n, int me, int i, int *peer_p, double *part_p);
	/*
	 * The time of a sum among n members with nobody else on their links.  whole_ns is that of
	 * the whole buffer over the slowest of these.  Returns PD_REDUCER_MOST_NS if it takes longer.
	 */
	int64_t (*cost_ns)(int64_t whole_ns, int64_t latency_ns, int64_t n);
};

extern const struct pd_reducer pd_reducers[PD_REDUCER_KINDS];

#endif
