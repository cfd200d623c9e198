/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a pipeline may be cut, as a search sees it: points from the beginning of the network,
 * number 0, to its end; a stage is what lies between two of them.  They are the units of the
 * profile's order, or the states of the network.  Private to this folder.
 */
#ifndef PD_PLANNER_POINTS_H
#define PD_PLANNER_POINTS_H

#include "planner/cost.h"
#include "planner/states.h"

struct pd_points {
	const struct pd_states *states;         /* borrowed; NULL: units */
	int last;
	/* last + 1 entries each, of all before a point; compute ascends */
	const int64_t *compute_ns, *parameter_bytes, *cut_bytes;
	int64_t *forward_ns, *stash_bytes;
	/* units */
	struct pd_row row;
	/* states: those that contain state u are next[first[u]] to next[first[u + 1] - 1] */
	size_t *first;
	int *next;
	/* of a state; the workspace is the largest of its layers' */
	int64_t *state_bytes, *workspace_bytes;
};

/* Borrow costs, or states. */
void pd_points_of_units(struct pd_points *points, const struct pd_costs *costs);
void pd_points_of_states(struct pd_points *points, const struct pd_states *states);
void pd_points_release(struct pd_points *points);

/* Goes to point u: what follows is of stages that begin there. */
void pd_points_set(struct pd_points *points, int u);

/* How many points a stage from u may end at, and the i-th of them, ascending. */
static inline int pd_points_ends(const struct pd_points *points, int u)
{
	return points->states ? (int)(points->first[u + 1] - points->first[u])
			      : points->last - u;
}

static inline int pd_points_end(const struct pd_points *points, int u, int i)
{
	return points->states ? points->next[points->first[u] + (size_t)i] : u + 1 + i;
}

/* What leaves stage [u, v) per minibatch, one way; of states, all that crosses the cut. */
static inline int64_t pd_points_out_bytes(const struct pd_points *points, int v)
{
	return points->states ? points->cut_bytes[v] : pd_row_out_bytes(&points->row, v);
}

/* Bytes of one replica of stage [u, v): like pd_row_memory; of states, about. */
int64_t pd_points_memory(const struct pd_points *points, int u, int v, int replicas, int warmup);
/* How many of them it does without where it recomputes, about. */
int64_t pd_points_saved(const struct pd_points *points, int u, int v, int warmup);

/*
 * The layers of stages that end at the given points: how many in each, and their order, or
 * NULL for the profile's.  Both are the caller's.
 */
void pd_points_layers(const struct pd_points *points, const int *ends, int stage_count,
		      int **layers_p, int **order_p);

#endif
