/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The places at which a network can be cut, whatever the order of its layers; private to this
 * folder.
 */
#ifndef PD_PLANNER_CUTS_H
#define PD_PLANNER_CUTS_H

#include "planner/price/cost.h"
#include "planner/cut/states.h"

#include <stdbool.h>

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

void pd_cuts_init(struct pd_cuts *cuts, const struct pd_costs *costs);
void pd_cuts_release(struct pd_cuts *cuts);

/*
 * Sets the cut around a state: the units that are surely before and behind it; it is firm if these
 * are all.
 */
void pd_cuts_around(const struct pd_cuts *cuts, const struct pd_costs *costs,
		    const struct pd_states *states, int state, struct pd_cut *out_p);

/* Bytes of the differences of states. */
struct pd_spans {
	struct pd_states states;
	int count;                      /* number of states */
	int64_t *bytes;                 /* [from * count + to]; -1: `to` does not contain it */
};

/* Returns false, with nothing to release, if there are too many states. */
bool pd_spans_init(struct pd_spans *spans, const struct pd_profile *profile);
void pd_spans_release(struct pd_spans *spans);

/* Returns the bytes that the stage from state `from` to state `to` receives and sends, one way. */
static inline int64_t pd_span_bytes(const struct pd_spans *spans, int from, int to)
{
	return spans->bytes[(size_t)from * (size_t)spans->count + (size_t)to];
}

#endif
