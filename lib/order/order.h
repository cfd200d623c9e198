/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orders: in which order the positions of a pipeline compute the passes of one group of microbatches, each
 * position the ranks of all replicas at one place of it.  An order is a list per position, whatever made
 * it: a formula (made.h), a search (search.h) or a text.  Nothing here knows layers, links or weights.
 *
 * The forward F of a stage needs that of the stage before; the gradient of its input, I, its F and the I of
 * the stage behind; the gradient of its weights, W, its I.  B is I and W as one operation.
 *
 * One walk over all lists, which takes an operation when what it needs has been taken, gives each
 * a slot (walk.h); slots ascend in lists and from what is needed to what needs it, so they take
 * the place of a formula of ticks (schedule/pattern_ordered.c), and all else follows from them as
 * from any other.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pd_order_pass {
	PD_ORDER_F,
	PD_ORDER_I,
	PD_ORDER_W,
	PD_ORDER_B,
	PD_ORDER_PASSES
};

#define PD_ORDER_SPLIT PD_ORDER_B       /* passes that have times: a B has those of its I and its W */
#define PD_ORDER_LETTERS "FIWB"
#define PD_ORDER_PAIR_END ")OVERLAP_F_B"        /* behind the two of a pair in a text, as PyTorch writes it */

struct pd_order_op {
	uint8_t pass;                   /* enum pd_order_pass */
	bool beside;                    /* an F that may run together with the next operation of its position, a
					   B or an I: they are a pair */
	int32_t stage;
	int32_t microbatch;             /* of the group on one replica, from 0 */
};

struct pd_order {
	int positions, stages, microbatches;
	int *position_of;               /* per stage */
	bool splits;                    /* there are I and W, not B alone */
	struct pd_order_list {
		struct pd_order_op *ops;
		size_t count, capacity;
	} *lists;                       /* per position */
};

/* These return the position of a stage: one after the other, over and over; there and back again. */
static inline int pd_order_loop(int positions, int stage)
{
	return stage % positions;
}

static inline int pd_order_v(int positions, int stage)
{
	int chunk = stage / positions, place = stage % positions;

	return chunk % 2 == 0 ? place : positions - 1 - place;
}

typedef int pd_order_placement(int positions, int stage);

/* Makes an order with empty lists; position_of is copied. */
struct pd_order *pd_order_new(int positions, int stages, int microbatches, const int *position_of);
struct pd_order *pd_order_new_placed(int positions, int stages, int microbatches, pd_order_placement *place);
struct pd_order *pd_order_copy(const struct pd_order *order);
void pd_order_free(struct pd_order *order);
/* Appends an operation to the list of its stage's position. */
void pd_order_add(struct pd_order *order, enum pd_order_pass pass, int stage, int microbatch);
/* Appends F of one stage and B of another as a pair: both are of one position. */
void pd_order_add_pair(struct pd_order *order, int forward_stage, int forward, int backward_stage, int backward);
/* Makes every I a B, and leaves out the W's, which then come sooner. */
void pd_order_join(struct pd_order *order);
/*
 * Leaves out the microbatches from a number on.  What is left is as right as before.  Half a pair becomes plain.
 */
void pd_order_drop(struct pd_order *order, int microbatches);

/*
 * The text of a list: "0F0,0F1,7I0", stage, pass, microbatch; a pair is "(0F7;7B3)OVERLAP_F_B", as PyTorch
 * writes it.  What is returned is to be freed.
 */
char *pd_order_text(const struct pd_order *order, int position);
/*
 * Appends the operations of a text to a position's list.  Fails with what was expected where a text is none,
 * or a stage or microbatch is not of the order, or a stage is of another position.
 */
int pd_order_read(struct pd_order *order, int position, const char *text, struct pd_error *err);

/* A time of every pass F, I and W of every stage and microbatch; a B has it as I and as W. */
struct pd_order_times {
	int stages, microbatches;
	int64_t *of;                    /* [pass][stage][microbatch] */
};

static inline int64_t *pd_order_time(const struct pd_order_times *times, enum pd_order_pass pass, int stage,
				     int microbatch)
{
	return &times->of[((int64_t)pass * times->stages + stage) * times->microbatches + microbatch];
}

/* Makes times that are all 0. */
struct pd_order_times pd_order_times_new(int stages, int microbatches);
void pd_order_times_release(struct pd_order_times *times);

/*
 * Proves that an order is right, or refuses it: it has every F and every I and W, or B instead of the two, of
 * every stage and microbatch, once; those of a stage ascend; and none waits for ever, even if the two of a pair begin
 * together.  Sets the slot of each if slots is not NULL: from 0, ascending along every list and from what is needed to
 * what needs it, the least that are; the two of a pair have one.  Such slots are a proof that the order cannot
 * deadlock, even if every transfer blocks both ranks.  A refusal (PD_EXIT_NO) names the operation that is missing, twice there or too early; or the
 * operations for which the positions wait.  Takes as many steps as there are operations.
 */
int pd_order_certify(const struct pd_order *order, struct pd_order_times *slots, struct pd_error *err);
