/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks, as the parts of express.c have them: what they have issued, and what that waits for. */
#ifndef PD_PLANNER_EXPRESS_RANK_H
#define PD_PLANNER_EXPRESS_RANK_H

#include "planner/express_time.h"
#include "replay/replay.h"
#include "schedule/room.h"
#include "weights/weights.h"

#define RING 64         /* operations of a rank that are issued and not retired, at most */
#define SUMS 2

/* What stands for the use of a buffer (lib/worker/internal.h): entries by number, -1: none. */
struct mark { int64_t last_use, armed; };

struct waiter {
	struct waiter *next;
	struct pd_doing *doing;
	int part;
};

/* An operation that was issued. */
struct entry {
	enum pd_op_kind kind;
	int64_t microbatch, end_ns;
	uint64_t missing;               /* parts that are not done */
	struct waiter *first, *last;
	struct pd_doing task;           /* for the stream */
};

/* A minibatch on its way through a rank, and the passages of gradients. */
struct flight {
	struct mark *received, *sent;   /* per link */
	struct mark forward, backward, loaded;
	struct mark *ended;             /* of the backward; NULL: none so far */
};

struct sum { struct mark *ready, summed; };

struct lane {                           /* a rank */
	int stage, replica, rank;
	struct pd_cursor cursor;
	bool has_next, exhausted, done, is_ready;
	struct pd_op next;
	int64_t issued, retired;
	int awaited;                    /* part of the oldest entry; -1: any */
	struct entry *entries;          /* RING */
	struct flight *flights, **slots;        /* slots: of the minibatch that had it last */
	struct mark **in, **out;        /* gradients arriving, leaving; per link */
	struct mark allreduce, step;
	struct sum sums[SUMS];
	struct pd_doing hook;
	struct pd_told hooked;          /* the hook, where a sum is told of */
	struct pd_doing *hooks[1];
	struct pd_work_queue compute;
	struct pd_weights weights;      /* where in place is quicker; else no versions */
};

struct part {                           /* a stage */
	int64_t forward_ns, backward_ns, update_ns, apart_ns, bytes;
	struct pd_room room;
	struct pd_reduce *reduce;
	int sum_count;
};

struct express {
	struct pd_express_clock clock;  /* first */
	const struct pd_plan *plan;
	struct pd_schedule *schedule;
	const struct pd_replay_options *options;
	struct part *parts;
	struct lane *lanes;
	int *ready, ready_first, ready_count, live;
	struct pd_doing **transfers;    /* by link, direction and tensor: rings by minibatch */
	int64_t ring;                   /* their length, a power of two */
	struct waiter *unused;
	struct pd_arena arena;
	bool lost;                      /* it went beyond what is known here */
};

/* May it be used anew (lib/worker)? */
static inline bool may_arm(const struct lane *lane, const struct mark *mark)
{
	return mark->last_use < lane->retired;
}

static inline struct entry *entry_of(const struct lane *lane, int64_t number)
{
	return &lane->entries[number & (RING - 1)];
}

static inline bool is_done(const struct lane *lane, const struct mark *mark, int part)
{
	return mark->armed < lane->retired || !(entry_of(lane, mark->armed)->missing >> part & 1);
}

/* Issues an operation, if it may be issued. */
bool pd_express_issue(struct express *x, struct lane *lane, const struct pd_op *op);

#endif
