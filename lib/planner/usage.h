/* SPDX-License-Identifier: Apache-2.0 */
/* What a plan makes of its processors, links and memories; private to this folder. */
#ifndef PD_PLANNER_USAGE_H
#define PD_PLANNER_USAGE_H

#include "plan/memory.h"
#include "planner/links.h"
#include "schedule/schedule.h"

struct pd_stage_usage {
	/* of each replica, in the time of one minibatch of the plan, in the mean */
	double forward_ns, backward_ns, update_ns, allreduce_ns;
	bool serial;                    /* the all-reduce stands between backward and forward */
	int in_flight, versions;        /* minibatches and weights that a replica holds at most */
	int64_t stale;                  /* updates between the weights that forward sees and those
					   that its gradient is applied to, at most */
	struct pd_memory memory;        /* of its first rank, with all the rank's stages */
	int64_t ahead_bytes;            /* of it, what more than one minibatch in flight costs */
};

enum pd_limit_kind { PD_LIMIT_PROCESSOR, PD_LIMIT_TURNS, PD_LIMIT_LINK, PD_LIMIT_WINDOW };

/* What takes the largest part of the period. */
struct pd_limit {
	enum pd_limit_kind kind;
	double ns;                      /* of a minibatch's share */
	int first, last;                /* stages: of a window; the one stage of a processor */
	int level, component;           /* of a link */
	bool up;
	int64_t tokens;                 /* of a window: minibatches that are in it together */
};

struct pd_usage {
	const struct pd_plan *plan;     /* borrowed */
	struct pd_schedule *schedule;
	struct pd_links links;
	struct pd_stage_usage *stages;
	struct pd_limit limit;
};

/* Of a plan that pd_schedule_new accepts; NULL of any other. */
struct pd_usage *pd_usage_new(const struct pd_plan *plan);
void pd_usage_free(struct pd_usage *usage);

/* Part of the period, 0 where that is 0. */
double pd_usage_part(const struct pd_usage *usage, double ns);
/* What a stage's processors do for a minibatch, with the all-reduce where that is serial. */
double pd_usage_busy_ns(const struct pd_usage *usage, int stage);

/* Does data parallelism fit into the devices' memory?  So where nobody has looked. */
bool pd_data_parallel_fits(const struct pd_plan *plan);

/* "0-2,4" for ranks, runs joined, cut short with "..."; into buf, returned. */
const char *pd_show_ranks(const struct pd_stage *stage, char *buf, size_t room);

#endif
