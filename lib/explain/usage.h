/* SPDX-License-Identifier: Apache-2.0 */
/* A plan's use of processors, links and memory; private to this folder. */
#pragma once

#include "memory/memory.h"
#include "plan/show.h"
#include "predict/links.h"
#include "schedule/schedule.h"
#include "trace/report.h"

struct pd_stage_usage {
	/* These are of each replica, for one minibatch of the plan in the mean. */
	double forward_ns, backward_ns, update_ns, allreduce_ns;
	bool serial;                    /* the all-reduce is between backward and forward */
	int in_flight, versions;        /* most minibatches and weights that a replica holds */
	int64_t stale;                  /* most updates between the weights of a forward and those
					   that its gradient is applied to */
	struct pd_memory memory;        /* of its first rank, with all the rank's stages */
	int64_t ahead_bytes;            /* the part of that for more than one minibatch in flight */
};

enum pd_limit_kind { PD_LIMIT_PROCESSOR, PD_LIMIT_CHUNKS, PD_LIMIT_TURNS, PD_LIMIT_LINK, PD_LIMIT_WINDOW };

/* The limit: what takes the largest part of the period. */
struct pd_limit {
	enum pd_limit_kind kind;
	double ns;                      /* for one minibatch */
	int first, last;                /* stages of a window; or the stage of a processor, the rank
					   of several stages */
	int level, component;           /* of a link */
	enum pd_way way;
	int64_t tokens;                 /* minibatches that are in the window together */
};

struct pd_usage {
	const struct pd_plan *plan;     /* borrowed */
	struct pd_schedule *schedule;
	struct pd_links links;
	struct pd_stage_usage *stages;
	struct pd_limit limit;
	/* of a replay, where replicas sum and it takes little time; else NULL */
	struct pd_trace *trace;
	struct pd_timeline *timeline;
	struct pd_report *report;
};

/* Returns the usage of a plan; NULL if pd_schedule_new refuses it. */
struct pd_usage *pd_usage_new(const struct pd_plan *plan);
void pd_usage_free(struct pd_usage *usage);

/* Returns the part of the period, or 0 if the period is 0. */
double pd_usage_part(const struct pd_usage *usage, double ns);
/* Returns the time of a stage's processors per minibatch, with the all-reduce if that is serial. */
double pd_usage_busy_ns(const struct pd_usage *usage, int stage);

/* Prints what takes the largest part of the period. */
void pd_usage_put_limit(const struct pd_usage *usage, FILE *out);
/* Prints the same in the few words of a table, as "computing 93% (stage 3)". */
void pd_usage_put_limit_short(const struct pd_usage *usage, FILE *out);

/* Tells whether data parallelism fits into the devices' memory; true if it is not known. */
bool pd_data_parallel_fits(const struct pd_plan *plan);
/* Returns on how many devices data parallelism is, of all: on as many as an update has microbatches. */
int64_t pd_data_parallel_ranks(const struct pd_plan *plan);
