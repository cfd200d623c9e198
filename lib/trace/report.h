/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The figures of a trace.
 *
 * Times of ranks are taken over a window: the steady state (lib/trace/steady.h), or the whole trace
 * without one.  Within it each rank either computes or is idle.  An idle moment counts for the
 * arrival that the next operation waited for last: the activations that a forward needs, the
 * gradients that a backward needs, or the all-reduce before a step.  After that arrival, and after
 * the last buffer that came back to the rank, it counts as launch; in between for nothing that the trace
 * knows.  So the busy time and all waits of a rank add up to the window.
 */
#pragma once

#include "trace/steady.h"
#include "trace/timeline.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum pd_wait {
	PD_WAIT_ACTIVATION,
	PD_WAIT_GRADIENT,
	PD_WAIT_ALLREDUCE,
	PD_WAIT_LOAD,
	PD_WAIT_LAUNCH,                 /* all was there, and the operation did not begin yet */
	PD_WAIT_OTHER,                  /* a buffer, the end */
	PD_WAITS
};

struct pd_rank_report {
	int64_t busy_ns, wait_ns[PD_WAITS];     /* add up to the window */
	/*
	 * Within the window: transfers and all-reduces of this rank, and how long it computed
	 * meanwhile.
	 */
	int64_t transfer_ns, overlapped_ns;
	/* Of busy_ns: what computing took longer meanwhile, by the profile (beside_transfers). */
	int64_t slowed_ns;
};

struct pd_stage_report {                /* means over the training operations of the trace */
	double forward_ns, recompute_ns, backward_ns, step_ns, allreduce_ns;
	int64_t allreduces, allreduce_bytes;    /* over all ranks, a bucket each; bytes of all */
	int64_t norms, norm_bytes;              /* likewise, of chunks' norms (plan/sparse.h) */
	double norms_ns;
	/* of one rank and update */
	double sent_bytes, messages;
	double norm_sent_bytes, norm_messages;
	double exposed_ns;              /* within the window: it waited for sums, and computed nothing */
	int64_t steps;                  /* within the window, of all ranks */
	int64_t microbatches;           /* whose backward is in the trace */
};

struct pd_link_report {                 /* what was sent between two stages */
	int from, to;                   /* equal if nothing was sent */
	int64_t activation_bytes, gradient_bytes;       /* in all */
	int64_t activations, gradients;                 /* how many */
	double activation_ns, gradient_ns;              /* mean time of a send */
};

struct pd_report {
	const struct pd_timeline *timeline;     /* borrowed */
	bool has_steady;
	/* The steady period is of whole updates, of which the trace shows none; the window is all of it. */
	bool estimated;
	struct pd_steady steady;
	struct pd_spread range; /* of the period, set by whoever replayed a plan; 0 and 0: not known */
	int64_t begin_ns, end_ns;       /* the window */
	int64_t microbatches;           /* trained: backwards of the input stage */
	struct pd_rank_report *ranks;
	struct pd_stage_report *stages;
	int link_count;
	struct pd_link_report *links;   /* per link of the wiring: by from, then to */
};

struct pd_report *pd_report_new(const struct pd_timeline *timeline);
/* Sets the period of a trace that shows no whole updates, by what whoever replayed a plan knows otherwise. */
void pd_report_estimate(struct pd_report *report, double period_ns);
void pd_report_free(struct pd_report *report);

/* Returns the bubble in percent of the window of all ranks, which must not be empty. */
double pd_report_bubble(const struct pd_report *report);

/* Tells whether the period lies in the range that was predicted. */
bool pd_report_inside(const struct pd_report *report, const struct pd_report *predicted);

/* Prints what sums of gradients among replicas send and how long is waited for them, if there are any. */
void pd_report_print_sums(const struct pd_report *report, const struct pd_report *predicted,
			  FILE *out);

/*
 * Prints a report for people.  predicted is the report of the same plan replayed in virtual time,
 * shown beside it, or NULL.
 */
void pd_report_print(const struct pd_report *report, const struct pd_report *predicted, FILE *out);
/* Returns the report for programs, as in pd-replay(1); a new reference. */
json_t *pd_report_json(const struct pd_report *report, const struct pd_report *predicted);
/* Prints such a report as lines of table, row, key and value. */
void pd_report_csv(json_t *report, FILE *out);
