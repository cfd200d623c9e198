/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The seam of kinds of schedules.  A kind says when a stage computes; all else follows from that, and is the
 * same for all (tick.c, count.c).  A kind is a row of plan/schedule_kind.def and a constant named after it.
 */
#pragma once

#include "schedule/schedule.h"

#define PD_SLOT_TICKS 64 /* ticks for one computation of a rank, where a kind counts these */

enum pd_compute {
	PD_COMPUTE_FORWARD,
	PD_COMPUTE_BACKWARD,       /* of the inputs alone, where the gradients of weights come later */
	PD_COMPUTE_WEIGHTS,
	PD_COMPUTES
};

struct pd_pattern {
	/*
	 * Returns how many forwards a replica of stage s does ahead of its backwards, of `local` in a group.
	 * NULL where a rank has several stages: shape() then sets warmup, first and slots.
	 */
	int64_t (*warmup)(const struct pd_plan *plan, int s, int64_t local);
	/*
	 * Sets what depends on the kind: group_span, round, tail, pitch; behind, span and kept where they are not 0, 32 S
	 * and 1.  Refuses what the kind cannot do.  All else of struct pd_schedule that count.c does not
	 * set is there.
	 */
	int (*shape)(struct pd_schedule *schedule, struct pd_error *err);
	/*
	 * Returns the tick of a computation of microbatch n.  Where the pipeline drains n is from 0 in its group, and so is
	 * the tick; else n is from 0 in its phase, and may be negative.
	 */
	int64_t (*tick)(const struct pd_schedule *schedule, enum pd_compute what, int s, int64_t n);
	/*
	 * A stage's backwards may be behind those of the next by more than two of a replica, for which there is
	 * room: gradients then wait where they are made.
	 */
	bool crowds;
	/* The rest is optional.  These two tell of microbatch n, from 0 in its group, what no microbatch does without them. */
	/* Its forward may run together with the backward that is next in the rank's list (struct pd_op.beside). */
	bool (*beside)(const struct pd_schedule *schedule, int s, int64_t n);
	/* Its backward is one operation, where the schedule splits others; its weights' tick is that of no operation. */
	bool (*whole)(const struct pd_schedule *schedule, int s, int64_t n);
	/* These return what count.c would find, faster. */
	int64_t (*outboxes)(const struct pd_schedule *schedule, const struct pd_link *link);
	/* Returns when an inbox is free for the first time, of microbatch n < 0, instead of by its ticks. */
	int64_t (*unused)(const struct pd_schedule *schedule, int s, int64_t n);
	/* Returns the tick of a step for which pd_schedule_defers. */
	int64_t (*defer)(const struct pd_schedule *schedule, int s, int replica, int64_t u);
};

#define SCHEDULE_KIND(symbol, name, usual, weights, facts, what) extern const struct pd_pattern pd_pattern_##symbol;
#include "plan/schedule_kind.def"
#undef SCHEDULE_KIND

const struct pd_pattern *pd_pattern_of(enum pd_schedule_kind kind);
/* Refuses a plan whose ranks do not have two stages each. */
int pd_pattern_check_v(const struct pd_schedule *schedule, struct pd_error *err);

static inline int64_t pd_pattern_replicas(const struct pd_schedule *schedule, int s)
{
	return schedule->plan->stages[s].replicas;
}

/* Returns the microbatches per update, where they are the same at every stage. */
static inline int64_t pd_pattern_group(const struct pd_schedule *schedule)
{
	return schedule->group[0];
}

/* Returns those of one replica, where there are as many of every stage. */
static inline int64_t pd_pattern_local(const struct pd_schedule *schedule)
{
	return pd_pattern_group(schedule) / pd_pattern_replicas(schedule, 0);
}

/* Returns by how many forwards of all its replicas a stage is ahead of its backwards. */
static inline int64_t pd_pattern_lead(const struct pd_schedule *schedule, int s)
{
	return schedule->warmup[s] * pd_pattern_replicas(schedule, s);
}
