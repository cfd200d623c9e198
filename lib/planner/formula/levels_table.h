/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of the recurrence in levels.c; private to it and levels_table.c. */
#ifndef PD_PLANNER_LEVELS_TABLE_H
#define PD_PLANNER_LEVELS_TABLE_H

#include "planner/formula/levels.h"

struct levels_level {
	struct pd_level_terms at;
	int m;                          /* components of the level below */
	double devices;                 /* devices in each of those */
	double *first, *later;          /* [m]: time of an all-reduce of m replicas per byte */
	double *value;                  /* V_k by pair; none for the outermost level */
	double *least;                  /* the least value of a state and all before it */
	double limit, whole_limit;      /* limits of V_k: of a part, of the whole network */
};

struct levels_search {
	const struct pd_levels *question;
	int levels, n;                  /* n states */
	const int *state;               /* their numbers, ascending */
	double *compute, *parameters, *cut;     /* per state */
	double *most_parameters;        /* of a state and all before it */
	double *zero;                   /* V_0 by pair */
	struct levels_level level[PD_MAX_LEVELS + 1]; /* 1 to levels */
};

/* The last stage of a pipeline: the state behind which it begins, and its components. */
struct levels_choice {
	int split;                      /* -1: the pipeline is one stage */
	int last;
};

struct row {
	double *time;                   /* [m][state] */
	double *least;                  /* the least of a state and all later ones so far */
	struct levels_choice *choice;	/* one for each, or NULL */
};

void pd_levels_init(struct levels_search *search, const struct pd_levels *question,
		    const int *state, int n);
void pd_levels_release(struct levels_search *search);

/*
 * Computes V_k of all levels but the outermost.  Returns the time of the best plan below limit, or
 * HUGE_VAL, and sets its outermost components.
 */
double pd_levels_solve(struct levels_search *search, double limit, int *m_p);

/* Allocates a row, with choices if they are wanted. */
void pd_levels_row_init(const struct levels_search *search, int k, struct row *row, bool choices);
void pd_levels_row_release(struct row *row);
/*
 * Computes A_k(i, j, m) for all m and all j up to `end`; values of `limit` or more count as never.
 */
void pd_levels_fill(const struct levels_search *search, int k, int i, int end, struct row *row,
		    double limit);

/* Returns a slightly larger time, so that equally good plans are found; the time may be 0. */
double pd_levels_above(double time);

#endif
