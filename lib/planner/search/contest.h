/* SPDX-License-Identifier: Apache-2.0 */
/* The search under the cost "simulated"; private to this folder. */
#pragma once

#include "planner/search/candidate.h"
#include "predict/judge.h"
#include "predict/map.h"

#define PD_CONTEST_CHANGED 8    /* best entries that refine.c changes */

/* A plan that competes. */
struct pd_entry {
	struct pd_plan *plan;           /* its profile is the task's or a view of it */
	uint64_t hash;                  /* pd_candidate_hash() */
	struct pd_expected expected;    /* the bound is set when it is asked for */
	int64_t likely_ns;              /* the estimate, times what replays of a plan like it took
					   longer */
	int64_t time_ns;                /* by replay, or PD_NEVER */
	bool whole;                     /* replayed to the end */
	int depth;                      /* by how many warm-ups it exceeds the entry it comes from;
					   0: as it was entered */
	bool passed;                    /* pd_contest_judge() has considered it */
	bool changed;                   /* refine.c has tried its changes, as the best */
};

struct pd_contest {
	const struct pd_task *task;
	size_t count, capacity;
	struct pd_entry *entries;       /* each plan is there once */
	bool few;                       /* there are few plans: exhaust.c may try all */
	bool all;                       /* entries include all plans that may win */
	bool proven;                    /* a replayed entry is the best plan */
	bool nearly;                    /* or so nearly that no search is worth while */
	bool planned;                   /* some partition made a plan, which may not fit */
	bool refused;                   /* the schedule refused a partition; the reason */
	struct pd_error why;
	struct pd_map map;              /* the task's machine */
	double slower;                  /* what the replay of the plan at hand took longer than its
					   estimate; or 1 */
	int64_t most_ns;                /* slower plans cannot win; 0: none was replayed */
	int64_t line_ns;                /* the time that line.c found last; 0: none */
	int64_t changed_ns;             /* expected period of the plan at hand; or 0 */
	int64_t replayed;               /* operations of replays so far (judge.h) */
	uint32_t drawn;                 /* random numbers so far */
	int64_t work;                   /* cost of estimates so far: microbatches times stages */
};

void pd_contest_init(struct pd_contest *contest, const struct pd_task *task);
void pd_contest_release(struct pd_contest *contest);

/*
 * Enters a partition (or NULL) if it fits, at each placement (placement.h) or only at its own, with
 * its own warm-ups or chosen ones; frees it.  Returns the expected period of the best of these
 * plans, or PD_NEVER.
 */
int64_t pd_contest_enter(struct pd_contest *contest, struct pd_partition *partition);
/* Enters a plan that fits, unless it is there; takes it. */
void pd_contest_add(struct pd_contest *contest, struct pd_plan *plan, struct pd_expected expected);
/* Returns what is expected of a plan with its warm-ups (pd_judge_expect). */
struct pd_expected pd_contest_expect(const struct pd_contest *contest, const struct pd_plan *plan, bool bound);
/* Sorts by likely_ns, best first; equal ones by pd_candidate_compare. */
void pd_contest_sort(struct pd_contest *contest);
/*
 * Returns the partition of least memory to which small changes of this one lead, for about so much work
 * (refine.c); takes it.  It does not depend on the limit.
 */
struct pd_partition *pd_contest_least(struct pd_contest *contest, struct pd_partition *from, int64_t most_work);
/* Enters plans that differ from the first few entries by small changes (refine.c). */
void pd_contest_refine(struct pd_contest *contest, int64_t most_work);

/*
 * Enters plans that differ by one change from the fastest entry that was replayed and not yet
 * changed in this way, and that no changed entry resembles, if they may be faster than the winner. 
 * Returns how many.
 */
int pd_contest_refine_next(struct pd_contest *contest, size_t winner, int64_t most_work);
/* Does the same by two or three random changes at once, from any entry that is nearly as fast. */
int pd_contest_shuffle(struct pd_contest *contest, size_t winner, int64_t most_work);

/* Tells whether there are few enough shapes of plans for pd_contest_exhaust. */
bool pd_contest_few(const struct pd_task *task);
/*
 * Enters all plans that may be better than the winner, if there are few enough (exhaust.c). 
 * Otherwise, or if it becomes too much work, returns false after entering some.
 */
bool pd_contest_exhaust(struct pd_contest *contest, size_t winner);

/*
 * Replays the most promising entries, at most `most`, so that plans which cannot be faster need not
 * be tried.  Does nothing if all plans may be tried.
 */
int pd_contest_look(struct pd_contest *contest, int most, struct pd_error *err);
/*
 * Replays entries while that can change the winner, up to most_work operations; returns the winner,
 * or -1 for an error.
 */
int64_t pd_contest_judge(struct pd_contest *contest, int64_t most_work, struct pd_error *err);
