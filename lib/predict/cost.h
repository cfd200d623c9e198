/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a stage costs per minibatch: the terms of the planner's recurrences.
 *
 * The layers of a profile are held as units, the pieces between two places where the
 * network may be cut: any prefix of the topological order may be a stage boundary,
 * unless the cut would separate layers that share parameters and have no copies of them.
 * A range of units u to v - 1 is written [u, v).
 *
 * Times are integer nanoseconds, rounded up; anything beyond PD_COST_MAX counts as
 * PD_COST_MAX.
 */
#pragma once

#include "base/cost.h"
#include "base/effort.h"
#include "base/minmax.h"
#include "memory/memory.h"
#include "plan/schedule_kind.h"
#include "profile/profile.h"
#include "topology/topology.h"

#include <stdbool.h>

enum pd_cost_kind {
#define COST_KIND(symbol, name, what) PD_COST_##symbol,
#include "predict/cost_kind.def"
#undef COST_KIND
	PD_COST_KINDS
};

extern const char *const pd_cost_kind_name[PD_COST_KINDS + 1];  /* NULL-terminated */

struct pd_costs {
	const struct pd_profile *profile;       /* borrowed */
	bool copies;                            /* layers that share parameters have a copy each */
	int unit_count;
	/* The rest has unit_count + 1 entries each. */
	int *first;                             /* layer at which unit u begins */
	int64_t *compute_ns;                    /* sum over units before u: forward, backward,
						   update */
	int64_t *parameter_bytes;               /* sum over units before u */
	int64_t *cut_bytes;                     /* of the tensors made before u and used later */
	int *last_use;                          /* per layer: the last layer that uses its output,
						   or -1 */
	struct pd_known *known;                 /* bytes of stages that were asked for so far */
	struct pd_effort *effort;               /* what is asked of many stages is counted; or NULL */
	bool chain;                             /* each layer takes only what the one before makes */
	double worth;                           /* how many of the fastest device all of them are worth, at
						   most; 0: all are alike */
};

/*
 * Sums fit into 63 bits, as lib/profile checks.  Borrows profile.  copies: layers that share parameters
 * have a copy each (pd_weights_copy_shared), so a cut may separate them, and all copies' bytes count.
 */
void pd_costs_init(struct pd_costs *costs, const struct pd_profile *profile, bool copies);
void pd_costs_release(struct pd_costs *costs);

/* Returns what part of its operations' times a rank is busy at least: less than 1 where pairs gain. */
double pd_cost_of_pairs(const struct pd_profile *profile, enum pd_schedule_kind schedule);

/* Returns the first unit that begins with a layer or behind it. */
int pd_costs_unit(const struct pd_costs *costs, int layer);

/* The stages that begin with one unit. */
struct pd_row {
	const struct pd_costs *costs;
	int unit;                               /* u */
	/* unit_count + 1 entries; [v] is for the stage [u, v).  Unused for a chain. */
	int64_t *in_bytes, *out_bytes;
	int64_t *seen, stamp;                   /* per layer: when it was last an input */
};

void pd_row_init(struct pd_row *row, const struct pd_costs *costs);
void pd_row_release(struct pd_row *row);
/* Makes the row that of another unit. */
void pd_row_set(struct pd_row *row, int unit);

/* These return the bytes that stage [u, v) receives, and sends, per minibatch. */
static inline int64_t pd_row_in_bytes(const struct pd_row *row, int v)
{
	return row->costs->chain ? row->costs->cut_bytes[row->unit] : row->in_bytes[v];
}

static inline int64_t pd_row_out_bytes(const struct pd_row *row, int v)
{
	return row->costs->chain ? row->costs->cut_bytes[v] : row->out_bytes[v];
}

/* Returns the bytes of one replica of stage [u, v), like pd_memory_of. */
int64_t pd_row_memory(const struct pd_row *row, int v, int replicas, int warmup);

