/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a training run does, as its supervisor and all its ranks know it: both go through
 * the same phases without asking each other.
 *
 * A job, a report and a checkpoint count minibatches; phases and all that ranks do inside them
 * count microbatches, `plan->microbatches` to a minibatch (pd(7)).  A phase begins and ends with a
 * whole minibatch.
 */
#ifndef PD_RUN_JOB_H
#define PD_RUN_JOB_H

#include "base/file.h"
#include "data/dataset.h"
#include "plan/plan.h"
#include "schedule/list.h"
#include "topology/seat.h"
#include "worker/worker.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct pd_job {
	struct pd_plan *plan;           /* owned, by the lists where they own one */
	/*
	 * A schedule that says itself what is done, or NULL; owned.  All of it is one phase,
	 * whatever epochs it goes through.  A rank has its own list, and the others are empty.
	 */
	struct pd_lists *lists;
	const char *device;             /* "auto", "cpu", "cuda" */
	bool tf32;                      /* see struct pd_device_config */
	const char *transport;          /* between devices with memory of their own; NULL: auto */
	const char *data;               /* directory, or NULL: synthetic */
	const char *checkpoint;         /* directory, or NULL */
	struct pd_checkpoint_lock *lock; /* of that directory, the supervisor's; or NULL */
	const char *file;               /* what the plan was read from, for messages */
	bool quiet;                     /* from which checkpoint it goes on is not said */
	int64_t *passed_over;           /* steps of damaged checkpoints, highest first; owned */
	size_t passed_count, passed_capacity;
	const char *init;               /* file of parameters to begin with, or NULL: random ones */
	const char *trace;              /* file, or NULL */
	struct pd_file trace_file;      /* the supervisor's: of a pipe or a device, open; else empty */
	int64_t epochs, minibatches;    /* to train in all; one of them is set, the other -1 */
	int64_t checkpoint_every;       /* minibatches between checkpoints, 0: at epochs' ends */
	int64_t seed;
	int64_t threads;                /* per rank; 0: the rank's share of the processors */
	struct pd_optimizer optimizer;  /* its epoch and total are known with the data */
	bool evaluate;                  /* after each epoch, where there is a test set */
	int64_t resume_step;            /* minibatches done before; -1: from the beginning */

	/* known once the data are: */
	int64_t epoch_minibatches, total_minibatches;
	int64_t test_microbatches;      /* of an evaluation; 0: there is none */
	struct pd_seat seat;            /* of the rank that received the job */
	json_t *json;                   /* of a job received; owned: the strings live there */
};

/* From the supervisor to a rank, with its seat. */
json_t *pd_job_json(const struct pd_job *job, int rank, const struct pd_seat *seat);
struct pd_job *pd_job_parse(json_t *value, struct pd_error *err);
/* Of one received. */
void pd_job_free(struct pd_job *job);

/*
 * Opens the job's data (the synthetic set is as large as ten minibatches) and works out
 * epoch_minibatches, test_microbatches and total_minibatches.
 */
int pd_job_data(struct pd_job *job, struct pd_dataset *train_p, struct pd_dataset *test_p,
		struct pd_error *err);

/*
 * Before anything is started: can this plan be run on this data; is the schedule right
 * (PD_EXIT_NO); is the directory of checkpoints free and writable; where does a resumed run go
 * on?  A job that resumes says in resume_step where, or -1 for the newest checkpoint.  Sets lock and
 * trace_file, which the caller gives back also after an error, resume_step and the counts of
 * minibatches.
 */
int pd_job_check(struct pd_job *job, bool resume, struct pd_error *err);

/* In so many minibatches there are so many microbatches; and in so many of those, whole ones. */
static inline int64_t pd_job_microbatches(const struct pd_job *job, int64_t minibatches)
{
	return minibatches * job->plan->microbatches;
}

static inline int64_t pd_job_minibatches(const struct pd_job *job, int64_t microbatches)
{
	return microbatches / job->plan->microbatches;
}

/* The microbatch with which the run begins. */
static inline int64_t pd_job_first(const struct pd_job *job)
{
	return job->resume_step < 0 ? 0 : pd_job_microbatches(job, job->resume_step);
}

/* Does an epoch end before that microbatch? */
static inline bool pd_job_epoch_ends(const struct pd_job *job, int64_t at)
{
	return at % pd_job_microbatches(job, job->epoch_minibatches) == 0;
}

/* Walking through the phases. */
struct pd_position {
	int number;                     /* of the phase, from 0 */
	int64_t next;                   /* microbatch to be trained next */
	bool evaluate_next;
	int64_t base;
};

void pd_job_begin(const struct pd_job *job, struct pd_position *position);
/*
 * How far into its epoch's pipeline a run goes on that has trained so many microbatches; 0 where
 * that makes no difference, or where replicas or updates do not begin again there.
 */
int64_t pd_job_into(const struct pd_job *job, const struct pd_schedule *schedule, int64_t at);
/* The next phase; false when there is none. */
bool pd_job_next(const struct pd_job *job, const struct pd_schedule *schedule,
		 struct pd_position *position, struct pd_phase *phase_p);
/*
 * The next checkpoint after `after` microbatches, which are those up to the phase's beginning
 * or lie inside the phase; at most phase->last; -1: none.
 */
int64_t pd_job_next_checkpoint(const struct pd_job *job, const struct pd_schedule *schedule,
			       const struct pd_phase *phase, int64_t after);

#endif
