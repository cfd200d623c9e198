/* SPDX-License-Identifier: Apache-2.0 */
/* The best plans of a request, one of each shape. */
#pragma once

#include "planner/planner.h"

/* A plan as a line of a table says it. */
struct pd_top_row {
	double samples_per_s;
	struct pd_step step;
	int64_t period_ns, batch_size, microbatches;
	enum pd_period_kind period_from;
	bool searched;                  /* else its equal pipelines were looked at */
	struct pd_degrees group;
	bool optimizer_sharded;         /* among replicas */
	bool degree_asked;              /* of several degrees, if only of one device */
	enum pd_schedule_kind schedule;
	enum pd_weight_kind weights;
	int pipelines;                  /* replicas of every stage; 0: stages have different numbers */
	int positions, virtual_stages, stage_count, recomputed; /* recomputed: stages */
	int64_t devices;                /* used */
	int64_t memory_bytes;           /* of the fullest device */
	const char *yours;              /* as --like gave it, borrowed; NULL: it was searched for */
	bool fits;                      /* one of --like may not */
	bool pareto;                    /* no other is as fast on as few devices in as little memory, and better in one */
	/* by which it is preferred; less is better (search/gain.h) */
	double value;
	char *stages;                   /* as --stages takes them; owned */
	char *bottleneck;               /* what takes most of its time, in a few words; owned */
	const char *name;               /* of the document of a plan that was replayed; or NULL */
	double bubble_percent;          /* of that replay; negative: not known */
};

struct pd_top {
	int most;                       /* rows that are wanted; 0: those of replayed plans */
	bool pareto;                    /* of those that are, by devices; else the best, by what plans are preferred by */
	/* Returns the bottleneck of a plan with a period (explain/top.h); the caller owns it. */
	char *(*bottleneck)(const struct pd_plan *plan);
	int count;
	struct pd_top_row *rows;        /* owned */
};

/* Returns the row of a plan; of one that is of several degrees the caller says so. */
struct pd_top_row pd_top_row_of(const struct pd_plan *plan, int64_t time_ns);
/* Puts the row of a layout of one's own in its place, and takes its stages over. */
void pd_top_add(struct pd_top *top, const struct pd_top_row *row);

void pd_top_release(struct pd_top *top);
