/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One direction of a link of the simulated transport, and the transfers that wait for it.
 *
 * A transfer waits at one link.  If that link is given out while another one on the way is busy,
 * the transfer waits there, keeping its turn.  Where every way has two links, one up and one down
 * (a topology in which one level takes time), nothing needs to be moved: a transfer that is passed
 * over waits at the other of its two links from then on.  So the link at which it waits follows
 * from which of the two passed over its turn last, and is computed only on demand.  In an
 * all-reduce of hundreds of ranks nearly every transfer waits, and would have to move at nearly
 * every end of another.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct sim_transfer;
struct pd_sim_link;

struct pd_sim_turn {
	uint64_t order;                 /* order in which transfers became ready */
	struct sim_transfer *transfer;
};

/* An entry at one of two links stands for a turn at both.  NULL: the transfer no longer waits. */
struct pd_sim_entry {
	uint64_t order;
	struct sim_transfer *transfer;
	struct pd_sim_link *other;
	uint64_t here : 1;              /* the transfer came to wait here, not at the other link */
	uint64_t since : 63;            /* passes up to this number do not concern it */
};

/* A pass: the link was given out, or offered, and all turns before `order` were passed over. */
struct pd_sim_pass {
	uint64_t order, number;         /* numbers ascend from 1, over all links */
};

/*
 * The state of each link, by its number, is in one small array, which is nearly always all that is
 * needed.
 */
enum {
	PD_SIM_BUSY = 1,
	PD_SIM_FREED = 2,               /* in the list of links to be given out again */
	PD_SIM_KNOWN = 4,               /* a transfer waits or waited for it: look at the link */
};

struct pd_sim_link {
	uint32_t number;                /* from 1 */
	uint32_t count, capacity;
	/* those that wait here: a heap by order, four children per node */
	struct pd_sim_turn *waiting;
	struct pd_sim_link *next_freed;
	/* where every way has two links, instead of `waiting`: */
	uint32_t first, end, gone, entry_capacity;
	/* the other links of the entries, by number; 0: gone */
	uint32_t others_capacity, *others;
	struct pd_sim_entry *entries;   /* ascending, from first to end - 1 */
	uint32_t pass_count, pass_capacity;
	/* their numbers ascend and their orders descend: other passes do not matter */
	struct pd_sim_pass *passes;
};

void pd_sim_link_release(struct pd_sim_link *link);

/* These serve topologies where a transfer waits at one link at a time. */
void pd_sim_link_wait(struct pd_sim_link *link, uint64_t order, struct sim_transfer *x);
/* Takes the transfer that became ready first off the link. */
struct sim_transfer *pd_sim_link_take(struct pd_sim_link *link);

/*
 * These serve topologies where every way has two links.  The newest transfer waits at `at`, and for
 * `other`, too; passes is the number of the last pass.
 */
void pd_sim_link_wait_two(struct pd_sim_link *at, struct pd_sim_link *other, uint64_t order,
			  struct sim_transfer *x, uint64_t passes);
/* Returns whether any transfer waits at this link. */
bool pd_sim_link_awaited(const struct pd_sim_link *link);
/*
 * Takes from this free link the first waiting transfer whose other link is free.  NULL: all wait
 * for their other link.  states: of links by number, 0 is always busy; pass: the number of this
 * pass.
 */
struct sim_transfer *pd_sim_link_offer(struct pd_sim_link *link, const uint8_t *states,
				       uint64_t pass);
