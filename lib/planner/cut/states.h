/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The states of a network: the sets of layers that the first stages of a pipeline may
 * consist of.
 *
 * A state contains the inputs of its layers; a pipeline is a chain of states from the empty
 * one to the whole network, and a stage is what a state has more than the one before.  A
 * chain of layers with N layers has N + 1 states, a network with branches can have any
 * number up to 2^N.
 *
 * States are numbered so that those contained in a state come before it: by compute time,
 * then by number of layers, then by the sets themselves.  Number 0 is empty, the last is
 * the whole network.  Layers that share parameters are in one stage, unless they have copies:
 * no state separates them.  Where the profile has a model, and so a plan can be run, no state changes the order
 * in which the gradients of a tensor are summed (lib/plan/wiring): of n uses of a tensor, in
 * the profile's order, a state contains the first few, or all but the last two and either
 * of those.
 */
#pragma once

#include "profile/profile.h"

#include <stdbool.h>
#include <stdint.h>

enum pd_states_rule {
	PD_STATES_ALL,          /* every set that contains the inputs of its layers */
	PD_STATES_COPIES,       /* the same, where layers that share parameters have a copy each */
	/*
	 * Those that PipeDream's released program looks at: from the first layer without
	 * inputs, a state grows by a layer that uses one of its own, and by all that this
	 * layer needs.  Other layers without inputs thus come with what uses them.
	 */
	PD_STATES_RELEASED,
};

/*
 * How many states are held at most.  A network that has more gets those of the network
 * whose chains inside branches are one layer each, if they are few enough, those that hold
 * one layer and all it needs, those that the profile's own order goes through, and those that have
 * one layer more than another, as far as there is room: each is a state, so a plan made of them is
 * one, but a better one may be missing.
 */
#define PD_STATES_MOST 4096     /* of a network with no more */
#define PD_STATES_SOME 2048     /* of a network with more */
#define PD_STATES_BYTES (INT64_C(16) << 20)    /* of sets */

struct pd_states {
	const struct pd_profile *profile;       /* borrowed */
	int count;
	bool whole;                             /* no state is missing */
	size_t words;                           /* per set, of 64 layers each */
	uint64_t *sets;                         /* [count][words] */
	/* The rest has count entries each. */
	int *layer_count;
	int64_t *compute_ns;                    /* forward, backward, update */
	int64_t *parameter_bytes;               /* shared parameters once, copies all */
	int64_t *cut_bytes;                     /* of the tensors made inside and used outside */
};

/* Borrows profile, which has at least one layer.  The same profile gives the same states. */
void pd_states_init(struct pd_states *states, const struct pd_profile *profile,
		    enum pd_states_rule rule);
void pd_states_release(struct pd_states *states);

/* A set of layers has bit l % 64 of word l / 64 for layer l. */
static inline bool pd_set_has(const uint64_t *set, int layer)
{
	return set[layer / 64] >> (layer % 64) & 1;
}

static inline void pd_set_put(uint64_t *set, int layer)
{
	set[layer / 64] |= UINT64_C(1) << (layer % 64);
}

static inline const uint64_t *pd_states_set(const struct pd_states *states, int state)
{
	return &states->sets[(size_t)state * states->words];
}

static inline bool pd_states_has(const struct pd_states *states, int state, int layer)
{
	return pd_set_has(pd_states_set(states, state), layer);
}

/* Tells whether a is contained in b, or equal. */
bool pd_states_within(const struct pd_states *states, int a, int b);

/*
 * Makes the order of layers in a pipeline whose stages end with the given states, ascending, the
 * last of them the whole network, and the number of layers of each stage.  Inside a stage the order
 * is the profile's.  The caller frees both arrays; the order is NULL if it is the profile's.
 */
void pd_states_layers(const struct pd_states *states, const int *ends, int stage_count,
		      int **layers_p, int **order_p);
