/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Equal pipelines side by side, of which one is gone through: the last of those that take turns on a link.  All send
 * at about the same time, so what the last one sends waits for the others'; it is behind them from then on, and waits
 * again only where a link has more to do for all of them than the pipelines have between two microbatches.
 */
#pragma once

#include "plan/plan.h"
#include "plan/wiring.h"

struct pd_turns {
	int64_t count;                  /* pipelines that share a link of the way; at least 1 */
	int64_t own_ns, way_ns;         /* for which each occupies it; until what was sent has arrived */
};

/* Returns what is true of a link between two stages with as many replicas. */
struct pd_turns pd_turns_of(const struct pd_plan *plan, const struct pd_link *link);

/*
 * Returns when what is ready at some time arrives.  Sets when the link is free again, and by how much the last pipeline is behind the first, before and after it.
 */
static inline int64_t pd_turns_arrival(const struct pd_turns *turns, int64_t ready_ns, int64_t *spread_ns, int64_t *free_ns)
{
	int64_t begin_ns = pd_max(ready_ns - *spread_ns, *free_ns);
	int64_t others_ns = (turns->count - 1) * turns->own_ns;

	*free_ns = begin_ns + others_ns + turns->own_ns;
	*spread_ns = pd_max(*spread_ns, others_ns);
	return pd_max(ready_ns, begin_ns + others_ns) + turns->way_ns;
}
