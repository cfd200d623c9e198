/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The points at which a search may cut a network: from its beginning, number 0, to its end.  A
 * stage is between two of them.  They are the units of the profile's order, or the states of the
 * network.  Private to this folder.
 */
#pragma once

#include "planner/cut/states.h"
#include "predict/cost.h"

struct pd_points {
	const struct pd_states *states;         /* borrowed; NULL: points are units */
	int last;
	/* Sums over everything before a point (last + 1 entries each); compute ascends. */
	const int64_t *compute_ns, *parameter_bytes, *cut_bytes;
	int64_t *forward_ns, *stash_bytes;
	/* For units. */
	struct pd_row row;
	/* For states: those that contain state u are next[first[u]] to next[first[u + 1] - 1]. */
	size_t *first;
	int *next;
	int64_t *traffic;                       /* of each of these stages; NULL: too many */
	/* Per state; the workspace is the largest of its layers'. */
	int64_t *state_bytes, *workspace_bytes;
};

/* These borrow costs, or states. */
void pd_points_of_units(struct pd_points *points, const struct pd_costs *costs);
void pd_points_of_states(struct pd_points *points, const struct pd_states *states);
void pd_points_release(struct pd_points *points);
const struct pd_profile *pd_points_profile(const struct pd_points *points);
/* Tells whether a network has only one order: each layer uses the one before. */
bool pd_points_one_order(const struct pd_profile *profile);
/* Returns a sum over the layers before each point, which the caller frees. */
int64_t *pd_points_sum(const struct pd_points *points,
		       int64_t (*of)(const struct pd_profile_layer *layer));
/* Does the same with the times of another profile of the network, in the same order. */
int64_t *pd_points_sum_of(const struct pd_points *points, const struct pd_profile *profile,
			  int64_t (*of)(const struct pd_profile_layer *layer));

/* Makes the point that at which stages begin. */
void pd_points_set(struct pd_points *points, int u);

/* These return at how many points a stage from u may end, and the i-th of them, ascending. */
static inline int pd_points_ends(const struct pd_points *points, int u)
{
	return points->states ? (int)(points->first[u + 1] - points->first[u])
			      : points->last - u;
}

static inline int pd_points_end(const struct pd_points *points, int u, int i)
{
	return points->states ? points->next[points->first[u] + (size_t)i] : u + 1 + i;
}

/*
 * Returns the bytes that leave stage [u, v) per minibatch, one way; for states, all that crosses
 * the cut.
 */
static inline int64_t pd_points_out_bytes(const struct pd_points *points, int v)
{
	return points->states ? points->cut_bytes[v] : pd_row_out_bytes(&points->row, v);
}

/*
 * Returns the bytes that the stage from u to the i-th end receives and sends per minibatch, one way; if
 * states are too many, all that crosses its cuts.
 */
static inline int64_t pd_points_traffic(const struct pd_points *points, int u, int i)
{
	int v = pd_points_end(points, u, i);

	if (!points->states)
		return pd_row_in_bytes(&points->row, v) + pd_row_out_bytes(&points->row, v);
	return points->traffic ? points->traffic[points->first[u] + (size_t)i]
			       : points->cut_bytes[u] + points->cut_bytes[v];
}

/*
 * Tells whether weights, gradients and moments of stage [u, v) alone are more than so many bytes, and so are
 * those of all longer stages.
 */
bool pd_points_exceed(const struct pd_points *points, int u, int v, int64_t bytes);
/* Returns the bytes of one replica of stage [u, v), like pd_row_memory; for states, an estimate. */
int64_t pd_points_memory(const struct pd_points *points, int u, int v, int replicas, int warmup);
/* Estimates how many of these bytes recomputing saves. */
int64_t pd_points_saved(const struct pd_points *points, int u, int v, int warmup);

/*
 * Sets the number of layers of stages that end at the given points, and their order, or NULL for
 * the profile's.  The caller frees both.
 */
void pd_points_layers(const struct pd_points *points, const int *ends, int stage_count,
		      int **layers_p, int **order_p);
