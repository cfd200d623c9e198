/* SPDX-License-Identifier: Apache-2.0 */
/* What stages on a line of devices put on the links that these share; private to this folder. */
#ifndef PD_PLANNER_MAP_H
#define PD_PLANNER_MAP_H

#include "planner/cost.h"

#include <stdbool.h>

struct pd_map {
	const struct pd_topology *topology;     /* borrowed */
	int devices;
	int64_t size[PD_MAX_LEVELS + 1];        /* devices of a component below level k */
	int *start[PD_MAX_LEVELS + 1];          /* of each device's component: its first device */
	int64_t width[PD_MAX_LEVELS];           /* bandwidth of a way whose outermost level is k */
	double ns_per_byte[PD_MAX_LEVELS];      /* of a link of level k */
	int unit;                       /* devices after which all-reduces are the same again */
	/* for each first device below unit and count; once, where these are too many: map.c */
	double *most, *known;
	size_t stride;                  /* doubles of a row of `known` */
};

struct pd_span { int begin, end; };     /* devices */

struct pd_span_load {                   /* of a stage on links */
	const struct pd_span *own, *next;       /* next: NULL behind the last stage */
	int64_t out_bytes;              /* to the next stage, per minibatch */
	double piece, group;            /* bytes of the all-reduce's pieces; minibatches of it */
};

void pd_map_init(struct pd_map *map, const struct pd_topology *topology, int devices);
void pd_map_release(struct pd_map *map);

/* How long an all-reduce of such pieces takes. */
int64_t pd_map_reduce_ns(const struct pd_map *map, const struct pd_span *span, double piece);
/* One transfer from a stage to one at a lower place, at its slowest. */
int64_t pd_map_way_ns(const struct pd_map *map, const struct pd_span *a, const struct pd_span *b,
		      int64_t bytes);

/*
 * Do the links carry the stage within a time?  Where its first device is in a component with
 * others behind it, what those put on its link, behind_ns per level, comes to it.  What the
 * component of its last device has to carry so far is left in load_ns.
 */
bool pd_map_holds(const struct pd_map *map, const struct pd_span_load *load,
		  const double *behind_ns, double time, double *load_ns);

/*
 * Do the links of components that end with a stage carry what comes to it from the one before, with
 * what they have to carry so far, load_ns as left by pd_map_holds?  If not, that says no of every
 * stage before it.
 */
bool pd_map_takes(const struct pd_map *map, const struct pd_span *own, int64_t in_bytes,
		  const double *load_ns, double time);

#endif
