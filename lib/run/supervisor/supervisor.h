/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The supervisor starts the ranks of a job, watches them, collects their reports, and ends in one
 * of three ways: all are done; stopped as asked; or a sentence says which rank failed and why.
 */
#pragma once

#include "run/job/job.h"
#include "run/launch/launcher.h"
#include "trace/durations.h"

struct pd_supervision {
	const struct pd_launcher_ops *launcher;
	/* the run is given up if no operation finishes on any rank for so long, or while it starts none runs */
	int64_t timeout_s;
	/* a rank hangs that says nothing for so long and sleeps; at most timeout_s */
	int64_t silence_s;
	int64_t report_every;           /* minibatches between progress reports; 0: ten an epoch */
	int keep;                       /* checkpoints kept */
	bool quiet;                     /* reports only the end */
	bool force;                     /* ranks need not be where the plan has them */
	bool print_mapping;             /* only says where ranks are, and trains nothing */
	/*
	 * A loss of training, or a weight at a checkpoint, that is not finite ends the run, which is an
	 * error.  Then the job's folder has a checkpoint of the last good step.
	 */
	bool stops_on_divergence;
};

/*
 * Runs the job to its end: reports on standard output, a progress bar on standard error.
 * SIGINT, SIGTERM, SIGHUP and SIGUSR1, unless they are ignored, end it at the next minibatch, with a
 * checkpoint where the job has them; a second one, a second later, at once, and the first where the
 * job has lists, which cannot be cut short.
 * A report that cannot be written also ends it in order, and is an error then.
 * Returns 0; or the number of the signal that ended it, by which the program should end too; or -1
 * with the error.  No rank is left running.
 */
int pd_supervise(struct pd_job *job, const struct pd_supervision *how, struct pd_error *err);
