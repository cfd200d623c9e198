/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of layers, each once; private to states.c and lattice.c. */
#ifndef PD_PLANNER_LATTICE_H
#define PD_PLANNER_LATTICE_H

#include "planner/cut/states.h"

struct pd_lattice {
	const struct pd_profile *profile;
	size_t words;
	int most;                       /* limit of the number of sets */
	int count;
	uint64_t *sets;                 /* [count][words] */
	size_t capacity;                /* number of sets for which there is memory */
	int *table;                     /* hash table: number of a set, plus 1 */
	size_t table_size;              /* a power of two */
};

void pd_lattice_init(struct pd_lattice *lattice, const struct pd_profile *profile, int most);
void pd_lattice_release(struct pd_lattice *lattice);
/* Adds a set unless it is there; returns false if there is no room for it. */
bool pd_lattice_add(struct pd_lattice *lattice, const uint64_t *set);

/*
 * Adds all sets of a rule, or all of the network whose chains inside branches are one layer each;
 * returns false if they exceed lattice->most.
 */
bool pd_lattice_fill(struct pd_lattice *lattice, enum pd_states_rule rule, bool chains);
/* Adds each layer with all that it needs, as far as there is room. */
void pd_lattice_add_ideals(struct pd_lattice *lattice);

/* Adds each set with one more layer, as far as there is room. */
void pd_lattice_add_next(struct pd_lattice *lattice);

enum pd_lattice_order {
	PD_ORDER_PROFILE, PD_ORDER_LEAST_BYTES, PD_ORDER_DEPTH_FIRST, PD_ORDER_LAST_BRANCH_FIRST,
	PD_ORDERS
};

/*
 * Adds the sets on the way of a topological order.  If there is not enough room, it takes those
 * with the fewest bytes cut, within equal pieces of compute time.
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
