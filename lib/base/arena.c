/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include "base/error.h"
#include "base/mem.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#define FIRST_BYTES 4000                /* With malloc's own header this is a little less than a
					   page. */
#define MOST_BYTES  ((size_t)32 << 20)
#define LARGE_PAGE  ((size_t)2 << 20)

struct pd_arena_block {
	struct pd_arena_block *next;
	size_t mapped;                  /* bytes; 0: from malloc */
	char *begin;                    /* The mapping begins here. */
};

/* A mapped block begins at a large page. */
static struct pd_arena_block *map_block(size_t bytes)
{
	size_t all = bytes + LARGE_PAGE;
	char *begin = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct pd_arena_block *block;

	if (begin == MAP_FAILED)
		pd_mem_exhausted(all);
	block = (void *)(((uintptr_t)begin + LARGE_PAGE - 1) & ~(uintptr_t)(LARGE_PAGE - 1));
	madvise(block, bytes, MADV_HUGEPAGE);   /* A refusal does no harm. */
	block->mapped = all;
	block->begin = begin;
	return block;
}

static void add_block(struct pd_arena *arena, size_t need)
{
	size_t bytes = arena->last_bytes ? 2 * arena->last_bytes : FIRST_BYTES;
	size_t header = pd_align(sizeof(struct pd_arena_block));
	struct pd_arena_block *block;

	if (bytes > MOST_BYTES)
		bytes = MOST_BYTES;
	if (bytes < need + header + PD_ALIGN)
		bytes = need + header + PD_ALIGN;
	block = bytes >= LARGE_PAGE ? map_block(bytes) : pd_zalloc(bytes);
	block->next = arena->blocks;
	arena->blocks = block;
	arena->at = (char *)block + sizeof(*block);
	arena->left = bytes - sizeof(*block);
	arena->last_bytes = bytes;
}

void *pd_arena_take(struct pd_arena *arena, size_t count, size_t bytes)
{
	size_t align = bytes % PD_ALIGN == 0 ? PD_ALIGN : 16, skip;
	int64_t all;
	char *taken;

	if (!pd_mul((int64_t)count, (int64_t)bytes, &all) || all > INT64_MAX / 4)
		pd_mem_exhausted(SIZE_MAX);
	skip = -(uintptr_t)arena->at & (align - 1);
	if (skip + (size_t)all > arena->left) {
		add_block(arena, (size_t)all);
		skip = -(uintptr_t)arena->at & (align - 1);
	}
	taken = arena->at + skip;
	arena->at = taken + all;
	arena->left -= skip + (size_t)all;
	return taken;
}

void pd_arena_release(struct pd_arena *arena)
{
	for (struct pd_arena_block *block = arena->blocks, *next; block; block = next) {
		next = block->next;
		if (block->mapped)
			munmap(block->begin, block->mapped);
		else
			free(block);
	}
	*arena = (struct pd_arena){ 0 };
}
