/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The places at which stages can begin and end, and the layers that are surely in between, whatever
 * the order of the layers, for bound.c.  Private to this folder.
 */
#ifndef PD_PLANNER_NODES_H
#define PD_PLANNER_NODES_H

#include "plan/plan.h"
#include "planner/cut/points.h"

/*
 * A cut; or, if first > last, all cuts that orders have between two firm ones: the units in between
 * may be on either side.
 */
struct pd_cut {
	bool soft;
	int last;                       /* units 0 to last - 1 are surely before it */
	int first;                      /* units from `first` on are surely behind it */
};

/* All cuts in order, from before the first unit to behind the last. */
struct pd_cuts {
	int count;
	bool any_soft;
	struct pd_cut *list;
};

/* Sums over layers. */
struct pd_node_sum {
	int64_t passes_ns;              /* forward and backward */
	int64_t way_ns;                 /* with only the input's part of a split backward */
	int64_t update_ns, bytes;       /* of parameters */
};

/* A cut, or a state. */
struct pd_node {
	struct pd_cut cut;              /* of a state: what is surely in it, and behind it */
	/*
	 * For a stage that begins here: at most what is before it; for one that ends: at least what
	 * is up to it.
	 */
	struct pd_node_sum begin, end;
};

struct pd_nodes {
	int count;
	struct pd_node *list;
	struct pd_cuts cuts;
	struct pd_states states;        /* count 0: nodes are cuts, not states */
	struct pd_points points;        /* of states, if nodes are */
	/*
	 * Sums over layers in sequence in any order, up to the last firm cut (unit_count + 1
	 * entries).
	 */
	int64_t *path_ns;               /* of passes */
	int64_t *way_ns;                /* of ways, from the first unit with parameters on */
};

void pd_nodes_init(struct pd_nodes *nodes, const struct pd_costs *costs,
		   enum pd_schedule_kind schedule);
void pd_nodes_release(struct pd_nodes *nodes);

static inline int64_t pd_passes_ns(const struct pd_profile_layer *layer)
{
	return layer->forward_ns + layer->backward_ns;
}

#endif
