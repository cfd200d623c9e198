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
	struct pd_bound *bound;         /* of the task; NULL: nobody has asked */
	int64_t line_ns;                /* the time that line.c found last; 0: none */
	int64_t most_replayed;          /* operations of one replay */
	int64_t replayed;               /* operations of replays so far (judge.h) */
	uint32_t drawn;                 /* random numbers so far */
	int64_t work;                   /* cost of estimates so far: microbatches times stages */
};

/* What is known of plans before they are entered. */
struct pd_contest_limits {
	double slower;                  /* what the replay of a plan like them took longer than its estimate; 1: not known */
	int64_t most_ns;                /* slower ones can neither win nor lead to a winner; 0: any may */
};

/* Of plans that are no changes of others. */
#define PD_CONTEST_ANY (&(const struct pd_contest_limits){ .slower = 1 })

/* Returns its time by replay or, if it was not replayed, the one that is likely. */
static inline int64_t pd_entry_ns(const struct pd_entry *entry)
{
	return entry->time_ns != PD_NEVER ? entry->time_ns : entry->likely_ns;
}

void pd_contest_init(struct pd_contest *contest, const struct pd_task *task);
void pd_contest_release(struct pd_contest *contest);

/*
 * Enters a partition (or NULL) if it fits, at each placement (placement.h) or only at its own, with
 * its own warm-ups or chosen ones; frees it.  Returns the expected period of the best of these
 * plans, or PD_NEVER.
 */
int64_t pd_contest_enter(struct pd_contest *contest, struct pd_partition *partition,
			 const struct pd_contest_limits *limits);
/* Enters a plan that fits, unless it is there; takes it.  slower: as in the limits. */
void pd_contest_add(struct pd_contest *contest, struct pd_plan *plan, struct pd_expected expected, double slower);
/* Lowers an entry's likely time to its estimate times what replays take longer. */
void pd_contest_likely(struct pd_contest *contest, size_t at, double slower);
/* Returns what pd_bound_devices() does of the task: the fewest devices of a plan with this period, or more than there are. */
int pd_contest_fewest(struct pd_contest *contest, int64_t period_ns);
/* Returns what is expected of a plan with its warm-ups (pd_judge_expect). */
struct pd_expected pd_contest_expect(const struct pd_contest *contest, const struct pd_plan *plan, bool bound);
/* Sorts by likely_ns, best first; equal ones by pd_candidate_compare. */
void pd_contest_sort(struct pd_contest *contest);
/*
 * Returns the partition of least memory to which changes of this one lead, for about so much work (refine.c), or the
 * first that fits; takes it.  NULL: the schedule refuses all.  The limit changes nothing before one fits.
 */
struct pd_partition *pd_contest_least(struct pd_contest *contest, struct pd_partition *from, int64_t most_work);
/* Enters plans that differ from the first few entries by small changes, if they may beat the winner (refine.c). */
void pd_contest_refine(struct pd_contest *contest, size_t winner, int64_t most_work);

/*
 * Enters plans that differ by one change from the fastest entry that was replayed and not yet
 * changed in this way, and that no changed entry resembles, if they may be faster than the winner. 
 * Returns how many.
 */
int pd_contest_refine_next(struct pd_contest *contest, size_t winner, int64_t most_work);
/* Does the same by two or three random changes at once, from any entry that is nearly as fast. */
int pd_contest_shuffle(struct pd_contest *contest, size_t winner, int64_t most_work);

/*
 * Changes the best entries of several numbers of stages as long as replays find that faster, and goes on from random
 * changes of the winner, for so much work and so many operations (refine.c).  Returns the winner, or -1 for an error.
 */
int64_t pd_contest_descend(struct pd_contest *contest, size_t winner, int64_t most_work, int64_t most_replayed,
			   struct pd_error *err);

/* One warm-up more of a stage, of all up to it, or one fewer. */
enum pd_vary { PD_VARY_MORE, PD_VARY_MORE_BEFORE, PD_VARY_FEWER, PD_VARY_WAYS };
/*
 * Enters a plan with other warm-ups, or what fits of them; stages recompute where they must.  Returns its entry, which
 * may have been there, or the number of entries where there is no such plan.  It has a schedule with leads.
 */
size_t pd_contest_vary(struct pd_contest *contest, size_t from, int stage, enum pd_vary how, double slower);
/* Replays an entry that was not, and deeper variants of it, if that is likely to change the winner. */
int pd_contest_try(struct pd_contest *contest, size_t at, double slower, size_t *winner_p, struct pd_error *err);
/* Returns the least time of entries that were replayed; 0: none was. */
int64_t pd_contest_best_ns(const struct pd_contest *contest);

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
