/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A block, repeated and squeezed (the building blocks of Qi et al., 2024, in the form of Primus).  All stands on a
 * grid of slots, whatever its real costs: first the passes F and I of all microbatches, as the block says, then each W
 * in the first slot that is idle.  Then all that can is moved to earlier slots, without keeping more at once.
 */
#include "order/made.h"

#include "base/mem.h"

#include <stdlib.h>

struct grid {
	const struct pd_order_block *block;
	int microbatches, slots;
	int *at;                        /* [position][slot]: the operation there, 1 + (pass S + stage) m + i; or 0 */
	int *slot;                      /* [pass][stage][microbatch]; -1: nowhere */
	int *kept;                      /* [position][slot]: microbatches whose F has begun and whose W has not ended */
	int most;                       /* of any of these at first */
	int *last_forward;              /* per position: its slot, behind which the position cools down */
};

struct item {
	enum pd_order_pass pass;
	int stage, microbatch;
};

static int *at(const struct grid *g, int position, int slot)
{
	return &g->at[(int64_t)position * g->slots + slot];
}

static int *kept(const struct grid *g, int position, int slot)
{
	return &g->kept[(int64_t)position * g->slots + slot];
}

static int *slot_of(const struct grid *g, enum pd_order_pass pass, int stage, int microbatch)
{
	return &g->slot[((int64_t)pass * g->block->stages + stage) * g->microbatches + microbatch];
}

static struct item item_at(const struct grid *g, int position, int slot)
{
	int code = *at(g, position, slot) - 1, of_stage = code / g->microbatches;

	return (struct item){ .pass = (enum pd_order_pass)(of_stage / g->block->stages),
			      .stage = of_stage % g->block->stages, .microbatch = code % g->microbatches };
}

static int position_of(const struct grid *g, const struct item *item)
{
	return g->block->position_of[item->stage];
}

static void put(struct grid *g, const struct item *item, int slot)
{
	*at(g, position_of(g, item), slot) =
		1 + ((int)item->pass * g->block->stages + item->stage) * g->microbatches + item->microbatch;
	*slot_of(g, item->pass, item->stage, item->microbatch) = slot;
}

static void take_slot_of(struct grid *g, const struct item *item)
{
	int *slot = slot_of(g, item->pass, item->stage, item->microbatch);

	*at(g, position_of(g, item), *slot) = 0;
	*slot = -1;
}

/* Returns the first slot behind `behind` in which a position is idle. */
static int idle_behind(const struct grid *g, int position, int behind)
{
	int slot = behind + 1;

	while (*at(g, position, slot))
		slot++;
	return slot;
}

/* Puts each W of a position into the first idle slot, in the order of their I. */
static void put_weights(struct grid *g, int position)
{
	struct item *waiting = pd_calloc((size_t)g->slots, sizeof(*waiting));
	int first = 0, end = 0;

	for (int slot = 0; slot < g->slots; slot++) {
		if (*at(g, position, slot)) {
			struct item item = item_at(g, position, slot);

			if (item.pass == PD_ORDER_I)
				waiting[end++] = (struct item){ PD_ORDER_W, item.stage, item.microbatch };
		} else if (first < end) {
			put(g, &waiting[first++], slot);
		}
	}
	free(waiting);
}

static void count_kept(struct grid *g, int position)
{
	int count = 0;

	for (int slot = 0; slot < g->slots; slot++) {
		bool any = *at(g, position, slot);
		struct item item = any ? item_at(g, position, slot) : (struct item){ PD_ORDER_I, 0, 0 };

		count += item.pass == PD_ORDER_F;
		*kept(g, position, slot) = count;
		g->most = count > g->most ? count : g->most;
		count -= item.pass == PD_ORDER_W;
	}
}

static struct grid begin(const struct pd_order_block *block, int microbatches)
{
	struct grid g = { .block = block, .microbatches = microbatches };
	int last = 0;

	for (int n = 0; n < PD_ORDER_SPLIT * block->stages; n++)
		last = block->slot[n] > last ? block->slot[n] : last;
	g.slots = last + 1 + block->period * (microbatches + 1);
	g.at = pd_calloc((size_t)block->positions * (size_t)g.slots, sizeof(*g.at));
	g.kept = pd_calloc((size_t)block->positions * (size_t)g.slots, sizeof(*g.kept));
	g.slot = pd_calloc((size_t)PD_ORDER_SPLIT * (size_t)block->stages * (size_t)microbatches, sizeof(*g.slot));
	g.last_forward = pd_calloc((size_t)block->positions, sizeof(*g.last_forward));
	for (int pass = PD_ORDER_F; pass <= PD_ORDER_I; pass++)
		for (int s = 0; s < block->stages; s++)
			for (int i = 0; i < microbatches; i++)
				put(&g, &(struct item){ (enum pd_order_pass)pass, s, i },
				    block->slot[pass * block->stages + s] + block->period * i);
	for (int q = 0; q < block->positions; q++) {
		put_weights(&g, q);
		count_kept(&g, q);
	}
	return g;
}

static int later(int slot, int other)
{
	return slot > other ? slot : other;
}

