/* SPDX-License-Identifier: Apache-2.0 */
/* The phases of a job: epochs and evaluations, and where checkpoints lie in them. */
#include "run/job/job.h"

void pd_job_begin(const struct pd_job *job, struct pd_position *position)
{
	*position = (struct pd_position){ .number = -1, .next = pd_job_first(job) };
	/* where nothing is left to train, what the run begins with is evaluated */
	position->evaluate_next = pd_job_trained(job) && job->test_microbatches > 0;
}

static int64_t epoch_microbatches(const struct pd_job *job)
{
	return pd_job_microbatches(job, job->epoch_minibatches);
}

/* Returns the end of microbatch b's epoch, or of the run. */
static int64_t epoch_end(const struct pd_job *job, int64_t b)
{
	int64_t end = (b / epoch_microbatches(job) + 1) * epoch_microbatches(job);
	int64_t total = pd_job_microbatches(job, job->total_minibatches);

	return !job->lists && end < total ? end : total;
}

int64_t pd_job_into_epoch(const struct pd_job *job, const struct pd_schedule *schedule, int64_t at)
{
	int64_t into = at % epoch_microbatches(job);

	return schedule->admitted > 0 && into % pd_schedule_unit(schedule) == 0 ? into : 0;
}

bool pd_job_next(const struct pd_job *job, const struct pd_schedule *schedule,
		 struct pd_position *position, struct pd_phase *phase_p)
{
	if (position->evaluate_next) {
		*phase_p = (struct pd_phase){ .evaluate = true, .last = job->test_microbatches };
		position->evaluate_next = false;
	} else {
		if (position->next >= pd_job_microbatches(job, job->total_minibatches))
			return false;
		*phase_p = (struct pd_phase){ .first = position->next,
					      .last = epoch_end(job, position->next),
					      .into = pd_job_into_epoch(job, schedule,
								  position->next) };
		position->next = phase_p->last;
		position->evaluate_next = job->test_microbatches > 0;
	}
	phase_p->base = position->base;
	position->base = pd_schedule_next_base(schedule, phase_p);
	position->number++;
	return true;
}

int64_t pd_job_next_checkpoint(const struct pd_job *job, const struct pd_schedule *schedule,
			       const struct pd_phase *phase, int64_t after)
{
	int64_t epoch = phase->first / epoch_microbatches(job) * epoch_microbatches(job);
	int64_t unit = pd_schedule_unit(schedule), at;
	int64_t every = pd_job_microbatches(job, job->checkpoint_every);

	if (!job->checkpoint || after >= phase->last)
		return -1;
	if (every == 0 || unit > phase->last - phase->first)
		return phase->last;
	/*
	 * Checkpoints count from the epoch's beginning, but lie only where every stage has just
	 * updated: at the next multiple of the unit from where the pipeline was empty.
	 */
	at = epoch + ((after - epoch) / every + 1) * every;
	at = phase->first + (at - phase->first + unit - 1) / unit * unit;
	return at < phase->last ? at : phase->last;
}
