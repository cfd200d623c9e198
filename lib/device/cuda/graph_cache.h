/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Passes that come again and again: a stage's buffers are taken in turns, so the same layers
 * meet the same addresses every few minibatches.  This keeps apart what differs, counts, and
 * holds what was made of the passes that are seen again (graph.c); it knows nothing of CUDA.
 * test/unit/cuda-graph-cache.c.
 */
#ifndef PD_DEVICE_CUDA_GRAPH_CACHE_H
#define PD_DEVICE_CUDA_GRAPH_CACHE_H

#include "device/device.h"

#define PD_GRAPH_CACHE_KEYS 256		/* passes that are told apart; those after are not kept */

/* All that the work of a pass depends on, but for what struct pd_pass_numbers holds. */
struct pd_graph_key {
	int from, count;
	enum pd_backward_part part;
	bool backward, evaluate, again;
	bool iteration;                 /* the forward belongs to it, and an update if `updates` is set */
	bool updates;
	enum pd_update_kind update;
	const void *weights, *scale;
	void *state, *gradients, *inbox, *slot, *scratch, *gradient_in, *gradient_out;
	const void *old, *made;         /* the update reads these weights and gradients */
	void *next, *velocity, *second, *master;
};

struct pd_graph_entry {
	struct pd_graph_key key;
	int seen;                       /* times; 0: the place is free */
	bool never;                     /* it is not worth keeping */
	void *made;                     /* the caller's; NULL before */
	const void *note;               /* the caller's, too */
};

struct pd_graph_cache {
	int count;
	struct pd_graph_entry entries[2 * PD_GRAPH_CACHE_KEYS]; /* by hash, then the next free */
};

/* What a forward does not touch does not tell two of them apart; nor backward's the other way. */
struct pd_graph_key pd_graph_key(const struct pd_pass *pass, bool backward, int from,
				 int count);
/* update: NULL if there is none. */
struct pd_graph_key pd_graph_key_of_iteration(const struct pd_pass *pass,
					      const struct pd_update *update, int from,
					      int count);
/* One more such pass: its place, with seen one more; NULL: there is no room for another. */
struct pd_graph_entry *pd_graph_cache_see(struct pd_graph_cache *repeats,
					  const struct pd_graph_key *key);

#endif
