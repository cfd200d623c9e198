/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of the recurrence that levels.c states; private to it and levels_table.c. */
#ifndef PD_PLANNER_LEVELS_TABLE_H
#define PD_PLANNER_LEVELS_TABLE_H

#include "planner/levels.h"

struct level {
	struct pd_level_terms at;
	int m;                          /* components of the level below */
	double devices;                 /* in each of those */
	double *first, *later;          /* [m]: all-reduce of m replicas per byte */
	double *value;                  /* V_k by pair; not of the outermost level */
	double *least;                  /* of the values for a state and all before it */
	double limit, whole_limit;      /* for V_k: of a part, of the whole network */
};

struct search {
	const struct pd_levels *question;
	int levels, n;                  /* n states, of them */
	const int *state;               /* which ones, ascending */
	double *compute, *parameters, *cut;     /* per state */
	double *most_parameters;        /* of a state and all before it */
	double *zero;                   /* V_0 by pair */
	struct level level[PD_MAX_LEVELS + 1];  /* 1 to levels */
};

/* How a pipeline ends: behind which state its last stage begins, and on how many components. */
struct choice {
	int split;                      /* -1: it is one stage */
	int last;
};

struct row {
	double *time;                   /* [m][state] */
	double *least;                  /* the same: of a state and all later ones so far */
	struct choice *choice;          /* the same, or NULL */
};

void pd_levels_init(struct search *search, const struct pd_levels *question, const int *state,
		    int n);
void pd_levels_release(struct search *search);

/*
 * V_k of all levels but the outermost.  The time of the best plan that takes less than limit, or
 * HUGE_VAL, and how many outermost components it has.
 */
double pd_levels_solve(struct search *search, double limit, int *m_p);

/* With choices where they are wanted. */
void pd_levels_row_init(const struct search *search, int k, struct row *row, bool choices);
void pd_levels_row_release(struct row *row);
/* A_k(i, j, m) for all m and all j up to `end`; what takes `limit` or longer is never. */
void pd_levels_fill(const struct search *search, int k, int i, int end, struct row *row,
		    double limit);

/* A little more, for what is just as good must be found; a time may be 0. */
double pd_levels_above(double time);

#endif
