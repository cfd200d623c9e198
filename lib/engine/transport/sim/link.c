/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers that wait for a link are kept in order. */
#include "engine/transport/sim/link.h"

#include "base/mem.h"

#include <stdlib.h>

#define FEW_GONE 16

static void *grow(void *array, uint32_t *capacity, uint32_t need, size_t bytes)
{
	size_t room = *capacity;

	if (need <= *capacity)
		return array;
	array = pd_grow(array, &room, need, bytes);
	*capacity = (uint32_t)room;
	return array;
}

void pd_sim_link_release(struct pd_sim_link *link)
{
	free(link->turns);
	free(link->hints);
}

void pd_sim_link_wait(struct pd_sim_link *link, uint64_t order, struct sim_transfer *x, uint32_t hint)
{
	link->turns = grow(link->turns, &link->turn_capacity, link->end + 1, sizeof(*link->turns));
	link->hints = grow(link->hints, &link->hint_capacity, link->end + 1, sizeof(*link->hints));
	link->hints[link->end] = hint;
	link->turns[link->end++] = (struct pd_sim_turn){ order, x };
}

static uint32_t find_turn(const struct pd_sim_link *link, uint64_t order)
{
	uint32_t low = link->first, high = link->end;

	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (link->turns[middle].order <= order)
			low = middle;
		else
			high = middle;
	}
	return low;
}

void pd_sim_link_leave(struct pd_sim_link *link, uint64_t order)
{
	uint32_t i = find_turn(link, order), kept = 0;

	link->turns[i].transfer = NULL;
	link->hints[i] = 0;
	link->gone++;
	for (; link->first < link->end && !link->turns[link->first].transfer; link->first++)
		link->gone--;
	if (link->first + link->gone <= FEW_GONE + link->end / 2)
		return;
	for (uint32_t k = link->first; k < link->end; k++)
		if (link->turns[k].transfer) {
			link->hints[kept] = link->hints[k];
			link->turns[kept++] = link->turns[k];
		}
	link->first = link->gone = 0;
	link->end = kept;
}
