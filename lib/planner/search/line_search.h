/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of the layers behind each point; private to line.c and line_stage.c. */
#ifndef PD_PLANNER_LINE_SEARCH_H
#define PD_PLANNER_LINE_SEARCH_H

#include "planner/search/line.h"

#define NONE INT32_MAX

struct node {                           /* a plan of the layers behind u */
	int devices;                    /* ascending from F(u); or NONE */
	int next, which;                /* the point behind its first stage; which of that point's
					   plans */
	int stages;
	int64_t lead;                   /* of its first stage: warm-up times replicas */
	int64_t behind_ns;              /* G: the time of the way through all of it */
	double load_ns[PD_MAX_LEVELS];  /* on the link of the component of its last device */
};

struct line_search {
	const struct pd_line *line;
	struct pd_points *points;
	int u;                          /* the point where stages begin */
	int room;                       /* devices that the layers before u leave, at most */
	int kept;                       /* plans per point */
	int64_t roomy;                  /* a warm-up with which any stage fits; -1: none */
	const struct pd_map *map;
	struct node *of[2], *nodes;     /* one of these two: the current plans */
	const struct node *found;       /* the other: the plans found last; or NULL */
	int *devices, *fewest;          /* F of each point; the least of each block of points */
};

/* Returns the plans of a point, search->kept of them. */
static inline struct node *line_nodes(const struct line_search *search, int u)
{
	return &search->nodes[(size_t)u * (size_t)search->kept];
}

/*
 * Keeps, for search->u, plans that put the stage [u, v) before the plans of v, where each stage
 * keeps to a time.
 */
void pd_line_fill_stage(const struct line_search *search, int v, int64_t time);

#endif
