/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orders that formulas make, for any number of positions from 1 and of microbatches from 1.  All are certified
 * by tests.  Costs are not asked for.
 */
#pragma once

#include "order/order.h"

/* 1F1B, and ZB-H1: one stage a position. */
struct pd_order *pd_order_1f1b(int positions, int microbatches);
struct pd_order *pd_order_zb_h1(int positions, int microbatches);
/*
 * Megatron's: stages in a loop; each position takes `group` microbatches, at least as many as positions, through
 * each of its chunks in turn.  A last group that is not whole is one of which microbatches are left out.
 */
struct pd_order *pd_order_interleaved(int positions, int chunks, int microbatches, int group);
/* Two chunks, in a V.  ZB-V keeps as much as 1F1B's first position, everywhere; without a bubble where F, I and W
 * take as long as each other and there are 2 positions - 1 microbatches or more. */
struct pd_order *pd_order_zb_v(int positions, int microbatches);
/* Two chunks, in a V, with pairs; microbatches below 2 positions are those of a longer order. */
struct pd_order *pd_order_dualpipe_v(int positions, int microbatches);
/* Two chunks, in a V, that keep about half and a third of what 1F1B's first position does. */
struct pd_order *pd_order_v_half(int positions, int microbatches);
struct pd_order *pd_order_v_min(int positions, int microbatches);

/*
 * Makes an order of more microbatches, which repeats what each position does in the middle of another one; NULL where
 * that does not repeat.
 */
struct pd_order *pd_order_extend(const struct pd_order *order, int microbatches);

/*
 * A block: the slots of one microbatch's passes, which is repeated every `period` slots, three for each chunk of a
 * position, without two passes of a position in one slot.  That is an order without an end, which keeps every
 * position busy.
 */
struct pd_order_block {
	int positions, stages, period;
	int *position_of;               /* per stage */
	int *slot;                      /* [F, I, W][stage] */
};

/*
 * Makes a block: stages go up through the positions and the gradients down, `hop` slots from one to the next on
 * every second way, else 1; the first I comes at least `turn` slots later than it could.  Returns false where there
 * is none; then block is empty.
 */
bool pd_order_block_of(const int *position_of, int positions, int stages, int hop, int turn,
		       struct pd_order_block *block);
/* Those of V-Half and V-Min. */
void pd_order_block_v_half(int positions, struct pd_order_block *block);
void pd_order_block_v_min(int positions, struct pd_order_block *block);
void pd_order_block_release(struct pd_order_block *block);
/* Repeats F and I of a block for so many microbatches and moves all together. */
struct pd_order *pd_order_squeeze(const struct pd_order_block *block, int microbatches);
