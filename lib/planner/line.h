/* SPDX-License-Identifier: Apache-2.0 */
/* Plans for devices on a line; private to this folder. */
#ifndef PD_PLANNER_LINE_H
#define PD_PLANNER_LINE_H

#include "planner/map.h"
#include "planner/points.h"
#include "planner/search.h"

struct pd_line {
	struct pd_points *points;       /* at which it may be cut */
	int64_t memory_limit_bytes;     /* kept to, about */
	const struct pd_map *map;       /* borrowed: of these devices or more */
	int devices;                    /* at most */
	bool straight;                  /* no stage has replicas */
	enum pd_weight_kind weights;
	int64_t group;                  /* minibatches of an update; 0: one per replica */
	bool *tight;                    /* stages may recompute for want of memory, and this is set
					   where one would have to; or NULL */
	bool least;                     /* no warm-ups: what fits at all */
	int tries;                      /* replicas above the least that are tried, plus 1 */
	int kept;                       /* plans that are kept for what is behind each point */
	int64_t bound_ns;               /* no plan takes less */
	int64_t most_ns;                /* one that takes more is of no interest; 0: any is */
	int64_t precision;              /* the time is found to one part in so many */
};

/* A good plan: the least time found by bisection, and few devices; NULL where none fits. */
struct pd_layout *pd_line_search(const struct pd_line *line);
/* One of few devices whose stages take at most a time, or NULL. */
struct pd_layout *pd_line_at(const struct pd_line *line, int64_t time);

#endif
