/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One direction of a link of the simulated transport, and the transfers that wait for it.
 *
 * A transfer waits for all links of its way at once, and has an entry at each.  In an all-reduce of
 * hundreds of ranks nearly every transfer waits for a link that is busy; so an entry names such a link,
 * and whoever looks for a transfer that may start passes over it for as long as that one is busy.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct sim_transfer;
struct pd_sim_link;

struct pd_sim_turn {
	uint64_t order;                 /* order in which transfers became ready */
	struct sim_transfer *transfer;  /* NULL: it waits no longer */
};

/* The state of each link, by its number, is in one small array, which is mostly all that is needed. */
enum {
	PD_SIM_BUSY = 1,
	PD_SIM_FREED = 2,               /* in the list of links to be given out again */
	PD_SIM_KNOWN = 4,               /* transfers wait or waited for it: look at the link */
};

struct pd_sim_link {
	uint32_t first, end, gone;      /* from first to end - 1; so many of them wait no longer */
	uint32_t turn_capacity, hint_capacity;
	struct pd_sim_turn *turns;      /* ascending; the first waits */
	uint32_t *hints;                /* of each turn, another link of its way that is not free */
	struct pd_sim_link *next_freed;
};

void pd_sim_link_release(struct pd_sim_link *link);

/* The newest transfer of all waits for this link, among others; hint: one of its way that is not free. */
void pd_sim_link_wait(struct pd_sim_link *link, uint64_t order, struct sim_transfer *x, uint32_t hint);
/* The transfer with this order, which waits, does so no longer. */
void pd_sim_link_leave(struct pd_sim_link *link, uint64_t order);

/* Returns the transfer that waits here and became ready first; NULL: none waits. */
static inline struct sim_transfer *pd_sim_link_first(const struct pd_sim_link *link)
{
	return link->first < link->end ? link->turns[link->first].transfer : NULL;
}
