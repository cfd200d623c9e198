/* SPDX-License-Identifier: Apache-2.0 */
/* The search under the cost "simulated"; private to this folder. */
#ifndef PD_PLANNER_CONTEST_H
#define PD_PLANNER_CONTEST_H

#include "planner/candidate.h"
#include "planner/map.h"

#define PD_CONTEST_CHANGED 8    /* entries that refine.c changes: the best */

/* A plan in the running. */
struct pd_entry {
	struct pd_plan *plan;           /* its profile is the task's or a view of it */
	int64_t expected_ns;            /* no replay is below it, where flow.c knows the schedule */
	int64_t time_ns;                /* by the event simulation, or PD_NEVER */
	bool whole;                     /* replayed without a rival */
	int depth;                      /* so many warm-ups more than another that was entered; 0:
					   those that it was entered with */
	size_t family;                  /* its number */
	bool passed;                    /* pd_contest_judge() has come to it */
	bool changed;                   /* refine.c has looked at its changes, as the best */
};

/* Entries that have as many stages, as many replicas each, and recompute the same. */
struct pd_family {
	const struct pd_plan *first;    /* of an entry */
	double slower;                  /* the nearest of them to what was expected of it took so
					   many times that; 0: none was replayed */
};

struct pd_contest {
	const struct pd_task *task;
	size_t count, capacity;
	struct pd_entry *entries;       /* no plan twice */
	size_t family_count, family_capacity;
	struct pd_family *families;
	uint64_t *seen;                 /* marks of shapes that refine.c looked at; 0: free */
	int seen_count;
	size_t views;                   /* of the task that are not the contest's to free */
	bool few;                       /* plans: exhaust.c may look at all */
	bool all;                       /* entries are all plans that may win */
	bool proven;                    /* an entry that was replayed: no other is better, */
	bool nearly;                    /* or by so little that none is looked for any more */
	bool refused;                   /* a layout, by the schedule: why */
	struct pd_error why;
	struct pd_map map;              /* of the task's machine */
	int tried;                      /* entries of which deeper ones were looked at */
	double gain;                    /* how much faster they were than others as deep, at most */
	int64_t most_ns;                /* slower ones cannot win; 0: none was replayed */
	int64_t changed_ns;             /* what is expected of the plan that is changed; or 0 */
	int64_t work;                   /* what estimates have cost: microbatches times stages */
};

void pd_contest_init(struct pd_contest *contest, const struct pd_task *task);
void pd_contest_release(struct pd_contest *contest);

/*
 * Enters a layout (or NULL), if it fits, at each place (place.h) or only where it says, with
 * warm-ups of its own or those that are chosen; frees it.  Returns what is expected of the best
 * of them, or PD_NEVER.
 */
int64_t pd_contest_enter(struct pd_contest *contest, struct pd_layout *layout);
/* Enters a plan that fits unless it is there; takes it. */
void pd_contest_add(struct pd_contest *contest, struct pd_plan *plan, int64_t expected_ns);
/* The number of the entry that is a plan, or the count of them. */
size_t pd_contest_find(const struct pd_contest *contest, const struct pd_plan *plan);
/* What is expected of a plan with the warm-ups that it has. */
int64_t pd_contest_expect(const struct pd_plan *plan);
/* By what is expected of them, best first; equal ones by pd_candidate_compare. */
void pd_contest_sort(struct pd_contest *contest);
/* Enters what can be had from the first few by small changes: refine.c. */
void pd_contest_refine(struct pd_contest *contest, int64_t most_work);

/*
 * Enters what can be had by one change from the fastest entry that was replayed and was not changed
 * so before, nor another of the same shape, if it may be faster than the winner; how many, or -1:
 * there is no such entry.
 */
int pd_contest_refine_next(struct pd_contest *contest, size_t winner, int64_t most_work);

/* By such a part at most plans may be faster than the best that was replayed, if that returns true.
 * Those that are expected to be slower by as much are then not worth a look. */
#define PD_CONTEST_LITTLE 8
bool pd_contest_gains_little(const struct pd_contest *contest);

/* Are the shapes of plans few enough for that which follows? */
bool pd_contest_few(const struct pd_task *task);
/*
 * Enters all plans that may be faster than a time, if they are few enough (exhaust.c); else, or
 * where the work gets too much, false, and some.
 */
bool pd_contest_exhaust(struct pd_contest *contest, int64_t time_ns);

/* contest_replays.c */
/*
 * Replays the entries of which most is expected, so many at most, so that what cannot be faster need
 * not be looked at.  Not where all plans may be looked at.
 */
int pd_contest_look(struct pd_contest *contest, int most, struct pd_error *err);
/*
 * Replays entries as far as that can change who wins, as far as most_work operations go; returns
 * the winner, or -1 for an error.
 */
int64_t pd_contest_judge(struct pd_contest *contest, int64_t most_work, struct pd_error *err);

#endif
