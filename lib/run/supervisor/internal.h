/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor of all ranks, private to this folder.  run/job/job.h has what it says and hears. */
#pragma once

#include "base/awake_clock.h"
#include "run/launch/launcher.h"
#include "run/supervisor/report.h"
#include "run/supervisor/supervisor.h"

#include <signal.h>

#define SECOND_NS INT64_C(1000000000)
#define LATE_NS (2 * SECOND_NS)         /* ranks report every second */

struct watched {
	int trace;                      /* its part of the trace, a file without a name; -1: none */
	int trace_lost;                 /* the errno of writing that, or 0 */
	struct pd_drift drift;          /* of its host's clock */
	json_t *address;
	int keeper;                     /* the rank that keeps the folder it sees; 0: the supervisor */
	int64_t memory_bytes, threads;
	int64_t heard_ns;               /* time of its last message; this and moved_ns by pd_awake */
	int64_t looked_ns;              /* time of the last look at what its process does */
	int64_t asleep_ns;              /* for how long it has been late, and asleep; 0: it is not late */
	int64_t retired;
	char doing[64];                 /* its oldest unfinished operation */
	bool computing;                 /* that operation needs no other rank */
	int peer;                       /* the other rank of that operation, or -1 */
	bool busy;	/* the rank takes or writes a checkpoint, between operations */
	bool lost_another;              /* it reported that it lost another rank */
	/* its answer to stop: */
	bool evaluate;
	int phase;
	int64_t highest;
};

struct supervisor {
	struct pd_job *job;
	const struct pd_supervision *how;
	struct pd_launcher *launcher;
	struct pd_schedule *schedule;
	struct watched *ranks;
	int count, ready, done, reached;
	int keepers;                    /* ranks that keep folders of their hosts */
	struct pd_run_report report;
	struct pending *pending;        /* incomplete checkpoints (pending.c) */
	size_t pending_count, pending_capacity;
	struct pd_awake awake;
	int signal_fd;
	int signal;                     /* the last signal that asked for an end, or 0 */
	int64_t wished_ns;              /* time of the first such signal */
	sigset_t old_mask;
	bool stop_asked, stop_sent, connected, exchange_said;
	bool at_once;                   /* a signal ended the run at once, out of order */
	int64_t moved_ns;               /* time at which an operation last finished on any rank */
	int64_t last_checkpoint;
	int64_t bad_step;               /* of the first checkpoint whose weights are not finite; -1: none */
	int64_t zero_ns;                /* times of the trace count from here */
};

/* Notes that rank r has said something, or has been asked for something. */
static inline void supervisor_heard(struct supervisor *s, int r)
{
	s->ranks[r].heard_ns = pd_awake_ns(&s->awake);
	s->ranks[r].asleep_ns = 0;
}

/* How a run ended that is to stop when training diverges. */
struct run_end {
	int64_t diverged_at;            /* the minibatch whose loss is not finite; 0: none */
	int64_t bad_step;               /* of the checkpoint whose weights are not; -1: none */
	int64_t last_checkpoint;        /* that was written, or that the run began with; -1: none */
	bool learned_nothing;
	int64_t unit;                   /* pd_schedule_unit() */
};

/* divergence.c: brings a checkpoint of the last good step about.  Returns as pd_supervise() does, never 0. */
int supervisor_stop_at_good(struct pd_job *job, const struct pd_supervision *how,
			    const struct run_end *first, struct pd_error *err);

/* supervisor.c */
/* Runs the job once; returns as pd_supervise() does, and 0 if *end_p says that training has diverged. */
int supervisor_run(struct pd_job *job, const struct pd_supervision *how, struct run_end *end_p,
		   struct pd_error *err);
