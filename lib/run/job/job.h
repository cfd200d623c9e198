/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A training run, as its supervisor and all its ranks know it: they go through the same phases
 * without asking each other.
 *
 * They exchange messages.  The supervisor sends train, which begins this task of a rank's process, job (the
 * same to all), place (a rank's seat), connect, stop (freeze and report your place), stop_at, write (its
 * files of a checkpoint), exit.  A rank sends ready, exchange (why that is slow), alive, losses, updated,
 * reached, exported, saved, not_finite (a number that it was given), done, error.
 *
 * Before the job, on several hosts, the supervisor asks about folders of checkpoints: folder (whose
 * is it?), look (what is in one?), send and receive (a file), received (all of it was sent);
 * a rank answers folder, holds, sent, has.  Who keeps a folder is also told publish and prune, and
 * answers published.
 *
 * A job, a report and a checkpoint count minibatches.  Phases, and all that ranks do inside them,
 * count microbatches, `plan->microbatches` to a minibatch (pd(7)).  A phase begins and ends with a
 * whole minibatch.
 */
#pragma once

#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "engine/data/dataset.h"
#include "engine/worker/worker.h"
#include "plan/plan.h"
#include "schedule/list.h"
#include "topology/seat.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define PD_MOST_MICROBATCHES (INT64_C(1) << 40)  /* the most in a run */

/* Where numbers that a run is given come from. */
enum pd_given { PD_GIVEN_INIT, PD_GIVEN_DATA, PD_GIVEN };

struct pd_job {
	struct pd_plan *plan;           /* owned, by the lists if they own one */
	/*
	 * A schedule from a file, or NULL; owned.  All of it is one phase, even if it covers
	 * several epochs.  At a rank only its own list is filled.
	 */
	struct pd_lists *lists;
	const char *device;             /* "auto", "cpu", "cuda" */
	bool tf32;                      /* as in struct pd_device_config */
	const char *transport;          /* provider between devices; NULL: auto */
	const char *data;               /* directory; NULL: synthetic data */
	const char *normalize, *augment; /* options; NULL: not given */
	int64_t synthetic_epoch;        /* minibatches of an epoch of synthetic data; 0: ten */
	const char *checkpoint;         /* directory, or NULL */
	struct pd_checkpoint_lock *lock; /* of that directory; the supervisor's, else NULL */
	/* where processes of several hosts were started, which may have folders of their own: */
	bool several;
	char *run;                      /* its name in locks (pd_checkpoint_lock); owned */
	bool asks_ranks;               /* ranks must say what they hold before it can go on */
	bool own_folders;               /* hosts have folders of their own */
	const char *gather;             /* brings a checkpoint together here, and trains nothing */
	const char *file;               /* the plan's file, for messages */
	bool quiet;                     /* does not say from which checkpoint it goes on */
	int64_t *passed_over;           /* steps of damaged checkpoints, highest first; owned */
	size_t passed_count, passed_capacity;
	/* of the data and of what init names, as the first process read them, or NULL; the
	 * supervisor owns its own */
	char *data_sum, *init_sum;
	json_t *recipe;                 /* the supervisor's: what trains (job/recipe.h); owned */
	const char *init;               /* where initial parameters are; NULL: random ones */
	const char *init_new;           /* what of these begins anew, as pd_initial_open() has it; NULL: nothing */
	char *init_found;               /* the supervisor's: that, or the newest of its checkpoints; owned */
	struct pd_checkpoint *held;     /* open until all ranks have read it, if that is a checkpoint; or NULL */
	const char *trace;              /* file, or NULL */
	/* the supervisor's, open if it is a pipe or a device; else empty */
	struct pd_file trace_file;
	int64_t epochs, minibatches;    /* length of the whole training; one is set, the other -1 */
	/* minibatches between checkpoints; 0: at the end of each epoch */
	int64_t checkpoint_every;
	int64_t seed;
	int64_t threads;                /* per rank; 0: the rank's share of the processors */
	struct pd_optimizer optimizer;  /* its epoch and total are set once the data are known */
	bool evaluate;                  /* after each epoch, where there is a test set */
	bool only_evaluates;            /* once, and trains nothing */
	int64_t evaluated_step;         /* where a checkpoint of --checkpoint is evaluated, which is `init`; else -1 */
	int64_t resume_step;	/* minibatches trained before; -1: starts from the beginning */

	int64_t until;                  /* ends at this step, as if training went on; 0: with training */

	/* set once the data are known: */
	int64_t epoch_minibatches, total_minibatches;
	int64_t test_microbatches;      /* microbatches of an evaluation; 0: no evaluation */
	struct pd_seat seat;            /* of the rank that received the job */
	json_t *json;                   /* a received job, owned, with its strings */
};

/*
 * Make the messages from the supervisor by which ranks learn their job: one that is the same for all,
 * and one with a rank's seat and, of a schedule, its operations.
 */
json_t *pd_job_json(const struct pd_job *job);
json_t *pd_job_place_json(const struct pd_job *job, int rank, const struct pd_seat *seat);
/* Reads both, in one object. */
struct pd_job *pd_job_parse(json_t *value, struct pd_error *err);
/* A message about a file of a checkpoint, and the file that one is about. */
json_t *pd_job_file_json(const char *event, int64_t step, const struct pd_checkpoint_file *file);
struct pd_checkpoint_file pd_job_file_of(const json_t *message);
/* Frees a received job. */
void pd_job_free(struct pd_job *job);

