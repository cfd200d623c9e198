/* SPDX-License-Identifier: Apache-2.0 */
/* Loads of shared links by stages on a line of devices; private to this folder. */
#pragma once

#include "predict/cost.h"

#include <stdbool.h>

/* An all-reduce of pieces of one byte: the load of its busiest link. */
struct pd_map_reduce {
	int begin, count;               /* in a component of the outermost level; 0: not known */
	double most;
};

struct pd_map {
	const struct pd_topology *topology;     /* borrowed */
	int devices;
	int64_t size[PD_MAX_LEVELS + 1];        /* devices of a component below level k */
	int *start[PD_MAX_LEVELS + 1];          /* per device: the first device of its component */
	int64_t width[PD_MAX_LEVELS];           /* bandwidth of a way whose outermost level is k */
	double ns_per_byte[PD_MAX_LEVELS];      /* of a link of level k */
	int *ranks;                     /* 0, 1, 2, ... */
	int64_t direct_bytes_per_s;     /* of sums in each other's memory; 0: there are none */
	struct pd_map_reduce *known;    /* all-reduces that were asked for */
	/*
	 * Of each, by level: the loads on the links of the first device, of the first component that
	 * begins in the stage, and of the last device.
	 */
	double (*loads)[3];
};

struct pd_span { int begin, end; };     /* devices */

struct pd_span_load {                   /* a stage on links */
	const struct pd_span *own, *next;       /* next is NULL behind the last stage */
	int64_t traffic_bytes;          /* in and out of the stage, per minibatch, one way */
	int64_t out_bytes;              /* over the cut behind it */
	double piece, group;            /* bytes of the all-reduce's pieces; minibatches per
					   all-reduce */
};

/* direct_bytes_per_s is that of struct pd_members; 0 where gradients travel in 16 bits. */
void pd_map_init(struct pd_map *map, const struct pd_topology *topology, int devices,
		 int64_t direct_bytes_per_s);
void pd_map_release(struct pd_map *map);

/* Returns the time of an all-reduce of such pieces. */
int64_t pd_map_reduce_ns(const struct pd_map *map, const struct pd_span *span, double piece);
/* Returns the time of the slowest transfer from a stage to one at a lower place. */
int64_t pd_map_way_ns(const struct pd_map *map, const struct pd_span *a, const struct pd_span *b,
		      int64_t bytes);

/*
 * Tells whether the links carry the stage within a time.  If its first device shares a component
 * with later stages, their load of its link, behind_ns per level, is added.  load_ns is set to the
 * load so far of the component of its last device.
 */
bool pd_map_holds(const struct pd_map *map, const struct pd_span_load *load,
		  const double *behind_ns, double time, double *load_ns);
