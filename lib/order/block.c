/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks: where the passes of one microbatch stand, so that it can be repeated (Qi et al., 2024). */
#include "order/made.h"

#include "base/mem.h"

#include <stdlib.h>

static int *slot_of(const struct pd_order_block *block, enum pd_order_pass pass, int stage)
{
	return &block->slot[(int)pass * block->stages + stage];
}

/* Which slots of the period are taken at each position. */
struct residues {
	const struct pd_order_block *block;
	bool *taken;                    /* [position][residue] */
};

static bool *residue(const struct residues *r, int position, int slot)
{
	return &r->taken[position * r->block->period + slot % r->block->period];
}

/* One way through the stages of a chunk, from the first to the last of them. */
struct way {
	enum pd_order_pass pass;
	int first, step, count, hop;    /* stages first, first + step and so on, hop slots each */
};

/*
 * Puts a way behind a slot, by as few slots later as there is room for, but at least so many; returns its last slot,
 * or -1.
 */
static int put_way(struct residues *r, const struct way *way, int behind, int least)
{
	const struct pd_order_block *block = r->block;
	int last = behind + 1 + (way->count - 1) * way->hop;

	for (int shift = least; shift < least + block->period; shift++) {
		bool room = true;

		for (int k = 0; k < way->count && room; k++)
			room = !*residue(r, block->position_of[way->first + k * way->step],
					 behind + 1 + shift + k * way->hop);
		for (int k = 0; k < way->count && room; k++) {
			int stage = way->first + k * way->step, slot = behind + 1 + shift + k * way->hop;

			*residue(r, block->position_of[stage], slot) = true;
			*slot_of(block, way->pass, stage) = slot;
		}
		if (room)
			return last + shift;
	}
	return -1;
}

/* Puts the W of a stage into the first free slot behind its I. */
static void put_weight(struct residues *r, int stage)
{
	int slot = *slot_of(r->block, PD_ORDER_I, stage) + 1, position = r->block->position_of[stage];

	while (*residue(r, position, slot))
		slot++;
	*residue(r, position, slot) = true;
	*slot_of(r->block, PD_ORDER_W, stage) = slot;
}

/* The stages are chunks of as many stages as there are positions. */
static bool put_ways(struct residues *r, int hop, int turn)
{
	int p = r->block->positions, chunks = r->block->stages / p, behind = -1;

	for (int leg = 0; leg < 2 * chunks; leg++) {
		bool forward = leg < chunks;
		int chunk = forward ? leg : 2 * chunks - 1 - leg;
		struct way way = {
			.pass = forward ? PD_ORDER_F : PD_ORDER_I, .count = p, .step = forward ? 1 : -1,
			.first = forward ? chunk * p : chunk * p + p - 1,
			.hop = chunks == 1 || chunk % 2 == !forward ? hop : 1,
		};

		behind = put_way(r, &way, behind, leg == chunks ? turn : 0);
		if (behind < 0)
			return false;
	}
	for (int s = r->block->stages - 1; s >= 0; s--)
		put_weight(r, s);
	return true;
}

bool pd_order_block_of(const int *position_of, int positions, int stages, int hop, int turn,
		       struct pd_order_block *block)
{
	struct residues r = { .block = block };
	bool found;

	*block = (struct pd_order_block){
		.positions = positions, .stages = stages, .period = 3 * (stages / positions),
		.position_of = pd_memdup(position_of, (size_t)stages * sizeof(*position_of)),
		.slot = pd_calloc((size_t)PD_ORDER_SPLIT * (size_t)stages, sizeof(*block->slot)),
	};
	r.taken = pd_calloc((size_t)positions * (size_t)block->period, sizeof(*r.taken));
	found = put_ways(&r, hop, turn);
	free(r.taken);
	if (!found)
		pd_order_block_release(block);
	return found;
}

static void make_v(int positions, int hop, int turn, struct pd_order_block *block)
{
	int stages = 2 * positions, *position_of = pd_calloc((size_t)stages, sizeof(*position_of));

	for (int s = 0; s < stages; s++)
		position_of[s] = pd_order_v(positions, s);
	if (!pd_order_block_of(position_of, positions, stages, hop, turn, block))
		pd_bug("no block of %d positions and %d slots from one to the next", positions, hop);
	free(position_of);
}

void pd_order_block_v_half(int positions, struct pd_order_block *block)
{
	make_v(positions, 2, positions % 2 == 0 ? 3 : 0, block);
}

void pd_order_block_v_min(int positions, struct pd_order_block *block)
{
	make_v(positions, 1, positions % 3 == 0 ? 2 : 0, block);
}

void pd_order_block_release(struct pd_order_block *block)
{
	free(block->position_of);
	free(block->slot);
	*block = (struct pd_order_block){ 0 };
}
