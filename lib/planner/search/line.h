/* SPDX-License-Identifier: Apache-2.0 */
/* Searches for plans on a line of devices; private to this folder. */
#pragma once

#include "base/effort.h"
#include "planner/cut/partition.h"
#include "planner/cut/points.h"
#include "predict/map.h"

/* Devices of several kinds on a line: sums over the layers before each point, by kind. */
struct pd_line_kinds {
	const struct pd_topology *topology;     /* borrowed; place p on the line is its rank p */
	int count;
	int64_t *compute_ns[PD_MAX_KINDS], *forward_ns[PD_MAX_KINDS];
};

/* Fills in the times of all kinds that the profile has. */
void pd_line_kinds_init(struct pd_line_kinds *kinds, const struct pd_points *points,
			const struct pd_profile *profile, const struct pd_topology *topology);
void pd_line_kinds_release(struct pd_line_kinds *kinds);

struct pd_line {
	struct pd_points *points;       /* the points at which it may be cut; times of the fastest kind */
	const struct pd_line_kinds *kinds;      /* borrowed; NULL: all devices are alike */
	int64_t memory_limit_bytes;     /* kept to approximately */
	const struct pd_map *map;       /* borrowed; it has these devices or more */
	int devices;                    /* at most */
	bool straight;                  /* no stage has replicas */
	int64_t round;                  /* replicas of every stage divide it; 0: any may be */
	enum pd_weight_kind weights;
	int64_t group;                  /* minibatches of an update; 0: one per replica */
	bool recompute;                 /* stages may, for want of memory */
	bool selective;                 /* and then only as many of their layers as are needed */
	/* of what layers keep, the part that blocks begin with, and the most of a block; 1: none are */
	double block_part;
	int64_t block_bytes;
	bool least;                     /* no warm-ups: find what fits at all */
	double wire;                    /* bytes that replicas sum, of each byte of gradients */
	int64_t bound_ns;               /* no plan takes less */
	int64_t most_ns;                /* slower plans are not wanted; 0: all are */
	int64_t guess_ns;               /* a time that may be enough; 0: none is known */
	struct pd_effort *effort;       /* when it is spent the best so far is returned */
	int64_t precision;              /* the time is found to one part in this */
};

/* Returns a good plan: the least time found by bisection, with few devices; NULL if none fits. */
struct pd_partition *pd_line_search(const struct pd_line *line);
/* Returns a plan with few devices whose stages keep to a time, or NULL. */
struct pd_partition *pd_line_at(const struct pd_line *line, int64_t time);
