/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run that is to stop when training diverges (pd_supervision.stops_on_divergence).  When a loss or a
 * weight is no longer finite, updates have been made of it already, so the run is ended at once, and what
 * it had trained before is trained again from its newest checkpoint on: the same plan, seed and device
 * make the same bits.  A loss may be finite where weights are not, which wait for later microbatches, so
 * an earlier step is tried where those of the last one are bad.
 */
#include "run/supervisor/internal.h"

#include <inttypes.h>
#include <stdio.h>

static void say_again(const struct pd_job *job, int64_t step)
{
	if (job->resume_step < 0)
		pd_say("trains again from the beginning to step %" PRId64 ", for a checkpoint of that", step);
	else
		pd_say("trains again from step %" PRId64 " to step %" PRId64 ", for a checkpoint of that",
		       job->resume_step, step);
}

/*
 * Returns the last step up to `most` at which every stage has just updated, if the pipeline was empty at
 * step `from`; or `from`.
 */
static int64_t whole_step(const struct pd_job *job, int64_t unit, int64_t from, int64_t most)
{
	int64_t epoch = most / job->epoch_minibatches * job->epoch_minibatches;
	int64_t empty = pd_job_microbatches(job, epoch > from ? epoch : from);
	int64_t into = pd_job_microbatches(job, most) - empty;

	return into < unit ? pd_job_minibatches(job, empty)
			   : pd_job_minibatches(job, empty + into / unit * unit);
}

/* Trains up to a step.  Returns as pd_supervise() does. */
static int train_until(struct pd_job *job, const struct pd_supervision *how, int64_t step,
		       struct run_end *end, struct pd_error *err)
{
	struct pd_supervision quietly = *how;

	quietly.quiet = job->quiet = true;
	if (!how->quiet)
		say_again(job, step);
	if (job->resume_step >= 0 && pd_job_resume(job, err) < 0)
		return -1;
	job->trace = NULL;
	job->evaluate = false;
	job->test_microbatches = 0;
	job->until = job->total_minibatches = step;
	return supervisor_run(job, &quietly, end, err);
}

/* Tells where the last good step is, which is an error all the same. */
static int stopped(const struct pd_job *job, const struct run_end *end, int64_t step,
		   struct pd_error *err)
{
	char why[96];

	if (end->diverged_at)
		snprintf(why, sizeof(why), "training has diverged in minibatch %" PRId64,
			 end->diverged_at);
	else
		snprintf(why, sizeof(why), "weights of step %" PRId64 " are not finite numbers",
			 end->bad_step);
	if (!job->checkpoint)
		return pd_error_failed(err, "%s: stopped; without --checkpoint=DIR nothing is kept", why);
	if (step < 0)
		return pd_error_failed(err, "%s: stopped; no step before was good", why);
	return pd_error_failed(err, "%s: stopped; %s has the checkpoint of step %" PRId64 "%s", why,
			       job->checkpoint, step, job->several || job->lists ? "" : ", the last good one");
}

int supervisor_stop_at_good(struct pd_job *job, const struct pd_supervision *how,
			    const struct run_end *first, struct pd_error *err)
{
	int64_t newest = first->last_checkpoint, begun = newest < 0 ? 0 : newest;
	struct run_end why = *first, end = *first;
	int64_t next = (why.diverged_at ? why.diverged_at : why.bad_step) - 1, back = 1;
	/* processes of several hosts start one run, and a schedule cannot be cut short */
	bool again = job->checkpoint && !job->several && !job->lists;

	job->resume_step = newest;
	while (again && next > begun && end.last_checkpoint == newest) {
		int64_t step = whole_step(job, first->unit, begun, next);
		int status;

		if (step <= begun)
			break;
		status = train_until(job, how, step, &end, err);
		if (status != 0)
			return status;
		if (end.diverged_at)
			why = end;
		next = end.diverged_at ? end.diverged_at - 1 : step - back;
		back *= 2;
	}
	return stopped(job, &why, end.last_checkpoint, err);
}