/* Tells whether the run is to end at once, since it has diverged. */
bool supervisor_gives_up(const struct supervisor *s);
int supervisor_stage_of(const struct supervisor *s, int r, int *replica_p);
struct pd_channel *supervisor_channel(struct supervisor *s, int r);
void supervisor_tell(struct supervisor *s, int r, json_t *message);
void supervisor_tell_all(struct supervisor *s, json_t *message);
int supervisor_read_rank(struct supervisor *s, int r, struct pd_error *err);
void supervisor_ask_stop(struct supervisor *s);
/* The message by which rank r connects. */
json_t *supervisor_connect_message(const struct supervisor *s, int r);

/*
 * pending.c: a stage has exported a checkpoint; has written it; returns whether any is being
 * written
 */
int supervisor_exported(struct supervisor *s, const json_t *message, struct pd_error *err);
int supervisor_saved(struct supervisor *s, const json_t *message, struct pd_error *err);
bool supervisor_writes(const struct supervisor *s);
int supervisor_published(struct supervisor *s, const json_t *message, struct pd_error *err);
/* Abandons the checkpoint that is being written, and frees all. */
void supervisor_forget_pending(struct supervisor *s);

/*
 * folders.c: finds out who sees which folder of checkpoints.  A job that resumes then finds its
 * checkpoint, and brings files to where they are needed; one that gathers brings all together.
 */
int supervisor_find_folders(struct supervisor *s, struct pd_error *err);
/* Tells a keeper to name an unfinished checkpoint, with this document. */
json_t *supervisor_publish_message(int64_t step, const char *document);
/* Tells whether rank r keeps a folder that is not the supervisor's. */
static inline bool supervisor_keeps(const struct supervisor *s, int r)
{
	return r > 0 && s->ranks[r].keeper == r;
}

/*
 * watch.c: waits until all ranks are done; until all have ended; ends early if at_once is set.  The third
 * tells whether rank r has said nothing for too long and slept meanwhile; to be called once a second.
 */
int supervisor_watch(struct supervisor *s, struct pd_error *err);
int supervisor_settle(struct supervisor *s, struct pd_error *err);
bool supervisor_is_silent(struct supervisor *s, int r);

/* signals.c */
int supervisor_catch_signals(struct supervisor *s, struct pd_error *err);
void supervisor_read_signals(struct supervisor *s);
void supervisor_release_signals(struct supervisor *s);

/* mapping.c: hosts against the plan's topology; a line for each rank, to standard output */
int supervisor_check_mapping(struct supervisor *s, struct pd_error *err);
void supervisor_print_mapping(const struct supervisor *s);

/* failure.c: the first writes "rank 1 (stage 1 of 2)"; the others fill err and return -1 */
#define WHO_TEXT 160
/* Says why a signal has ended the run, what is left of it, and how to go on. */
void supervisor_say_stopped(struct supervisor *s, const char *why);
const char *supervisor_who(const struct supervisor *s, int r, char buf[WHO_TEXT]);
int supervisor_rank_silent(struct supervisor *s, int r, struct pd_error *err);
int supervisor_nothing_moves(struct supervisor *s, struct pd_error *err);
int supervisor_nothing_starts(struct supervisor *s, struct pd_error *err);
int supervisor_lost_output(const struct supervisor *s, struct pd_error *err);
int supervisor_on_gone(struct supervisor *s, int r, struct pd_error *err);
int supervisor_on_error(struct supervisor *s, int r, const json_t *message, struct pd_error *err);

/* trace_parts.c */
int supervisor_open_trace(struct supervisor *s, int r, struct pd_error *err);
void supervisor_receive_trace(struct supervisor *s, int r);
int supervisor_has_trace(struct supervisor *s, int r, struct pd_error *err);
int supervisor_merge_trace(struct supervisor *s, struct pd_error *err);
/* Sets how many processors the ranks share, and the threads of each; 0: each has a device of its own. */
void supervisor_processors(const struct supervisor *s, int64_t *processors_p, int64_t *threads_p);
/* Measures the clocks of all hosts once more, while ranks run. */
void supervisor_measure_drift(struct supervisor *s);
void supervisor_close_trace(struct supervisor *s);
