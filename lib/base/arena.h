/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An arena takes host memory piece by piece and gives it back all at once, so that what is used
 * together lies together.  Large arenas use large pages.
 */
#pragma once

#include <stddef.h>

/* An arena that is all zero is empty. */
struct pd_arena {
	struct pd_arena_block *blocks;
	char *at;
	size_t left, last_bytes;        /* bytes of the last block: unused, and in all */
};

/*
 * Pieces are zeroed.  A piece of whole cache lines begins at a cache line, any other at a multiple
 * of 16 bytes.
 */
void *pd_arena_take(struct pd_arena *arena, size_t count, size_t bytes);
void pd_arena_release(struct pd_arena *arena);
