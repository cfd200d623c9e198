/* SPDX-License-Identifier: Apache-2.0 */
/* What a run says while it goes on: JSON Lines on standard output and a progress bar. */
#ifndef PD_RUN_REPORT_H
#define PD_RUN_REPORT_H

#include "base/progress.h"
#include "run/job.h"

struct pd_report {
	const struct pd_job *job;
	int64_t every;
	struct pd_progress bar;
	int64_t done;                   /* minibatches trained, counted from the start of training */
	int64_t evaluated;              /* of them, up to the last evaluation */
	int64_t begun_ns, ended_ns;     /* this run; ended_ns 0: not yet */
	int64_t first_done;
	int64_t interval_ns;            /* when the last progress report was made */
	double sum;                     /* since then */
	int64_t correct, samples, minibatches;
	double test_sum;                /* of the evaluation under way */
	int64_t test_correct, test_samples, test_minibatches;
	double last_loss, last_accuracy;        /* -1: none yet */
	/* of the last update, where all ranks agree on them */
	bool updated;
	double grad_norm, loss_scale;
	int64_t skipped;
	int lost;                       /* why a line could not be written (errno); 0: all were */
};

/* Before anything is trained: can standard output be written to at all? */
int pd_report_check(struct pd_error *err);

void pd_report_begin(struct pd_report *report, const struct pd_job *job, int64_t every);
/* The loss of one minibatch, from the rank that has it. */
void pd_report_loss(struct pd_report *report, const json_t *message);
/* What all ranks agreed on about an update, from one of them. */
void pd_report_update(struct pd_report *report, const json_t *message);
void pd_report_checkpoint(struct pd_report *report, const char *directory, int64_t step);
/*
 * The last line.  outcome: "done" or "stopped".  memory_bytes: what each rank has allocated,
 * which is held against what the schedule says it would; 0: it has not come that far.
 */
void pd_report_end(struct pd_report *report, const struct pd_schedule *schedule,
		   const char *outcome, const int64_t *memory_bytes);

#endif
