/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stage's buffers are used in turns, so the same layers get the same addresses every few
 * minibatches.  This cache tells passes apart, counts them, and holds what graph.c makes of those
 * that are seen again.  It does not depend on CUDA (test/unit/cuda-graph-cache.c).
 */
#pragma once

#include "engine/device/device.h"

#define PD_GRAPH_CACHE_KEYS 256		/* the most different passes; later ones are not kept */

/* A key has all that the work of a pass depends on, except struct pd_pass_numbers. */
struct pd_graph_key {
	int from, count;
	enum pd_backward_part part;
	bool backward, evaluate, again;
	bool iteration;                 /* the forward is part of an iteration, with an update if `updates` */
	bool updates;
	enum pd_optimizer_kind update;
	const void *weights, *scale;
	void *state, *gradients, *inbox, *slot, *kept, *scratch, *gradient_in, *gradient_out;
	const void *old, *made;         /* the update reads these weights and gradients */
	void *next, *velocity, *second, *master;
};

struct pd_graph_entry {
	struct pd_graph_key key;
	int seen;                       /* how often; 0: the entry is free */
	bool never;                     /* the pass is not worth keeping */
	void *made;                     /* the caller's result; NULL before */
	const void *note;               /* for the caller's use */
};

struct pd_graph_cache {
	int count;
	/* at the hash's place, or the next free one */
	struct pd_graph_entry entries[2 * PD_GRAPH_CACHE_KEYS];
};

/* Makes the key of a forward or backward; buffers that it does not touch do not count. */
struct pd_graph_key pd_graph_key(const struct pd_pass *pass, bool backward, int from,
				 int count);
/* update: NULL where the iteration has none. */
struct pd_graph_key pd_graph_key_of_iteration(const struct pd_pass *pass,
					      const struct pd_update *update, int from,
					      int count);
/*
 * Returns how many of n works that came together, from the first on, are one graph: a forward and its backward,
 * with an update before them or without; or 1.  An update is joined if the graph can read all its numbers that
 * change from device memory (struct pd_pass_numbers).
 */
int pd_graph_joint(const struct pd_work *works, int n);
/* Counts one more such pass and returns its entry; NULL: the cache is full. */
struct pd_graph_entry *pd_graph_cache_see(struct pd_graph_cache *repeats,
					  const struct pd_graph_key *key);
