/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of express.c share: time, links, all-reduces. */
#ifndef PD_PLANNER_EXPRESS_TIME_H
#define PD_PLANNER_EXPRESS_TIME_H

#include "base/arena.h"
#include "plan/plan.h"
#include "schedule/schedule.h"

#include <stdbool.h>
#include <stdint.h>

struct pd_express;
struct pd_doing;

/* Who learns that something is done: an entry of a rank's list, or those that wait for it. */
struct pd_told {
	int32_t rank, part;             /* rank -1: those in list; part: of the entry */
	union {
		int64_t entry;
		struct pd_doing *const *list;
	};
	int32_t count;                  /* of list */
};

enum pd_doing_kind { PD_DOING_TASK, PD_DOING_TRANSFER, PD_DOING_HOOK };

struct pd_work_queue { struct pd_doing *first, *last; };

/*
 * A thing to do: computation on a stream, a transfer, or nothing, for others to wait for.  It
 * waits for so many reasons; when the last is gone it is done.
 */
struct pd_doing {
	int32_t waits, all;             /* all: of an all-reduce, when nothing has happened */
	uint8_t kind, posted, left;     /* of a transfer: by sender (1), receiver (2) */
	const struct pd_way *way;
	uint64_t order;                 /* in which transfers were ready */
	int64_t duration_ns;
	union {
		int64_t key;                    /* of a transfer: its minibatch */
		struct pd_work_queue *queue;    /* of a task; a hook: NULL */
	};
	struct pd_doing *next;          /* behind it there */
	struct pd_told told, received;  /* received: of a transfer */
};

/* Links between two ranks, as lib/transport/sim has them. */
struct pd_way {
	int16_t count;                  /* -1: not known yet */
	uint16_t links[2 * PD_MAX_LEVELS];
	int64_t bandwidth, latency_ns;  /* INT64_MAX: takes no time */
};

/* One direction of a link.  Who waits for it: bits, by their order modulo the ring's length. */
struct pd_one_way {
	bool busy;
	uint32_t count;
	struct pd_one_way *next_freed;
	uint64_t *waiting;
};

struct pd_due {
	int64_t when_ns;
	uint64_t order;
	struct pd_doing *doing;
};

/* What is due, by time: most of what comes is later than what is there. */
struct pd_dues {
	uint32_t first, count, room;    /* of a ring; a power of two */
	struct pd_due *list;
};

struct pd_express_clock {
	int64_t now_ns;
	uint64_t order;
	struct pd_dues tasks, transfers;        /* later */
	struct pd_doing **today;        /* at this time; NULL: links are given out */
	size_t today_first, today_count, today_capacity;

	const struct pd_topology *topology;
	int rank_count;
	uint64_t ready;                 /* transfers so far */
	struct pd_doing **turns;        /* those that wait for links, by order: a ring */
	uint32_t turn_count;            /* its length, a power of two, at least 64 */
	bool lost;                      /* it was not long enough */
	struct pd_one_way *links;
	uint64_t *bits;                 /* of all links */
	size_t link_count;
	int64_t first_link[PD_MAX_LEVELS];      /* up and down links of components in turn */
	struct pd_one_way *first_freed, *last_freed;
	struct pd_way *ways;            /* by two ranks */
	struct pd_arena arena;
};

void pd_clock_init(struct pd_express_clock *clock, const struct pd_topology *topology,
		   int rank_count);
void pd_clock_release(struct pd_express_clock *clock);
/* Before anything begins: about so many transfers are on their way at once. */
void pd_clock_expect(struct pd_express_clock *clock, size_t transfers);

/* Which way, and how long a transfer of so many bytes holds its links. */
const struct pd_way *pd_clock_way(struct pd_express_clock *clock, int from, int to);
int64_t pd_way_ns(const struct pd_way *way, int64_t bytes);

/* It begins, all that it waited for being done. */
void pd_clock_begin(struct pd_express_clock *clock, struct pd_doing *doing);
/* One reason less. */
static inline void pd_clock_let(struct pd_express_clock *clock, struct pd_doing *doing)
{
	if (--doing->waits == 0)
		pd_clock_begin(clock, doing);
}

/* Behind what is on a stream; its waits count its turn. */
void pd_clock_queue(struct pd_express_clock *clock, struct pd_work_queue *queue,
		    struct pd_doing *task);
/* To the next time at which something happens, and all of it; false: nothing will. */
bool pd_clock_advance(struct pd_express_clock *clock);
/* An entry's part is done; express.c. */
void pd_express_done(struct pd_express_clock *clock, const struct pd_told *told);

/* The all-reduces of a stage: express_reduce.c. */
struct pd_reduce;

/* NULL: they are not all issued at once. */
struct pd_reduce *pd_reduce_new(struct pd_express_clock *clock, const struct pd_plan *plan, int stage,
				int64_t bytes);
void pd_reduce_free(struct pd_reduce *reduce);
size_t pd_reduce_transfers(const struct pd_reduce *reduce);
/*
 * A member begins; hook is NULL if what it waits for is done, else it is set up to wait for it,
 * by the caller.  told: of the end.  False where it is too early for that.
 */
bool pd_reduce_begin(struct pd_reduce *reduce, int member, const struct pd_told *told,
		     struct pd_doing *hook);

#endif
