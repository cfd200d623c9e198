/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations of every rank, in order, come from this generator: for pd-run, for pd-replay, and
 * for pd-plan's predictions.
 *
 * Every operation of a phase has a place on one timeline of ticks that all ranks share, a closed
 * form of its stage and microbatch (stated and proved right in tick.c).  A rank's list is its
 * operations sorted by that time.  The time of an operation of several ranks, made unique, is its
 * sequence number `seq`: equal at all its ranks, and ascending in every list.  So lists cannot
 * deadlock even if every transfer blocks both ranks, and a cursor makes any rank's list, one
 * operation at a time, from a few integers.
 *
 * Microbatches of a training phase are numbered from the start of training.  Microbatch b of a
 * phase that begins at b0 belongs to replica (b - b0) mod r of a stage with r replicas.  A stage
 * updates its weights after every group of microbatches: as many as the plan says, or, where it
 * says 1, one for each replica.  A version of a stage's weights is named by the number of
 * microbatches whose gradients it contains.
 */
#pragma once

#include "memory/buckets.h"
#include "plan/plan.h"
#include "plan/wiring.h"

#include <stdbool.h>
#include <stdint.h>

#define PD_PASSAGES 2   /* gradient buffers, at least: one transfers while one is used */

enum pd_op_kind {
#define OP_KIND(name, letter, what) PD_OP_##name,
#include "schedule/op_kind.def"
#undef OP_KIND
	PD_OP_KINDS
};

extern const char *const pd_op_kind_name[PD_OP_KINDS + 1];      /* NULL-terminated */
extern const char pd_op_kind_letter[PD_OP_KINDS];

/* Tells whether several ranks take part that sum or agree on something. */
static inline bool pd_op_of_all(enum pd_op_kind kind)
{
	return kind == PD_OP_allreduce || kind == PD_OP_norms || kind == PD_OP_agree;
}

struct pd_op {
	enum pd_op_kind kind;
	bool evaluate;          /* part of an evaluation phase: forward only, state untouched */
	/*
	 * A forward that may run together with the next operation in the list, a backward, or the part of
	 * one for the inputs.  What either needs stands before both.
	 */
	bool beside;
	/*
	 * If gradients are summed in several buckets: the number, from 1, of the bucket that an
	 * allreduce sums, or whose layers this part of a backward goes through, and whether those
	 * of other buckets follow.  0: all of them.
	 */
	bool more;
	int16_t bucket;
	int32_t rank, stage;    /* stage of an agree: the rank's first */
	int32_t peer;           /* the other rank of a transfer, or -1 */
	int32_t link;           /* of a transfer, in the wiring; or -1 */
	int64_t microbatch;     /* for allreduce, norms, agree and step: the first of the
				   group */
	int64_t version;        /* of the weights: read (forward, backward) or written (step); else
				   -1 */
	int64_t keep;           /* step: the oldest version that a later forward reads; else -1 */
	int64_t seq;            /* sequence number, if several ranks take part; else -1 */
};

struct pd_pattern;
struct pd_slot_table;

struct pd_schedule {
	const struct pd_plan *plan;     /* borrowed */
	const struct pd_pattern *pattern;     /* NULL with lists */
	struct pd_wiring *wiring;       /* owned */
	int stage_count;
	int chunks, positions;          /* the most stages of a rank; stages / chunks */
	/* All that buffers are for is in the first and the last so many microbatches of a replica in a group. */
	int64_t round, tail;
	/* Ticks from n to n + 1, where these are equal except at the end of a group and of a start-up; else 0. */
	int64_t pitch;
	bool drains;                    /* after every group there is an update before the next
					   forward */
	bool agrees;                    /* all ranks agree on every update */
	bool splits;                    /* backward is backward_input and backward_weight, or whole where the
					   pattern says so */
	/* Per rank: where its stages begin in rank_stages, how many it has, and which replica it is. */
	struct { int first, count, replica; } *ranks;
	int *rank_stages;               /* by rank, ascending */
	/* The rest is per stage. */
	int64_t *group;                 /* microbatches per update */
	int *buckets;                   /* pd_plan_bucket_count */
	int *warmup;                    /* forwards of a replica ahead of its backwards */
	int *startup;                   /* the same for microbatches below `admitted`
					   (pd_plan_first) */
	int64_t admitted;
	int64_t *backwards_behind;      /* microbatches by which backwards are behind the last
					   stage's (tick.c); 0 where nothing skips stages */
	int64_t *forwards_behind;       /* the same of forwards, with nF1B */
	struct pd_slot_table *table;    /* of kinds whose slots are in one; or NULL */
	int *slots;                     /* most microbatches in flight at a replica */
	int *kept;                      /* the most between backward and the gradients of weights */
	int *pool;                      /* slots that all stages of its rank need together; 0: they are alone */
	int *evaluation_slots;          /* microbatches in flight in an evaluation */
	int64_t *evaluation_leads;      /* in an evaluation: spans by which forwards are ahead of the
					   last stage's (tick.c) */
	int64_t *evaluation_lingers;    /* in an evaluation: ticks from a forward until its inbox is
					   free, since what it makes is only listed then */
	int *outboxes;                  /* pd_schedule_outboxes */
	int *leaving;                   /* pd_schedule_leaving; 0: nobody has asked */
	int64_t *delay;                 /* microbatches between an agree and its step */
	int last;                       /* the stage whose last gradient of a group is the last */
	int64_t span, group_span, scale, origin;        /* of the timeline of ticks, see tick.c */
};

