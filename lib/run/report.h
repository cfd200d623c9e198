/* SPDX-License-Identifier: Apache-2.0 */
/* What a run says while it goes on: JSON Lines on standard output and a progress bar. */
#ifndef PD_RUN_REPORT_H
#define PD_RUN_REPORT_H

#include "base/progress_bar.h"
#include "run/job.h"
#include "run/pace.h"
#include "run/tally.h"

/* Of the losses of some microbatches. */
struct pd_sums {
	double *sum;                    /* by loss layer, in the plan's order, over all samples */
	int64_t *correct;               /* likewise */
	int64_t samples, microbatches;
};

struct pd_run_report {
	const struct pd_job *job;
	int losses;                     /* loss layers of the model */
	int main_loss;                  /* which of them comes last in the model's document */
	int64_t every;
	struct pd_progress_bar bar;
	struct pd_pace pace;
	bool quiet;                     /* nothing but the last line */
	int64_t done;                   /* whole minibatches trained, from the start of training */
	int64_t evaluated;              /* of them, up to the last evaluation */
	int64_t begun_ns, ended_ns;     /* this run; ended_ns 0: not yet */
	int64_t first_done;
	int64_t interval_ns;            /* when the last progress report was made */
	struct pd_tally trained, tested;
	struct pd_sums training;        /* since then */
	struct pd_sums evaluation;      /* of the one under way */
	double last_loss, last_accuracy;        /* -1: none yet */
	/* of the last update, where all ranks agree on them */
	bool updated;
	double grad_norm, loss_scale;
	int64_t skipped;
	int lost;                       /* why a line could not be written (errno); 0: all were */
};

/* While workers start: so many, of which some are ready.  Before pd_run_report_begin(). */
void pd_run_report_starting(struct pd_run_report *report, int ready, int workers, bool quiet);
/* quiet: no bar, and of the lines only the last. */
void pd_run_report_begin(struct pd_run_report *report, const struct pd_job *job, int64_t every,
			 bool quiet);
/* Losses of one microbatch, from a rank that has some. */
void pd_run_report_losses(struct pd_run_report *report, const json_t *message);
/* What all ranks agreed on about an update, from one of them. */
void pd_run_report_update(struct pd_run_report *report, const json_t *message);
void pd_run_report_checkpoint(struct pd_run_report *report, const char *directory, int64_t step);
/*
 * The last line.  outcome: "done" or "stopped".  memory_bytes: what each rank has allocated,
 * which is held against what the schedule says it would; 0: it has not come that far.
 */
void pd_run_report_end(struct pd_run_report *report, const struct pd_schedule *schedule,
		       const char *outcome, const int64_t *memory_bytes);
void pd_run_report_release(struct pd_run_report *report);

#endif
