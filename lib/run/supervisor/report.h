/* SPDX-License-Identifier: Apache-2.0 */
/* A run reports on standard output, in JSON Lines, and shows a progress bar. */
#pragma once

#include "base/progress_bar.h"
#include "run/job/job.h"
#include "run/supervisor/expected.h"
#include "run/supervisor/pace.h"
#include "run/supervisor/tally.h"

/* Sums of the losses of some microbatches. */
struct pd_sums {
	struct pd_loss *losses;         /* by loss layer, in the plan's order; not their samples */
	int64_t samples, microbatches;
};

struct pd_run_report {
	const struct pd_job *job;
	int losses;                     /* loss layers of the model */
	int main_loss;                  /* the loss that comes last in the model's document */
	int64_t every;
	struct pd_progress_bar bar;
	struct pd_pace pace;
	bool quiet;                     /* nothing but the last line */
	bool not_finite[PD_GIVEN];      /* numbers that it was given are not, which was said */
	int64_t diverged_at;            /* the minibatch of the first loss that was not finite; 0: none */
	int64_t done;                   /* whole minibatches since training began */
	int64_t evaluated;              /* minibatches before the last evaluation */
	int64_t tested_samples;         /* in that */
	int64_t begun_ns, ended_ns;     /* of this run; ended_ns: 0 while it goes on */
	int64_t newest_ns;              /* when a rank had the newest losses, by this host's clock */
	int64_t first_done;
	struct pd_pace_stretch stretch; /* since the last progress report */
	struct pd_tally trained, tested;
	struct pd_run_times times;
	struct pd_sums training;        /* since the last progress report */
	struct pd_sums evaluation;      /* of the evaluation under way */
	double last_loss;               /* -1: none yet */
	json_t *last_evaluation;        /* its figures; NULL: none yet */
	/* of the last update, where all ranks agree on these */
	bool updated;
	double grad_norm, loss_scale;
	int64_t skipped;
	int64_t made, left_out;         /* updates on which all ranks agreed */
	int64_t counted;                /* rows of losses that counted */
	bool learned_nothing;           /* which was said */
	int lost;                       /* errno of a line that could not be written, or 0 */
};

/* Reports how many of the workers are ready while they start, before pd_run_report_begin(). */
void pd_run_report_starting(struct pd_run_report *report, int ready, int workers, bool quiet);
/* Begins reporting. quiet: no bar, and only the last line. */
void pd_run_report_begin(struct pd_run_report *report, const struct pd_job *job, int64_t every,
			 bool quiet);
/* Takes the losses of a microbatch from the message of a rank. */
void pd_run_report_losses(struct pd_run_report *report, const json_t *message);
/* Takes from a rank's message that numbers which it was given are not finite. */
void pd_run_report_not_finite(struct pd_run_report *report, const json_t *message);
/* Takes the numbers of an update on which all ranks agree from the message of one of them. */
void pd_run_report_update(struct pd_run_report *report, const json_t *message);
/* Says why nothing was learned, if all is trained, and nothing was. */
void pd_run_report_learned(struct pd_run_report *report);
void pd_run_report_checkpoint(struct pd_run_report *report, const char *directory, int64_t step);
/*
 * Writes the last line.  outcome: "done" or "stopped". memory_bytes: the bytes that each rank has
 * allocated, which are compared with the schedule's prediction; 0: not known.  expected: what it was
 * expected to take; its period is 0 if that is not known.
 */
void pd_run_report_end(struct pd_run_report *report, const struct pd_schedule *schedule,
		       const char *outcome, const int64_t *memory_bytes,
		       const struct pd_expected_run *expected);
void pd_run_report_release(struct pd_run_report *report);
