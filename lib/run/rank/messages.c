/* SPDX-License-Identifier: Apache-2.0 */
/* The messages that a rank receives and sends while it trains. */
#include "run/rank/internal.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/pulse.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ALIVE_NS INT64_C(1000000000)

static int stop_at(struct rank *rank, const json_t *message)
{
	int phase = (int)pd_member_int(message, "phase");
	int64_t at = pd_member_int(message, "at");

	rank->stopping = true;
	rank->frozen = false;
	rank->stop_phase = phase;
	if (rank->in_phase && rank->position.number == phase && !rank->phase.evaluate &&
	    at < rank->phase.last) {
		for (int i = 0; i < rank->part_count; i++) {
			struct pd_saver *end = rank_saver_of(&rank->parts[i], rank->phase.last);

			if (end) {
				pd_worker_checkpoint_done(rank->worker, end->step);
				pd_saver_release(end);
			}
		}
		/* the phase has not begun; the one before left its checkpoint, if any */
		if (at > rank->phase.first && !rank_saver_of(&rank->parts[0], at) &&
		    rank->parts[0].exported < at)
			rank_ask_checkpoint(rank, at);
		pd_worker_limit(rank->worker, at);
		rank->phase.last = at;
	} else {
		pd_worker_limit(rank->worker, INT64_MAX);
	}
	rank->job->total_minibatches = pd_job_minibatches(rank->job, at);
	return 0;
}

static int write_checkpoint(struct rank *rank, int64_t step, struct pd_error *err)
{
	int64_t at = pd_job_microbatches(rank->job, step);

	if (rank_folder_begin(rank, step, err) < 0)
		return -1;
	for (int i = 0; i < rank->part_count; i++) {
		struct pd_checkpoint_file file;

		if (pd_saver_write(rank_saver_of(&rank->parts[i], at), &file, err) < 0 ||
		    say(rank, pd_job_file_json("saved", step, &file)) < 0)
			return -1;
	}
	return 0;
}

static int handle(struct rank *rank, json_t *message, struct pd_error *err)
{
	int status = 0;

	if (pd_message_is(message, "stop")) {
		int64_t highest = pd_worker_freeze(rank->worker);

		rank->frozen = true;
		status = say(rank, json_pack("{s:s, s:i, s:b, s:I}", "event", "reached",
					     "phase", rank->position.number,
					     "evaluate", (int)rank->phase.evaluate,
					     "highest", (json_int_t)highest));
	} else if (pd_message_is(message, "stop_at")) {
		status = stop_at(rank, message);
	} else if (pd_message_is(message, "write")) {
		pd_heartbeat_begin(&rank->heartbeat, &rank->process->channel);
		status = write_checkpoint(rank, pd_member_int(message, "step"), err);
		pd_heartbeat_end(&rank->heartbeat);
	} else if (pd_message_is(message, "exit")) {
		rank->exit = true;
	} else {
		status = rank_folder_message(rank, message, err) < 0 ? -1 : 0;
	}
	json_decref(message);
	return status;
}

int rank_read_messages(struct rank *rank, struct pd_error *err)
{
	json_t *message;
	int verdict;

	if (!rank->heard)
		return 0;
	while ((verdict = pd_channel_receive(&rank->process->channel, &message)) > 0)
		if (handle(rank, message, err) < 0)
			return -1;
	rank->heard = false;
	return verdict < 0 ? pd_error_failed(err, "the launcher is gone") : 0;
}

int rank_say_not_finite(struct rank *rank, enum pd_given which, char *text)
{
	json_t *message = json_pack("{s:s, s:i, s:o}", "event", "not_finite", "given", (int)which,
				    "text", pd_json_bytes(text));

	rank->told_not_finite[which] = true;
	free(text);
	return say(rank, message);
}

int rank_say_not_finite_data(struct rank *rank)
{
	for (int i = 0; i < rank->part_count && !rank->told_not_finite[PD_GIVEN_DATA]; i++) {
		struct pd_not_finite met = { 0 };

		if (rank->parts[i].loader)
			met = pd_loader_not_finite(rank->parts[i].loader);
		if (!met.file)
			continue;
		return rank_say_not_finite(rank, PD_GIVEN_DATA, pd_format("%s: sample %" PRId64 " has a number that is "
			"not finite in %s", met.file, met.sample,
			pd_dtype_name[rank->job->plan->profile->dtype]));
	}
	return 0;
}

void rank_take_pulse(struct rank *rank)
{
	if (rank->durations && !rank->device->ops->separate_memory)
		rank->pulses[rank->pulse_count++ % RANK_PULSES] = pd_pulse_ns();
}

int rank_say_alive(struct rank *rank)
{
	int64_t now = pd_now_ns();
	struct pd_op op = { .peer = -1 };
	char name[64] = "";
	bool computing = false;

	if (now - rank->alive_ns < ALIVE_NS)
		return 0;
	rank->alive_ns = now;
	rank_take_pulse(rank);
	rank->heard = true;             /* a rank that never sleeps reads messages now and then */
	if (pd_worker_oldest(rank->worker, &op)) {
		snprintf(name, sizeof(name), "%s of microbatch %" PRId64,
			 pd_op_kind_name[op.kind], op.microbatch);
		computing = op.seq < 0;
	}
	return say(rank, json_pack("{s:s, s:I, s:s, s:b, s:i}", "event", "alive",
				   "retired", (json_int_t)pd_worker_retired(rank->worker),
				   "doing", name, "computing", (int)computing,
				   "peer", (int)op.peer));
}

void rank_sleep(struct rank *rank)
{
	rank->heard |= pd_transport_sleep(rank->cut_off ? NULL : rank->transport, &rank->gate, rank->process->channel.fd,
					  (int)(ALIVE_NS / 1000000));
}
