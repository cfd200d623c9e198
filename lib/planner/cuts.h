/* SPDX-License-Identifier: Apache-2.0 */
/* Where a network can be cut, whatever the order of its layers; private to this folder. */
#ifndef PD_PLANNER_CUTS_H
#define PD_PLANNER_CUTS_H

#include "planner/cost.h"
#include "planner/states.h"

#include <stdbool.h>

/*
 * A cut, or all those that orders have between two firm ones: then first > last, and what lies
 * between them may be on either side.
 */
struct pd_cut {
	bool soft;
	int last;                       /* the units before it for sure are 0 to last - 1 */
	int first;                      /* those behind it for sure are `first` and later */
};

/* In order, from before the first unit to behind the last. */
struct pd_cuts {
	int count;
	bool any_soft;
	struct pd_cut *list;
};

void pd_cuts_init(struct pd_cuts *cuts, const struct pd_costs *costs);
void pd_cuts_release(struct pd_cuts *cuts);

/* What is before and behind a state for sure; not soft where that is all. */
void pd_cuts_around(const struct pd_cuts *cuts, const struct pd_costs *costs,
		    const struct pd_states *states, int state, struct pd_cut *out_p);

/* Differences of states. */
struct pd_spans {
	struct pd_states states;
	int count;                      /* of states */
	int64_t *bytes;                 /* [from * count + to]; -1: `from` is not contained */
};

/* False, and nothing to release, where there are very many. */
bool pd_spans_init(struct pd_spans *spans, const struct pd_profile *profile);
void pd_spans_release(struct pd_spans *spans);

/* What comes to a stage that is state `to` without state `from`, and leaves it, one way. */
static inline int64_t pd_span_bytes(const struct pd_spans *spans, int from, int to)
{
	return spans->bytes[(size_t)from * (size_t)spans->count + (size_t)to];
}

#endif