/*
 * A stretch of work that begins and ends with an empty pipeline: microbatches first <= b < last,
 * with operations numbered from base on.  If it continues after a checkpoint, `into` microbatches,
 * a multiple of the schedule's unit, came before.  Its versions are then those of the phase that
 * began with them.
 */
struct pd_phase {
	bool evaluate;
	int64_t first, last, into;
	int64_t base;
};

/*
 * Refuses warm-ups that would deadlock, a schedule and weights that do not go together, and
 * microbatches that the replicas cannot share.
 */
struct pd_schedule *pd_schedule_new(const struct pd_plan *plan, struct pd_error *err);
/*
 * Does the same where `before`, which it takes, is the schedule of a plan with the same stages and microbatches, of
 * which others may recompute or have other warm-ups; or NULL.
 */
struct pd_schedule *pd_schedule_again(struct pd_schedule *before, const struct pd_plan *plan,
				      struct pd_error *err);
/*
 * Makes a schedule that has no order of its own, for lists of a plan with weights flush: any rank may
 * have any stages.
 */
struct pd_schedule *pd_schedule_of_lists(const struct pd_plan *plan);
void pd_schedule_free(struct pd_schedule *schedule);

/*
 * These count the buffers of a replica for microbatches in flight.  There is one inbox more, so
 * that the next inputs arrive while the stage computes.  There are as many slots as microbatches in
 * flight.  If the stage recomputes, only microbatches between their recompute and the end of their
 * backward have slots; a forward works in the slot that the next recompute will have.
 */
int pd_schedule_in_flight(const struct pd_schedule *schedule, int stage, bool evaluate);
int pd_schedule_slots(const struct pd_schedule *schedule, int stage, bool evaluate);
/*
 * Returns how many slots are enough for all stages of the stage's rank, if any of them may have any: at most the sum
 * of their own.
 */
int pd_schedule_pool(const struct pd_schedule *schedule, int stage);
int pd_schedule_inboxes(const struct pd_schedule *schedule, int stage, bool evaluate);
/*
 * Returns how many microbatches' activations a replica holds in outboxes while they are sent, if
 * the stage recomputes and so uses their slot again.  0 for other stages, and if nothing is sent.
 */
int pd_schedule_outboxes(const struct pd_schedule *schedule, int stage);
/*
 * Returns how many microbatches' gradients a replica holds until they are sent, including the one
 * that is being computed; at least two.
 */
int pd_schedule_leaving(const struct pd_schedule *schedule, int stage);
/*
 * Tells whether a forward of microbatch `at` or a later one reads that version, from floor to at,
 * all counted from the phase's beginning.  These are all versions from the oldest one on, except
 * that some are skipped where an eager start-up ends.
 */
bool pd_schedule_reads(const struct pd_schedule *schedule, int stage, int64_t at, int64_t floor,
		       int64_t version);
/* Returns the most versions of a stage's weights that live at once. */
int pd_schedule_versions(const struct pd_schedule *schedule, int stage);
/*
 * Returns the most updates of a stage between a microbatch's forward and its backward.  If weights
 * are not stashed, they are then so much newer.
 */
int64_t pd_schedule_delay(const struct pd_schedule *schedule, int stage);
/* Returns how many stages a rank has: schedule->chunks, but with lists. */
static inline int pd_schedule_chunks(const struct pd_schedule *schedule, int rank)
{
	return schedule->ranks[rank].count;
}
/*
 * Tells whether a stage's step comes behind the next forward, or what else reads an older version, so that its
 * replicas sum beside that.
 */
bool pd_schedule_defers(const struct pd_schedule *schedule, int stage);
/*
 * Tells whether a stage's sum stands between its last backward and the next forward.  In a list the step
 * is right behind it and both are done by one stream.  With 2bw steps may come later (tick.c).  Sums of
 * several buckets are under backward; only the last of them is behind it.
 */
bool pd_schedule_sums_serially(const struct pd_schedule *schedule, int stage);
/* Sets the stages of a rank, in order (pd_schedule_chunks of them); returns its replica. */
int pd_schedule_stages(const struct pd_schedule *schedule, int rank, int *stages);
/*
 * These return the bytes of the vector that an agree exchanges (lib/engine/worker/global_norm.c), and its
 * rounds.
 */
int64_t pd_schedule_norm_bytes(const struct pd_plan *plan);
int pd_schedule_norm_rounds(const struct pd_plan *plan);
/*
 * Returns the factor between ticks and sequence numbers: every operation at a tick has a place
 * below it.
 */
int64_t pd_schedule_scale(const struct pd_plan *plan, const struct pd_wiring *wiring);
/* Returns the unit of a phase: it can be cut at any b for which b - first is a multiple of this. */
int64_t pd_schedule_unit(const struct pd_schedule *schedule);

/* Returns the base of the next phase, above all sequence numbers of this one. */
int64_t pd_schedule_next_base(const struct pd_schedule *schedule, const struct pd_phase *phase);

/* Refuses a phase with so many microbatches that its numbers would not fit in 63 bits. */
int pd_schedule_fits(const struct pd_schedule *schedule, int64_t microbatches,
		     struct pd_error *err);

/* Writes "2F0", or "2F0.1" for bucket 1, into buf (at least 40 bytes) and returns it. */
const char *pd_op_short(const struct pd_op *op, char *buf);
