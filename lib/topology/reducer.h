/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of reducers: what is known of each from topology, ranks and bytes alone.  Plans,
 * predictions and the worker ask it, so that all members and every figure agree.  What a reducer
 * does at run time is in lib/reduce.
 */
#pragma once

#include "model/dtype.h"
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

/*
 * Who sums, and what travels.  Where that is of 16 bits, each member's gradients are rounded once,
 * whatever the reducer, and sums are taken in f32: a part of a sum that goes on to another member
 * does so in f32.  The sum of all is rounded once more on its way back.
 */
struct pd_members {
	const struct pd_topology *topology;
	const int *ranks;               /* in the order in which they are added */
	int count;
	enum pd_dtype dtype;            /* PD_F32, or what gradients are rounded to */
	int64_t direct_bytes_per_s;     /* of dense sums in each other's memory (direct.h); 0: unknown */
};

struct pd_reducer {
	/* The bytes that a member allocates to sum a buffer of `bytes`, of f32, beside that. */
	int64_t (*staging_bytes)(const struct pd_members *members, int64_t bytes);
	/*
	 * The transport does it, f32 alone, if it can, which is known when a run begins: so it is
	 * taken where it is asked for by name, and its figures are an assumption.
	 */
	bool of_transport;
	/*
	 * Whom member `me` sends to, number i of them from 0 on, and how many times the buffer's
	 * bytes.  Returns false behind the last.  NULL: groups and pieces decide (allreduce.h).
	 */
	bool (*sends)(const struct pd_members *members, int me, int i, int *peer_p, double *part_p);
	/* Sets those members with whom `me` exchanges anything to sum `bytes`. */
	void (*meets)(const struct pd_members *members, int me, int64_t bytes, bool *met);
	/*
	 * The time to sum `bytes` with nobody else on the links between the members; at most
	 * PD_REDUCER_MOST_NS.
	 */
	int64_t (*cost_ns)(const struct pd_members *members, int64_t bytes);
};

/*
 * Returns the time of the 2 (n - 1) steps of a ring of n, whose transfers take transfer_ns in all, in
 * so many parts each: a part is on its way while the one behind it leaves.
 */
int64_t pd_ring_ns(__int128 transfer_ns, int64_t latency_ns, int64_t n, int parts);

extern const struct pd_reducer *const pd_reducers[PD_REDUCER_KINDS];

/* --gradient-dtype: fails where that reducer does not sum numbers of this type. */
int pd_reducer_check(enum pd_reducer_kind kind, enum pd_dtype dtype, struct pd_error *err);
