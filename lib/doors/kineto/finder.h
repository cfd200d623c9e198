/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of pd_kineto_passes(): what is known of a trace's calls while passes and layers are looked for. */
#pragma once

#include "doors/kineto/passes.h"

enum pd_kineto_item_kind { PD_KINETO_ITEM_MARK, PD_KINETO_ITEM_CALL, PD_KINETO_ITEM_NODE };

/* What happened, in the processor's order. */
struct pd_kineto_item {
	int64_t at_ns;
	enum pd_kineto_item_kind kind;
	int index;
};

/* Where a call belongs. */
struct pd_kineto_place {
	int pass, layer;                /* -1: nowhere */
	int nodes;                      /* that belong to it */
};

/* A pass while layers are looked for. */
struct pd_kineto_shape {
	int64_t at_ns;
	uint64_t hash;                  /* of its layers */
	int layers, nodes;
};

struct pd_kineto_finder {
	const struct pd_kineto_walk *walk;
	struct pd_kineto_passes *to;
	size_t count;
	struct pd_kineto_item *items;
	struct pd_kineto_place *places; /* per call; of a recomputation, of what it repeats */
	size_t shape_capacity;
	struct pd_kineto_shape *shapes; /* per pass, as many as the passes of `to` */
	int *whole;                     /* per pass, its number among the whole ones; -1: it is none */
};

/* Returns what is equal for calls of one module, or of one operator in one. */
static inline int64_t pd_kineto_key(const struct pd_kineto_walk *walk, int call)
{
	return ((int64_t)walk->calls[call].scope + 1) << 32 | walk->calls[call].name;
}

/* Tells whether a call is a layer of its pass; what it has is another's otherwise. */
static inline bool pd_kineto_is_layer(const struct pd_kineto_finder *f, int call)
{
	return f->walk->calls[call].module || f->places[call].nodes > 0;
}

/* Returns after how many keys these repeat themselves, up to the end; all of them: they do not. */
int pd_kineto_period(const int64_t *keys, int count);
/* Returns, of each recomputation, the call that it repeats, for the caller to free; -1: there is none. */
int *pd_kineto_bases(const struct pd_kineto_finder *finder);
/*
 * Splits passes whose layers are several times the same: forwards of several microbatches without a backward between
 * them.  Calls know their passes and layers, and shapes how many layers there are.
 */
void pd_kineto_split(struct pd_kineto_finder *finder);
/* Names the layers after the calls of the first whole pass, and gives them the times of all. */
void pd_kineto_fill(struct pd_kineto_finder *finder, int first);
