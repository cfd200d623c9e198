/* SPDX-License-Identifier: Apache-2.0 */
/* The best plans of a request, one of each shape. */
#pragma once

#include "planner/planner.h"

/* A plan as a line of a table says it. */
struct pd_top_row {
	double samples_per_s;
	int64_t period_ns, batch_size, microbatches;
	enum pd_period_kind period_from;
	bool searched;                  /* else its equal pipelines were looked at */
	struct pd_degrees group;
	bool degree_asked;              /* of several degrees, if only of one device */
	enum pd_schedule_kind schedule;
	enum pd_weight_kind weights;
	int pipelines;                  /* replicas of every stage; 0: stages have different numbers */
	int positions, virtual_stages, recomputed;      /* recomputed: stages */
	int64_t devices;                /* used */
	int64_t memory_bytes;           /* of the fullest device */
	bool pareto;                    /* no other is as fast on as few devices in as little memory, and better in one */
	char *stages;                   /* as --stages takes them; owned */
};

struct pd_top {
	int most;                       /* rows that are wanted */
	bool pareto;                    /* of those that are, by devices; else the best, by what plans are preferred by */
	int count;
	struct pd_top_row *rows;        /* owned */
};

void pd_top_release(struct pd_top *top);
