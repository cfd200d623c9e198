/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers that wait for a link are kept in order. */
#include "transport/sim/link.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

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
	free(link->waiting);
	free(link->entries);
	free(link->others);
	free(link->passes);
}

/* Turns may come out of order: a transfer that comes from another link keeps its turn. */
void pd_sim_link_wait(struct pd_sim_link *link, uint64_t order, struct sim_transfer *x)
{
	uint32_t i = link->count++, parent;

	link->waiting = grow(link->waiting, &link->capacity, link->count, sizeof(*link->waiting));
	for (; i > 0 && link->waiting[parent = (i - 1) / 4].order > order; i = parent)
		link->waiting[i] = link->waiting[parent];
	link->waiting[i] = (struct pd_sim_turn){ order, x };
}

struct sim_transfer *pd_sim_link_take(struct pd_sim_link *link)
{
	struct pd_sim_turn *waiting = link->waiting, last = waiting[--link->count];
	struct sim_transfer *first = waiting[0].transfer;
	uint32_t i = 0, child;

	while ((child = 4 * i + 1) < link->count) {
		uint32_t end = child + 4 < link->count ? child + 4 : link->count, least = child;

		while (++child < end)
			if (waiting[child].order < waiting[least].order)
				least = child;
		if (last.order < waiting[least].order)
			break;
		waiting[i] = waiting[least];
		i = least;
	}
	waiting[i] = last;
	return first;
}

static void add_entry(struct pd_sim_link *link, const struct pd_sim_entry *entry)
{
	link->entries = grow(link->entries, &link->entry_capacity, link->end + 1,
			     sizeof(*link->entries));
	link->others = grow(link->others, &link->others_capacity, link->end + 1,
			    sizeof(*link->others));
	link->others[link->end] = entry->other->number;
	link->entries[link->end++] = *entry;
}

void pd_sim_link_wait_two(struct pd_sim_link *at, struct pd_sim_link *other, uint64_t order,
			  struct sim_transfer *x, uint64_t passes)
{
	struct pd_sim_entry entry = { .order = order, .transfer = x, .other = other, .here = true,
				      .since = passes };

	add_entry(at, &entry);
	entry.other = at;
	entry.here = false;
	add_entry(other, &entry);
}

/* Returns the number of the last pass over this turn, or 0. */
static inline uint64_t passed(const struct pd_sim_link *link, uint64_t order)
{
	for (uint32_t i = link->pass_count; i-- > 0;)
		if (link->passes[i].order > order)
			return link->passes[i].number;
	return 0;
}

static inline bool waits_here(const struct pd_sim_link *link, const struct pd_sim_entry *entry)
{
	uint64_t here = passed(link, entry->order), there = passed(entry->other, entry->order);

	if (here <= entry->since && there <= entry->since)
		return entry->here;
	return there > here;
}

static bool found_here(const struct pd_sim_link *link, uint32_t i)
{
	return link->entries[i].transfer && waits_here(link, &link->entries[i]);
}

/*
 * The search goes from both ends at once: the newest entries tend to wait where they came, and the
 * oldest where they were passed over.
 */
bool pd_sim_link_awaited(const struct pd_sim_link *link)
{
	for (uint32_t i = link->first, k = link->end; i < k; i++)
		if (found_here(link, --k) || found_here(link, i))
			return true;
	return false;
}

static void pass(struct pd_sim_link *link, uint64_t order, uint64_t number)
{
	while (link->pass_count > 0 && link->passes[link->pass_count - 1].order <= order)
		link->pass_count--;
	link->passes = grow(link->passes, &link->pass_capacity, link->pass_count + 1,
			    sizeof(*link->passes));
	link->passes[link->pass_count++] = (struct pd_sim_pass){ order, number };
}

static void remove_entry(struct pd_sim_link *link, uint32_t i)
{
	uint32_t kept = 0;

	link->entries[i].transfer = NULL;
	link->others[i] = 0;
	link->gone++;
	for (; link->first < link->end && !link->entries[link->first].transfer; link->first++)
		link->gone--;
	if (link->first + link->gone <= FEW_GONE + link->end / 2)
		return;
	for (uint32_t k = link->first; k < link->end; k++)
		if (link->entries[k].transfer) {
			link->others[kept] = link->others[k];
			link->entries[kept++] = link->entries[k];
		}
	link->first = link->gone = 0;
	link->end = kept;
}

static uint32_t find_entry(const struct pd_sim_link *link, uint64_t order)
{
	uint32_t low = link->first, high = link->end;

	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (link->entries[middle].order <= order)
			low = middle;
		else
			high = middle;
	}
	return low;
}

struct sim_transfer *pd_sim_link_offer(struct pd_sim_link *link, const uint8_t *states,
				       uint64_t number)
{
	for (uint32_t i = link->first; i < link->end; i++) {
		const struct pd_sim_entry *entry = &link->entries[i];
		uint8_t other = states[link->others[i]];
		struct sim_transfer *x;

		/* nobody waits at a link that is free and will not be given out */
		if ((other & PD_SIM_BUSY) || ((other & PD_SIM_FREED) && !waits_here(link, entry)))
			continue;
		x = entry->transfer;
		pass(link, entry->order, number);
		remove_entry(entry->other, find_entry(entry->other, entry->order));
		remove_entry(link, i);
		return x;
	}
	pass(link, UINT64_MAX, number);
	return NULL;
}
