/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One direction of a link, and the transfers that wait for it.  Only for the simulated transport.
 *
 * A transfer waits at one link, and when that is given out while another one on its way is busy,
 * it goes on to wait at that, keeping its turn.  Where each has two links, one up and one down
 * (a topology with one level that takes time), nothing needs to be moved: who is passed over
 * waits at the other one of its two from then on, so that where it waits follows from which of
 * them passed over its turn last, and is worked out only when somebody asks.  In an all-reduce of
 * hundreds nearly everybody waits, and would move at nearly every end of a transfer.
 */
#ifndef PD_TRANSPORT_SIM_LINK_H
#define PD_TRANSPORT_SIM_LINK_H

#include <stdbool.h>
#include <stdint.h>

struct sim_transfer;
struct pd_sim_link;

struct pd_sim_turn {
	uint64_t order;                 /* in which it was ready to start */
	struct sim_transfer *transfer;
};

/* One of two links: a turn of both.  NULL: it has gone. */
struct pd_sim_entry {
	uint64_t order;
	struct sim_transfer *transfer;
	struct pd_sim_link *other;
	uint64_t here : 1;              /* it came to wait here, not at the other */
	uint64_t since : 63;            /* passes until then do not concern it */
};

/* The link was given out, or offered, and all turns before `order` were passed over. */
struct pd_sim_pass {
	uint64_t order, number;         /* numbers ascend from 1, over all links */
};

/* Of a link, by its number, in one small array: nearly always all that is asked. */
enum {
	PD_SIM_BUSY = 1,
	PD_SIM_FREED = 2,               /* in the list of links to be given out again */
	PD_SIM_KNOWN = 4,               /* somebody waits for it, or did: ask the link */
};

struct pd_sim_link {
	uint32_t number;                /* from 1 */
	uint32_t count, capacity;
	struct pd_sim_turn *waiting;    /* those at it: a heap by order, four children per node */
	struct pd_sim_link *next_freed;
	/* with two links on every way, instead of `waiting`: */
	uint32_t first, end, gone, entry_capacity;
	uint32_t others_capacity, *others;      /* numbers of those of the entries; 0: gone */
	struct pd_sim_entry *entries;   /* from first to end - 1, ascending; so many have gone */
	uint32_t pass_count, pass_capacity;
	struct pd_sim_pass *passes;     /* numbers ascend, orders descend: others tell nothing */
};

void pd_sim_link_release(struct pd_sim_link *link);

/* One link at a time. */
void pd_sim_link_wait(struct pd_sim_link *link, uint64_t order, struct sim_transfer *x);
/* The one that was ready first, which waits here no longer. */
struct sim_transfer *pd_sim_link_take(struct pd_sim_link *link);

/*
 * Two.  The newest waits at `at`, and for `other` too; passes: the number of the last pass.
 */
void pd_sim_link_wait_two(struct pd_sim_link *at, struct pd_sim_link *other, uint64_t order,
			  struct sim_transfer *x, uint64_t passes);
/* Does anybody wait at this one? */
bool pd_sim_link_awaited(const struct pd_sim_link *link);
/*
 * Of those that wait at this one, which is free, the first whose other link is free: it waits no
 * longer.  NULL: all wait for the other.  states: of links by number, 0 busy for ever; pass: the
 * number of this one.
 */
struct sim_transfer *pd_sim_link_offer(struct pd_sim_link *link, const uint8_t *states,
				       uint64_t pass);

#endif
