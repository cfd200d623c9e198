/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of layers, each once; private to states.c and lattice.c. */
#ifndef PD_PLANNER_LATTICE_H
#define PD_PLANNER_LATTICE_H

#include "planner/states.h"

struct pd_lattice {
	const struct pd_profile *profile;
	size_t words;
	int most;                       /* sets */
	int count;
	uint64_t *sets;                 /* [count][words] */
	size_t capacity;                /* sets there is room for */
	int *table;                     /* hashes: a set's number + 1 */
	size_t table_size;              /* a power of two */
};

void pd_lattice_init(struct pd_lattice *lattice, const struct pd_profile *profile, int most);
void pd_lattice_release(struct pd_lattice *lattice);
/* Adds a set unless it is there; false when it is not, and there is no room. */
bool pd_lattice_add(struct pd_lattice *lattice, const uint64_t *set);

/*
 * All sets of a rule, or of the network whose chains inside branches are one layer each;
 * false when they are more than lattice->most.
 */
bool pd_lattice_fill(struct pd_lattice *lattice, enum pd_states_rule rule, bool chains);
/* Each layer with all it needs, as far as there is room. */
void pd_lattice_add_ideals(struct pd_lattice *lattice);

/* Each set that is there with one layer more, as far as there is room. */
void pd_lattice_add_next(struct pd_lattice *lattice);

enum pd_lattice_order {
	PD_ORDER_PROFILE, PD_ORDER_LEAST_BYTES, PD_ORDER_DEPTH_FIRST, PD_ORDER_LAST_BRANCH_FIRST,
	PD_ORDERS
};

/*
 * The sets that a topological order goes through; when there is room for fewer, those of the
 * least bytes cut within equal pieces of compute time.
 */
void pd_lattice_add_order(struct pd_lattice *lattice, enum pd_lattice_order which);

static inline bool pd_set_has(const uint64_t *set, int layer)
{
	return set[layer / 64] >> (layer % 64) & 1;
}

static inline void pd_set_put(uint64_t *set, int layer)
{
	set[layer / 64] |= UINT64_C(1) << (layer % 64);
}

#endif
