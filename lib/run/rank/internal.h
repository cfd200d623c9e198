/* SPDX-License-Identifier: Apache-2.0 */
/* A rank that trains, private to this folder.  run/job/job.h has what it hears and says. */
#pragma once

#include "base/event.h"
#include "engine/data/loader.h"
#include "run/job/job.h"
#include "run/launch/heartbeat.h"
#include "run/launch/task.h"
#include "run/rank/saver.h"
#include "run/transport/routes.h"
#include "trace/durations.h"

#define RANK_PULSES 256

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
	struct rank_folder folder;
	struct pd_rank_process *process;
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
	return pd_channel_send(&rank->process->channel, message, &rank->send_error);
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

/* folder.c: returns 1 if the message was about a folder of checkpoints and is done, else 0 */
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