/* Returns the last slot of what an operation must stand behind, or -1. */
static int inputs(const struct grid *g, const struct item *item)
{
	int s = item->stage, i = item->microbatch, slot = -1;

	if (item->pass != PD_ORDER_W && i > 0)
		slot = *slot_of(g, item->pass, s, i - 1);
	switch (item->pass) {
	case PD_ORDER_F:
		return s > 0 ? later(slot, *slot_of(g, PD_ORDER_F, s - 1, i)) : slot;
	case PD_ORDER_I:
		slot = later(slot, *slot_of(g, PD_ORDER_F, s, i));
		return s + 1 < g->block->stages ? later(slot, *slot_of(g, PD_ORDER_I, s + 1, i)) : slot;
	default:
		return *slot_of(g, PD_ORDER_I, s, i);
	}
}

/* Returns the first slot to which an operation can be moved without keeping more than `most`, or its own. */
static int better(const struct grid *g, const struct item *item, int slot)
{
	int position = position_of(g, item), low = inputs(g, item) + 1, first = slot;

	for (int to = slot - 1; to >= low; to--) {
		if (item->pass == PD_ORDER_F && *kept(g, position, to) >= g->most)
			break;
		if (!*at(g, position, to))
			first = to;
	}
	return first;
}

static void move(struct grid *g, const struct item *item, int from, int to)
{
	int position = position_of(g, item);
	int change = item->pass == PD_ORDER_F ? 1 : item->pass == PD_ORDER_W ? -1 : 0;

	take_slot_of(g, item);
	put(g, item, to);
	/* A W keeps what it needs until its slot ends. */
	for (int slot = to; slot < from && change; slot++)
		*kept(g, position, slot + (change < 0)) += change;
}

static void move_all(struct grid *g)
{
	for (int slot = 0; slot < g->slots; slot++)
		for (int q = 0; q < g->block->positions; q++) {
			struct item item;
			int to;

			if (!*at(g, q, slot))
				continue;
			item = item_at(g, q, slot);
			to = better(g, &item, slot);
			if (to < slot)
				move(g, &item, slot, to);
		}
}

/* Takes out the W's behind a position's last forward; returns how many these are. */
static int take_weights(struct grid *g, int position, struct item *taken)
{
	int count = 0;

	for (int slot = g->last_forward[position] + 1; slot < g->slots; slot++)
		if (*at(g, position, slot)) {
			struct item item = item_at(g, position, slot);

			if (item.pass != PD_ORDER_W)
				continue;
			taken[count++] = item;
			take_slot_of(g, &item);
		}
	return count;
}

/* Moves the I's that are behind their positions' last forwards. */
static void move_ends(struct grid *g)
{
	for (int slot = 0; slot < g->slots; slot++)
		for (int q = 0; q < g->block->positions; q++) {
			struct item item;
			int to;

			if (!*at(g, q, slot) || slot <= g->last_forward[q])
				continue;
			item = item_at(g, q, slot);
			to = idle_behind(g, q, inputs(g, &item));
			if (to < slot) {
				take_slot_of(g, &item);
				put(g, &item, to);
			}
		}
}

/* Where a position has no forward left, gradients go before weights, which others do not wait for. */
static void cool_down(struct grid *g)
{
	int positions = g->block->positions;
	struct item *taken = pd_calloc((size_t)positions * (size_t)g->slots, sizeof(*taken));
	int *count = pd_calloc((size_t)positions, sizeof(*count));

	for (int q = 0; q < positions; q++) {
		for (int slot = 0; slot < g->slots; slot++)
			if (*at(g, q, slot) && item_at(g, q, slot).pass == PD_ORDER_F)
				g->last_forward[q] = slot;
		count[q] = take_weights(g, q, taken + (int64_t)q * g->slots);
	}
	move_ends(g);
	for (int q = 0; q < positions; q++)
		for (int k = 0; k < count[q]; k++) {
			struct item *item = &taken[(int64_t)q * g->slots + k];

			put(g, item, idle_behind(g, q, *slot_of(g, PD_ORDER_I, item->stage, item->microbatch)));
		}
	free(taken);
	free(count);
}

static struct pd_order *order_of(const struct grid *g)
{
	const struct pd_order_block *block = g->block;
	struct pd_order *order = pd_order_new(block->positions, block->stages, g->microbatches, block->position_of);

	for (int q = 0; q < block->positions; q++)
		for (int slot = 0; slot < g->slots; slot++)
			if (*at(g, q, slot)) {
				struct item item = item_at(g, q, slot);

				pd_order_add(order, item.pass, item.stage, item.microbatch);
			}
	return order;
}

struct pd_order *pd_order_squeeze(const struct pd_order_block *block, int microbatches)
{
	struct grid g = begin(block, microbatches);
	struct pd_order *order;

	move_all(&g);
	cool_down(&g);
	order = order_of(&g);
	free(g.at);
	free(g.kept);
	free(g.slot);
	free(g.last_forward);
	return order;
}

struct pd_order *pd_order_v_half(int positions, int microbatches)
{
	struct pd_order_block block;
	struct pd_order *order;

	pd_order_block_v_half(positions, &block);
	order = pd_order_squeeze(&block, microbatches);
	pd_order_block_release(&block);
	return order;
}

struct pd_order *pd_order_v_min(int positions, int microbatches)
{
	struct pd_order_block block;
	struct pd_order *order;

	pd_order_block_v_min(positions, &block);
	order = pd_order_squeeze(&block, microbatches);
	pd_order_block_release(&block);
	return order;
}
