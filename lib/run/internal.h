/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank and the supervisor of all ranks, private to this folder.  They exchange messages.  The
 * supervisor sends job (the same to all), place (a rank's seat), connect, stop (freeze and report
 * your place), stop_at, write (its files of a checkpoint), exit.  A rank sends ready, staged (why transfers are), alive, losses,
 * updated, reached, exported, saved, not_finite (a number that it was given), done, error.
 *
 * Before the job, on several hosts, the supervisor asks about folders of checkpoints: folder (whose
 * is it?), look (what is in one?), send and receive (a file), received (all of it was sent);
 * a rank answers folder, holds, sent, has.  Who keeps a folder is also told publish and prune, and
 * answers published.
 */
#pragma once

#include "base/awake_clock.h"
#include "base/event.h"
#include "data/loader.h"
#include "launch/exchange.h"
#include "launch/heartbeat.h"
#include "launch/launcher.h"
#include "run/job.h"
#include "run/report.h"
#include "run/saver.h"
#include "run/supervisor.h"
#include "transport/routes.h"

#include <signal.h>

#define SECOND_NS INT64_C(1000000000)
#define RANK_PULSES 256
#define LATE_NS (2 * SECOND_NS)         /* ranks report every second */

/* ---- a rank ---- */

/* A stage that the rank has. */
struct rank_part {
	int stage;
	struct pd_net *net;
	struct pd_loader *loader;
	struct pd_saver **savers;
	size_t saver_count, saver_capacity;
	/* share.c: the step that is under way where a phase ends, and its transfers */
	struct pd_event *shares;
	int share_step, share_count;
	float *gathered;                /* state, all named tensors one after the other */
	int64_t exported;               /* the last checkpoint step that the supervisor was told of */
};

/* The folder of checkpoints that a rank sees. */
struct rank_folder {
	char *directory;
	int keeper;                     /* the rank that keeps it; 0: it is the first process's */
	struct pd_checkpoint_lock *lock; /* of the rank that keeps it, unless that is 0 */
	struct pd_file coming;          /* a file that is received */
};

struct rank {
	int number;
	struct rank_folder folder;
	struct pd_channel channel;
	struct pd_exchange exchange;
	struct pd_heartbeat heartbeat;
	struct pd_gate gate;
	struct pd_job *job;
	struct pd_schedule *schedule;
	int replica, part_count;
	struct rank_part *parts;
	struct pd_dataset train, test;
	struct pd_device *device;
	struct pd_transport *transport;
	struct pd_worker *worker;
	struct pd_buffer_counts *buffer_counts; /* per part; or NULL */
	int64_t floor;                  /* the oldest version of the first phase */
	int64_t asked;                  /* the last checkpoint step that the worker was asked for */
	int64_t alive_ns;
	bool heard;                     /* the supervisor may have sent something */
	struct pd_durations *durations; /* of its operations; NULL: nobody asks */
	int64_t pulses[RANK_PULSES], pulse_count;       /* of its processor; the newest are kept */
	FILE *trace;                    /* the rank's part goes to the supervisor; NULL: no trace */
	int64_t zero_ns;                /* trace times count from here, by this host's clock */
	int64_t threads;

	struct pd_position position;
	struct pd_phase phase;
	bool in_phase, frozen, stopping, exit;
	bool cut_off;                   /* all done, and others have gone */
	int stop_phase;
	bool told_not_finite[PD_GIVEN]; /* the supervisor knows of such a number */
	struct pd_error send_error;
};

/* Sends a message to the supervisor. */
static inline int say(struct rank *rank, json_t *message)
{
	return pd_channel_send(&rank->channel, message, &rank->send_error);
}

/* rank.c: returns the saver of a step; an unused saver of stage number i */
struct pd_saver *rank_saver_of(struct rank_part *part, int64_t step);
struct pd_saver *rank_free_saver(struct rank *rank, int i);
void rank_ask_checkpoint(struct rank *rank, int64_t at);

/*
 * share.c: gives replica 0's running statistics to the other replicas of its stages.  To be called
 * until it returns 1; 0: transfers are under way, -1: one failed.
 */
int rank_share_state(struct rank *rank, struct pd_error *err);

/* setup.c: handles the messages job and connect, and reports ready in between */
int rank_set_up(struct rank *rank, json_t *message, struct pd_error *err);
int rank_say_ready(struct rank *rank, struct pd_error *err);
int rank_connect(struct rank *rank, json_t *message, struct pd_error *err);

/* begin.c: sets the initial parameters, random, or those that the job names */
int rank_begin_weights(struct rank *rank, struct pd_error *err);

/* folder.c: a message about a file of a checkpoint; the file that one is about */
json_t *file_message(const char *event, int64_t step, const struct pd_checkpoint_file *file);
struct pd_checkpoint_file file_of_message(const json_t *message);
/* Returns 1 if the message was about a folder of checkpoints and is done, else 0 */
int rank_folder_message(struct rank *rank, const json_t *message, struct pd_error *err);
/* Makes the unfinished folder of a checkpoint, where that is not the supervisor's. */
int rank_folder_begin(struct rank *rank, int64_t step, struct pd_error *err);
void rank_folder_release(struct rank *rank);

/* messages.c: reads pending messages; reports now and then; sleeps until something happens */
int rank_read_messages(struct rank *rank, struct pd_error *err);
int rank_say_alive(struct rank *rank);
/* Notes how fast the rank's processor is, where somebody asks. */
void rank_take_pulse(struct rank *rank);
/* Names the first number in the data, or in a file of parameters, that is not finite. */
int rank_say_not_finite_data(struct rank *rank);
int rank_say_not_finite(struct rank *rank, enum pd_given which, char *text);
void rank_sleep(struct rank *rank);

/* ---- the supervisor ---- */

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
const char *supervisor_who(const struct supervisor *s, int r, char buf[WHO_TEXT]);
int supervisor_rank_failed(struct supervisor *s, int r, struct pd_error *err, const char *fate);
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
