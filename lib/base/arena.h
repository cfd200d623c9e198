/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host memory that is taken piece by piece and given back all at once, so that what is used
 * together lies together.  Where there is much of it, in large pages.
 */
#ifndef PD_BASE_ARENA_H
#define PD_BASE_ARENA_H

#include <stddef.h>

/* All zero: nothing yet. */
struct pd_arena {
	struct pd_arena_block *blocks;
	char *at;
	size_t left, last_bytes;        /* of the last block: there, in all */
};

/* Zeroed; pieces of whole cache lines begin at one, others at a multiple of 16 bytes. */
void *pd_arena_take(struct pd_arena *arena, size_t count, size_t bytes);
void pd_arena_release(struct pd_arena *arena);

#endif
