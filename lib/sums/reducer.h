/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of reducers.  From topology, ranks and bytes alone a reducer says what each member does
 * (script.h), what it allocates and how long it takes, so that all members, plans and predictions agree.
 * lib/engine/reduce does it.
 *
 * Two exceptions.  The traffic of the ordered exchange is a formula by component (traffic.c),
 * since a group may be of thousands, all of whom send to all.  And one reducer is the transport's
 * own (engine/reduce/nccl.c over transport.h's group): NCCL's, which in virtual time does what its row
 * writes, a ring.  Communicators block when they are made, so a group is named before ranks
 * connect.
 */
#pragma once

#include "base/cost.h"
#include "model/dtype.h"
#include "sums/script.h"
#include "topology/topology.h"

#include <stdbool.h>
#include <stdint.h>

enum pd_reducer_kind {
#define REDUCER_KIND(symbol, name, what) PD_REDUCER_##symbol,
#include "sums/reducer_kind.def"
#undef REDUCER_KIND
	PD_REDUCER_KINDS
};

extern const char *const pd_reducer_kind_name[PD_REDUCER_KINDS + 1];    /* NULL-terminated */

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

/* Sets the lowest and the highest rank. */
void pd_members_ends(const struct pd_members *members, int *low_p, int *high_p);

/* The slowest way between members: of `bytes` without latency, and that. */
struct pd_slowest {
	int64_t whole_ns, latency_ns;
};
struct pd_slowest pd_members_slowest(const struct pd_members *members, int64_t bytes);

/* Returns the bytes of what a buffer of `bytes` is rounded to, if it is. */
static inline int64_t pd_rounded_bytes(const struct pd_members *members, int64_t bytes)
{
	return members->dtype == PD_F32 ? 0 : bytes / 2;
}

struct pd_traffic;

struct pd_reducer {
	/* Writes what member `me` of at least two does to sum script->floats. */
	void (*write)(const struct pd_members *members, int me, struct pd_script *script);
	/* The bytes that a member allocates to sum a buffer of `bytes`, of f32, beside that. */
	int64_t (*staging_bytes)(const struct pd_members *members, int64_t bytes);
	/*
	 * The time to sum `bytes` with nobody else on the links between the members; at most
	 * PD_COST_MAX.
	 */
	int64_t (*alone_ns)(const struct pd_members *members, int64_t bytes);
	/* What pd_traffic_of() sets to other than 0; NULL: what coarse scripts say. */
	double (*traffic)(const struct pd_members *members, int64_t bytes, struct pd_traffic *traffic);
	/*
	 * The transport does it, f32 alone, if it can, which is known when a run begins: so it is
	 * taken where it is asked for by name, and its figures are an assumption.  In virtual time it
	 * does what is written.
	 */
	bool of_transport;
};

#define REDUCER_KIND(symbol, name, what) extern const struct pd_reducer pd_reducer_##symbol;
#include "sums/reducer_kind.def"
#undef REDUCER_KIND

extern const struct pd_reducer *const pd_reducers[PD_REDUCER_KINDS];

/* --gradient-dtype: fails where that reducer does not sum numbers of this type. */
int pd_reducer_check(enum pd_reducer_kind kind, enum pd_dtype dtype, struct pd_error *err);
/* Sets those members with whom `me` exchanges anything to sum `bytes`. */
void pd_reducer_meets(enum pd_reducer_kind kind, const struct pd_members *members, int me, int64_t bytes,
		      bool *met);
