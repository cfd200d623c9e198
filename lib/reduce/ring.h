/* SPDX-License-Identifier: Apache-2.0 */
/* The transfers and sums of a ring, written into a script: of all members of a sum, or of some. */
#pragma once

#include "reduce/script.h"

struct pd_ring {
	struct pd_script *script;       /* with two slots of the longest piece in its staging */
	int n, me;                      /* how many there are, at least 2; my place among them */
	int cuts;                       /* parts of a piece: pd_piece_parts() */
	int before, next;               /* the members of the sum beside me */
	int events, tag;                /* the first of 5 cuts (n - 1) events, of 2 cuts n tags */
	int ready, free;                /* events: my numbers may leave; the staging is free */
	bool plain, before_plain;       /* mine, and those of the one before, are one member's own */
};

/* Writes 4 cuts (n - 1) transfers, and 2 cuts (n - 1) steps; sums of all are then on their way. */
void pd_ring_write(const struct pd_ring *ring);
/* Writes 3 cuts (n - 1) waits, for all that leaves and comes. */
void pd_ring_wait(const struct pd_ring *ring);