/*
 * Opens the job's data (ten minibatches again and again, if synthetic) and computes epoch_minibatches,
 * test_microbatches and total_minibatches.
 */
int pd_job_data(struct pd_job *job, struct pd_dataset *train_p, struct pd_dataset *test_p,
		struct pd_error *err);

/* Reads the job's data: what pd_job_data() computes, data_sum and recipe, as the model normalises now. */
int pd_job_read_data(struct pd_job *job, struct pd_error *err);

/*
 * Checks, before anything is started, that this plan can be run on this data, that the schedule is
 * right (PD_EXIT_NO), and that the directory of checkpoints is free and writable.  A job that
 * resumes has the step in resume_step, or -1 for the newest checkpoint.  Sets resume_step, or asks_ranks,
 * the counts of minibatches, and lock, run and trace_file, which the caller gives back even after an
 * error.
 */
int pd_job_check(struct pd_job *job, bool resume, struct pd_error *err);

/* These convert minibatches to microbatches, and microbatches to whole minibatches. */
static inline int64_t pd_job_microbatches(const struct pd_job *job, int64_t minibatches)
{
	return minibatches * job->plan->microbatches;
}

static inline int64_t pd_job_minibatches(const struct pd_job *job, int64_t microbatches)
{
	return microbatches / job->plan->microbatches;
}

/* Returns the microbatch with which the run begins. */
static inline int64_t pd_job_first(const struct pd_job *job)
{
	return job->resume_step < 0 ? 0 : pd_job_microbatches(job, job->resume_step);
}

/* Returns whether nothing is left to train, by a run that is resumed or of no minibatches. */
static inline bool pd_job_trained(const struct pd_job *job)
{
	return pd_job_first(job) >= pd_job_microbatches(job, job->total_minibatches);
}
/* Says so, unless the job is quiet. */
void pd_job_say_trained(const struct pd_job *job);

/* Returns the minibatches that what the run begins with was trained for, as far as is known. */
static inline int64_t pd_job_first_step(const struct pd_job *job)
{
	int64_t step = job->only_evaluates ? job->evaluated_step : job->resume_step;

	return step < 0 ? 0 : step;
}

/* Returns whether an epoch ends before that microbatch. */
static inline bool pd_job_epoch_ends(const struct pd_job *job, int64_t at)
{
	return at % pd_job_microbatches(job, job->epoch_minibatches) == 0;
}

/* A position among the phases of a job. */
struct pd_position {
	int number;                     /* number of the phase, from 0 */
	int64_t next;                   /* microbatch to be trained next */
	bool evaluate_next;
	int64_t base;
};

/* Refuses what was found under a name, if the first process found something else: sum. */
int pd_job_check_sum(const char *name, uint64_t found, const char *sum, struct pd_error *err);
/* Lets go of the checkpoint that ranks have begun with. */
void pd_job_release_held(struct pd_job *job);
/* What of --init begins anew, as pd_initial_open() has it. */
const char *pd_job_anew(const struct pd_job *job);
/* Says which run this is, to those who find its lock; free() it. */
char *pd_job_what(const struct pd_job *job);
/* Finds and verifies the checkpoint of resume_step, or the newest, in one folder with all stages. */
int pd_job_resume(struct pd_job *job, struct pd_error *err);
/* Finds and verifies in the same way the checkpoint that a job evaluates: sets init, for nothing is written there. */
int pd_job_find_evaluated(struct pd_job *job, struct pd_error *err);
/*
 * Compares the network and its data's normalisation with those of the checkpoint that --init names,
 * which is held.
 */
int pd_job_check_begun(struct pd_job *job, struct pd_error *err);
/* Says what a job evaluates, and on which data, unless it is quiet. */
void pd_job_say_evaluated(const struct pd_job *job, const struct pd_dataset *test);
/* Goes on from a checkpoint if it is of the same run: sets resume_step. */
int pd_job_go_on(struct pd_job *job, const struct pd_checkpoint *ck, struct pd_error *err);
/* Notes and says that the checkpoint of a step is passed over. */
void pd_job_pass_over(void *job, int64_t step, const struct pd_error *why);

void pd_job_begin(const struct pd_job *job, struct pd_position *position);
/*
 * Returns how many microbatches of its epoch a run that goes on at `at` has behind it, or 0 where
 * that makes no difference, or where replicas or updates start anew there.
 */
int64_t pd_job_into_epoch(const struct pd_job *job, const struct pd_schedule *schedule, int64_t at);
/* Sets the next phase; returns false when there is none. */
bool pd_job_next(const struct pd_job *job, const struct pd_schedule *schedule,
		 struct pd_position *position, struct pd_phase *phase_p);
/*
 * Returns the next checkpoint's microbatch after `after`, which lies at the phase's beginning or
 * inside it; at most phase->last.  -1: none.
 */
int64_t pd_job_next_checkpoint(const struct pd_job *job, const struct pd_schedule *schedule,
			       const struct pd_phase *phase, int64_t after);
