/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fewest devices on which every stage from point u on keeps to a value t, such as a time,
 *
 *     F(u) = min over u < v <= U of  m(u, v) + F(v),      F(U) = 0,
 *
 * with m(u, v) the fewest devices of stage [u, v), and the least t for which F(0) is few enough.  One
 * plan stands for all of what is behind v: what a stage may do with many devices behind it, it may do
 * with fewer.  Where the place of a stage matters, several are kept: search/line.c goes the same way
 * over stages, with F(v) as the fewest devices of what it keeps.
 */
#pragma once

#include "base/effort.h"
#include "planner/cut/points.h"

#define PD_FEWEST_NONE INT32_MAX
#define PD_FEWEST_TOO_LONG (INT32_MAX - 1)      /* none, nor of stages from u to further ends */

struct pd_fewest;

/*
 * Returns m for the stage from u to its i-th end, with `behind` devices behind it, if it is `most` or
 * fewer, else PD_FEWEST_NONE or PD_FEWEST_TOO_LONG.  It does not rise with the value.
 */
typedef int (*pd_fewest_stage)(const struct pd_fewest *fewest, int u, int i, int behind, int most,
			       int64_t value);

/*
 * Looks at the stage from u to its i-th end, for plans of u on at most `most` devices; returns how many
 * those may have that are looked for from then on.
 */
typedef int (*pd_fewest_look)(struct pd_fewest *fewest, int u, int i, int most, int64_t value);

struct pd_fewest {
	struct pd_points *points;       /* borrowed */
	int most, each;                 /* devices in all, and of one stage */
	const int64_t *ns;              /* per point: what all stages before it do, of which a device
					   does t at most; NULL: no such time */
	pd_fewest_stage stage;
	pd_fewest_look look;            /* called for each stage in place of `stage`: by pd_fewest_each() alone */
	const void *context;
	struct pd_effort *effort;       /* when it is spent no stage is looked at; NULL: no end */
	int *devices, *next;            /* F and the v that gives it, by point; or PD_FEWEST_NONE */
};

/* Completes what the caller has set. */
void pd_fewest_init(struct pd_fewest *fewest);
void pd_fewest_release(struct pd_fewest *fewest);

/* Looks at each stage from u that so many devices may do, the nearest ends first. */
void pd_fewest_each(struct pd_fewest *fewest, int u, int most, int64_t value);

/* Returns F(0) for a value, if it is `most` or fewer, else PD_FEWEST_NONE. */
int pd_fewest_devices(struct pd_fewest *fewest, int64_t value);

/*
 * Returns the least value, from `low` on, for which F(0) is few enough, to within low / part; the search
 * is then at such a value.  PD_COST_MAX if there is none below, or the effort is spent.  Sets *below_p, if not NULL, to one
 * that is not above the least.
 */
int64_t pd_fewest_value(struct pd_fewest *fewest, int64_t low, int64_t part, int64_t *below_p);
