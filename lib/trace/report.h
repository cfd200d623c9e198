/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a trace says in numbers.
 *
 * Times of ranks are taken over a window: the steady state (lib/trace/steady.h), or the
 * whole trace where there is none.  Within it each rank either computes or is idle, and an
 * idle moment is put down to what the next operation was waiting for: to the arrival that
 * came last (the activations that a forward needs, the gradients that a backward needs, the
 * all-reduce before a step) until it came, and to nothing that the trace knows after that.
 * So busy and all waits of a rank add up to the window.
 */
#ifndef PD_TRACE_REPORT_H
#define PD_TRACE_REPORT_H

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
	PD_WAIT_OTHER,                  /* a buffer, the host, the end */
	PD_WAITS
};

struct pd_rank_report {
	int64_t busy_ns, wait_ns[PD_WAITS];     /* add up to the window */
	/* in the window: transfers and all-reduces of this rank, and how long it computed
	 * meanwhile */
	int64_t transfer_ns, overlapped_ns;
};

struct pd_stage_report {                /* means over the training operations of the trace */
	double forward_ns, recompute_ns, backward_ns, step_ns, allreduce_ns;
	int64_t allreduces, allreduce_bytes;    /* how many, summed over ranks; bytes of one */
	int64_t microbatches;           /* backwards seen */
};

struct pd_link_report {                 /* what was sent between two stages */
	int from, to;                   /* equal: nothing was */
	int64_t activation_bytes, gradient_bytes;       /* in all */
	int64_t activations, gradients;                 /* how many */
	double activation_ns, gradient_ns;              /* mean time of a send */
};

struct pd_report {
	const struct pd_timeline *timeline;     /* borrowed */
	bool has_steady;
	struct pd_steady steady;
	int64_t begin_ns, end_ns;       /* the window */
	int64_t microbatches;           /* trained: backwards of the input stage */
	struct pd_rank_report *ranks;
	struct pd_stage_report *stages;
	int link_count;
	struct pd_link_report *links;   /* per link of the wiring: by from, then to */
};

struct pd_report *pd_report_new(const struct pd_timeline *timeline);
void pd_report_free(struct pd_report *report);

/*
 * For people.  predicted: the report of the same plan replayed in virtual time, to show
 * beside it, or NULL.
 */
void pd_report_print(const struct pd_report *report, const struct pd_report *predicted, FILE *out);
/* The same for programs, as pd-replay(1) says; a new reference. */
json_t *pd_report_json(const struct pd_report *report, const struct pd_report *predicted);
/* What that returns as lines of table, row, key and value. */
void pd_report_csv(json_t *report, FILE *out);

#endif
