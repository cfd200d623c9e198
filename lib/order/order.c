/* SPDX-License-Identifier: Apache-2.0 */
#include "order/order.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct pd_order *pd_order_new(int positions, int stages, int microbatches, const int *position_of)
{
	struct pd_order *order = pd_zalloc(sizeof(*order));

	order->positions = positions;
	order->stages = stages;
	order->microbatches = microbatches;
	order->position_of = pd_memdup(position_of, (size_t)stages * sizeof(*position_of));
	order->lists = pd_calloc((size_t)positions, sizeof(*order->lists));
	return order;
}

struct pd_order *pd_order_new_placed(int positions, int stages, int microbatches, pd_order_placement *place)
{
	int *position_of = pd_calloc((size_t)stages, sizeof(*position_of));
	struct pd_order *order;

	for (int s = 0; s < stages; s++)
		position_of[s] = place(positions, s);
	order = pd_order_new(positions, stages, microbatches, position_of);
	free(position_of);
	return order;
}

struct pd_order *pd_order_copy(const struct pd_order *order)
{
	struct pd_order *copy = pd_order_new(order->positions, order->stages, order->microbatches,
					     order->position_of);

	copy->splits = order->splits;
	for (int q = 0; q < order->positions; q++) {
		const struct pd_order_list *list = &order->lists[q];

		copy->lists[q] = (struct pd_order_list){
			.ops = pd_memdup(list->ops, list->count * sizeof(*list->ops)),
			.count = list->count, .capacity = list->count,
		};
	}
	return copy;
}

void pd_order_free(struct pd_order *order)
{
	if (!order)
		return;
	for (int q = 0; q < order->positions; q++)
		free(order->lists[q].ops);
	free(order->lists);
	free(order->position_of);
	free(order);
}

static void add(struct pd_order *order, enum pd_order_pass pass, int stage, int microbatch, bool beside)
{
	struct pd_order_list *list = &order->lists[order->position_of[stage]];

	order->splits |= pass == PD_ORDER_I || pass == PD_ORDER_W;
	list->ops = pd_grow(list->ops, &list->capacity, list->count + 1, sizeof(*list->ops));
	list->ops[list->count++] = (struct pd_order_op){ .pass = (uint8_t)pass, .beside = beside, .stage = stage,
							 .microbatch = microbatch };
}

void pd_order_add(struct pd_order *order, enum pd_order_pass pass, int stage, int microbatch)
{
	add(order, pass, stage, microbatch, false);
}

void pd_order_add_pair(struct pd_order *order, int forward_stage, int forward, int backward_stage, int backward)
{
	add(order, PD_ORDER_F, forward_stage, forward, true);
	add(order, PD_ORDER_B, backward_stage, backward, false);
}

void pd_order_join(struct pd_order *order)
{
	for (int q = 0; q < order->positions; q++) {
		struct pd_order_list *list = &order->lists[q];
		size_t kept = 0;

		for (size_t k = 0; k < list->count; k++) {
			struct pd_order_op op = list->ops[k];

			if (op.pass == PD_ORDER_I)
				op.pass = PD_ORDER_B;
			if (op.pass != PD_ORDER_W)
				list->ops[kept++] = op;
		}
		list->count = kept;
	}
	order->splits = false;
}

void pd_order_drop(struct pd_order *order, int microbatches)
{
	for (int q = 0; q < order->positions; q++) {
		struct pd_order_list *list = &order->lists[q];
		size_t kept = 0;

		for (size_t k = 0; k < list->count; k++) {
			struct pd_order_op op = list->ops[k];

			if (op.beside && list->ops[k + 1].microbatch >= microbatches)
				op.beside = false;
			if (op.microbatch < microbatches)
				list->ops[kept++] = op;
		}
		list->count = kept;
	}
	if (microbatches < order->microbatches)
		order->microbatches = microbatches;
}

struct pd_order_times pd_order_times_new(int stages, int microbatches)
{
	return (struct pd_order_times){
		.stages = stages, .microbatches = microbatches,
		.of = pd_calloc((size_t)PD_ORDER_SPLIT * (size_t)stages * (size_t)microbatches, sizeof(int64_t)),
	};
}

void pd_order_times_release(struct pd_order_times *times)
{
	free(times->of);
	*times = (struct pd_order_times){ 0 };
}
