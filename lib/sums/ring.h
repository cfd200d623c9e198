/* SPDX-License-Identifier: Apache-2.0 */
/* A ring of all members of a sum, or of some. */
#pragma once

#include "sums/reducer.h"

struct pd_ring {
	struct pd_script *script;       /* with slots of the longest piece in its staging: two, of two members one */
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

/* Returns the bytes of its slots; plain: all are. */
int64_t pd_ring_staging_bytes(enum pd_dtype dtype, size_t floats, int n, bool plain);
/*
 * Returns twice the n-ths of the buffer that one sends: parts of sums are of f32, one's own gradients, where
 * these are plain, and sums of all may be of 16 bits.
 */
int64_t pd_ring_halves(enum pd_dtype dtype, int64_t n, bool plain);
/*
 * Returns the time of the 2 (n - 1) steps, whose transfers take transfer_ns in all, in so many parts each: a part
 * is on its way while the one behind it leaves.
 */
int64_t pd_ring_ns(__int128 transfer_ns, int64_t latency_ns, int64_t n, int parts);
