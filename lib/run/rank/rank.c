/* SPDX-License-Identifier: Apache-2.0 */
/* A rank at work: its checkpoints and its phases. */
#include "run/rank/rank.h"

#include "base/median.h"
#include "base/mem.h"
#include "run/rank/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define UNWRITTEN 2                     /* the most checkpoints in memory */

/* ---- checkpoints ---- */

struct pd_saver *rank_saver_of(struct rank_part *part, int64_t step)
{
	for (size_t i = 0; i < part->saver_count; i++)
		if (part->savers[i]->step == step)
			return part->savers[i];
	return NULL;
}

/* Returns an unused saver of stage number i. */
struct pd_saver *rank_free_saver(struct rank *rank, int i)
{
	struct rank_part *part = &rank->parts[i];
	struct pd_saver *saver = rank_saver_of(part, -1);

	if (saver)
		return saver;
	saver = pd_zalloc(sizeof(*saver));
	*saver = (struct pd_saver){
		.job = rank->job, .device = rank->device, .net = part->net,
		.worker = rank->worker, .number = i, .stage = part->stage, .step = -1,
		.replica = rank->replica,
	};
	part->savers = pd_grow(part->savers, &part->saver_capacity, part->saver_count + 1,
			       sizeof(*part->savers));
	part->savers[part->saver_count++] = saver;
	return saver;
}

/*
 * The worker is held while checkpoints come faster than they are written.  A held rank has exported
 * all that these checkpoints need, so none waits for ever.
 */
static void hold_back(struct rank *rank)
{
	const struct rank_part *part = &rank->parts[0];
	int unwritten = 0;

	for (size_t i = 0; i < part->saver_count; i++)
		unwritten += part->savers[i]->step >= 0 && part->savers[i]->complete;
	pd_worker_hold(rank->worker, unwritten >= UNWRITTEN);
}

/* Replica 0 of each stage saves it; where sums are sparse, the others what they left. */
static bool saves(const struct rank *rank)
{
	return rank->job->checkpoint && (rank->replica == 0 || rank->job->plan->chunk > 0);
}

void rank_ask_checkpoint(struct rank *rank, int64_t at)
{
	if (!saves(rank))
		return;
	for (int i = 0; i < rank->part_count; i++)
		pd_saver_begin(rank_free_saver(rank, i), at,
			       pd_worker_checkpoint_oldest(rank->worker, i, at));
	pd_worker_checkpoint(rank->worker, at);
}

/* Returns how many microbatches the first stage may be ahead of its backwards. */
static int64_t most_ahead(const struct rank *rank)
{
	return (int64_t)rank->schedule->slots[0] * rank->job->plan->stages[0].replicas;
}

/*
 * Asks for checkpoints inside the phase before any of their microbatches can be issued.  In one
 * step the worker gets no further than its slots allow.
 */
static void ask_next_checkpoint(struct rank *rank)
{
	int64_t reach = pd_worker_highest(rank->worker) + 2 * (most_ahead(rank) +
							       pd_schedule_unit(rank->schedule));

	if (!rank->in_phase || rank->phase.evaluate || rank->stopping)
		return;
	if (rank->asked < rank->phase.first)
		rank->asked = rank->phase.first;
	while (rank->asked >= 0 && rank->asked <= reach) {
		int64_t at = pd_job_next_checkpoint(rank->job, rank->schedule, &rank->phase,
						    rank->asked);

		if (at < 0 || at >= rank->phase.last)
			return;         /* take_end() saves the end of the phase */
		rank->asked = at;
		rank_ask_checkpoint(rank, at);
	}
}

/* Reports an exported checkpoint, in minibatches. */
static int exported(struct rank *rank, struct rank_part *part, struct pd_saver *saver)
{
	const struct pd_job *job = rank->job;
	json_t *versions = json_array(), *scales = pd_plan_agrees(job->plan) ? json_array() : NULL;
	char *bad = pd_saver_not_finite(saver);
	json_t *not_finite = bad ? json_string(bad) : NULL;

	free(bad);
	for (int i = 0; i < saver->version_count; i++)
		pd_json_add(versions,
			    json_integer(pd_job_minibatches(job, saver->versions[i].number)));
	for (int i = 0; i < saver->version_count && scales; i++)
		pd_json_add(scales, json_pack("{s:I, s:f, s:I, s:I}",
			"version", (json_int_t)pd_job_minibatches(job, saver->versions[i].number),
			"loss_scale", saver->versions[i].scale.loss_scale,
			"good", (json_int_t)saver->versions[i].scale.good,
			"skipped", (json_int_t)saver->versions[i].scale.skipped));
	part->exported = saver->step;
	return say(rank, json_pack("{s:s, s:i, s:i, s:I, s:o, s:o*, s:o*}", "event", "exported",
				   "stage", saver->stage, "replica", saver->replica, "step",
				   (json_int_t)pd_job_minibatches(job, saver->step),
				   "versions", versions, "scales", scales, "not_finite",
				   not_finite));
}

static int take_pause_of(struct rank *rank, struct rank_part *part, enum pd_pause pause,
			 struct pd_error *err)
{
	for (size_t i = 0; i < part->saver_count; i++) {
		struct pd_saver *saver = part->savers[i];
		bool state;

		if (saver->step < 0 || saver->complete)
			continue;
		/*
		 * The pause may be for the state of an earlier checkpoint; and where other replicas
		 * have some of the lanes, the state is together only where a phase ends.
		 */
		state = pause == PD_PAUSE_STATE &&
			pd_worker_state_reached(rank->worker, saver->step) &&
			!pd_plan_deals_lanes(rank->job->plan, saver->stage);
		if (pd_saver_take(saver, state, err) < 0)
			return -1;
		if (saver->complete && exported(rank, part, saver) < 0)
			return -1;
	}
	return 0;
}

/*
 * Tells the worker of checkpoints that all stages of the rank have exported: it need not pause for
 * them.
 */
static void forget_complete(struct rank *rank)
{
	for (size_t i = 0; i < rank->parts[0].saver_count; i++) {
		int64_t step = rank->parts[0].savers[i]->step;
		bool complete = step >= 0;

		for (int k = 0; k < rank->part_count && complete; k++)
			complete = rank->parts[k].exported >= step;
		if (complete)
			pd_worker_checkpoint_done(rank->worker, step);
	}
}

static int take_pause(struct rank *rank, struct pd_error *err)
{
	enum pd_pause pause = pd_worker_paused(rank->worker);

	for (int i = 0; i < rank->part_count; i++)
		if (take_pause_of(rank, &rank->parts[i], pause, err) < 0)
			return -1;
	forget_complete(rank);
	return 0;
}

/*
 * Takes the checkpoint at the end of an epoch or of the run: the newest version alone, or what is
 * missing of one that the worker has paused for.
 */
static int take_end(struct rank *rank, int i, struct pd_error *err)
{
	struct rank_part *part = &rank->parts[i];
	struct pd_saver *saver;

	if (!saves(rank) || part->exported >= rank->phase.last)
		return 0;
	saver = rank_saver_of(part, rank->phase.last);  /* that waits for the lanes of others */
	if (!saver) {
		saver = rank_free_saver(rank, i);
		pd_saver_begin(saver, rank->phase.last, rank->phase.last);
	}
	return pd_saver_take(saver, true, err) < 0 ? -1 : exported(rank, part, saver);
}

/*
 * Ends a phase whose operations are done.  To be called until it returns 1; -1: failed, 0: it waits
 * for other replicas.  Between calls the rank reads messages, since a stop may be asked for while
 * another replica, held back by that, has nothing to share yet.
 */
static int end_phase(struct rank *rank, struct pd_error *err)
{
	bool trained = !rank->phase.evaluate && rank->phase.last > rank->phase.first;
	int verdict = trained ? rank_share_state(rank, err) : 1;

	if (verdict <= 0)
		return verdict;
	pd_heartbeat_begin(&rank->heartbeat, &rank->process->channel);
	for (int i = 0; i < rank->part_count && trained; i++)
		if (take_end(rank, i, err) < 0)
			return -1;
	if (trained)
		forget_complete(rank);
	pd_heartbeat_end(&rank->heartbeat);
	rank->in_phase = false;
	return 1;
}

/* ---- phases ---- */

/* Begins the next phase, or returns false when there is none. */
static bool next_phase(struct rank *rank)
{
	int64_t floor;

	if (rank->stopping && rank->position.number >= rank->stop_phase)
		return false;
	if (!pd_job_next(rank->job, rank->schedule, &rank->position, &rank->phase))
		return false;
	floor = rank->phase.first;
	if (rank->position.number == 0 && rank->job->resume_step >= 0)
		floor = rank->floor;
	if (rank->phase.evaluate)
		pd_weights_newest(pd_worker_weights(rank->worker, 0), &floor);
	pd_worker_begin(rank->worker, &rank->phase, floor);
	rank->in_phase = true;
	/* a run that goes on inside an epoch needs older versions, too */
	if (!rank->phase.evaluate && !rank->job->lists &&
	    !pd_job_epoch_ends(rank->job, rank->phase.last))
		rank_ask_checkpoint(rank, rank->phase.last);
	return true;
}

/*
 * All is done here.  Others may still need what the transport does for them; those that are told
 * before this one to go take their connections along, which is no failure any more.
 */
static void serve_others(struct rank *rank)
{
	const struct pd_transport_ops *transport = rank->transport->ops;

	if (!rank->cut_off)
		rank->cut_off = transport->progress(rank->transport) < 0;
	rank_sleep(rank);
}

static int say_done(struct rank *rank)
{
	json_t *durations = rank->durations ? pd_durations_json(rank->durations) : NULL;
	int64_t pulses;

	rank_take_pulse(rank);
	pulses = rank->pulse_count < RANK_PULSES ? rank->pulse_count : RANK_PULSES;
	return say(rank, json_pack("{s:s, s:o*, s:I}", "event", "done", "durations", durations,
				   "pulse_ns", (json_int_t)(pulses > 0 ? pd_median(rank->pulses, pulses) : 0)));
}

static int train(struct rank *rank, struct pd_error *err)
{
	bool finished = false;
	int verdict;

	pd_job_begin(rank->job, &rank->position);
	while (!rank->exit) {
		if (rank_read_messages(rank, err) < 0 || rank_say_alive(rank) < 0 ||
		    rank_say_not_finite_data(rank) < 0)
			return -1;
		if (rank->exit)
			break;
		if (!rank->in_phase && !rank->frozen && !finished && !next_phase(rank)) {
			finished = true;
			if (rank->trace && (fflush(rank->trace) != 0 || ferror(rank->trace)))
				return pd_error_failed(err, "%s: cannot write: %s", rank->job->trace,
						       strerror(errno));
			if (say_done(rank) < 0)
				return -1;
		}
		if (finished && !rank->in_phase) {
			serve_others(rank);
			continue;
		}
		ask_next_checkpoint(rank);
		hold_back(rank);
		switch (pd_worker_step(rank->worker, err)) {
		case PD_WORKER_BUSY:
			break;
		case PD_WORKER_PAUSED:
			pd_heartbeat_begin(&rank->heartbeat, &rank->process->channel);
			if (take_pause(rank, err) < 0)
				return -1;
			pd_heartbeat_end(&rank->heartbeat);
			break;
		case PD_WORKER_DONE:
			verdict = rank->in_phase ? end_phase(rank, err) : 1;
			if (verdict < 0)
				return -1;
			if (verdict == 0 || finished || rank->frozen)
				rank_sleep(rank);
			break;
		case PD_WORKER_WAITING:
			rank_sleep(rank);
			break;
		case PD_WORKER_FAILED:
			return -1;
		}
	}
	return 0;
}

static void tear_down(struct rank *rank)
{
	for (int i = 0; i < rank->part_count; i++) {
		struct rank_part *part = &rank->parts[i];

		for (size_t k = 0; k < part->saver_count; k++) {
			pd_saver_release(part->savers[k]);
			free(part->savers[k]);
		}
		free(part->savers);
		free(part->shares);
		free(part->gathered);
	}
	pd_worker_free(rank->worker);
	for (int i = 0; i < rank->part_count; i++) {
		pd_loader_close(rank->parts[i].loader);
		if (rank->parts[i].net)
			rank->device->ops->net.close(rank->parts[i].net);
	}
	free(rank->parts);
	if (rank->buffer_counts)
		pd_buffer_counts_release(rank->buffer_counts, rank->part_count);
	free(rank->buffer_counts);
	pd_durations_free(rank->durations);
	if (rank->transport)
		rank->transport->ops->close(rank->transport);
	if (rank->device)
		rank->device->ops->close(rank->device);
	pd_dataset_release(&rank->train);
	pd_dataset_release(&rank->test);
	pd_schedule_free(rank->schedule);
	pd_job_free(rank->job);
	if (rank->trace)
		fclose(rank->trace);
	rank_folder_release(rank);
	pd_gate_release(&rank->gate);
}

/* Adds what messages say to `told`, up to one of that kind, or the exit: what many are told comes by itself. */
static int hear(struct rank *rank, json_t *told, const char *event, struct pd_error *err)
{
	int mine = 0;

	while (mine >= 0 && !rank->exit && !pd_message_is(told, event)) {
		json_t *message;

		if (pd_channel_wait(&rank->process->channel, -1, &message) < 0)
			return pd_error_failed(err, "the launcher is gone");
		rank->exit = pd_message_is(message, "exit");
		mine = rank_folder_message(rank, message, err);
		if (mine == 0)
			json_object_update_recursive(told, message);
		json_decref(message);
	}
	return mine < 0 ? -1 : 0;
}

/* Gets ready to train, unless the supervisor has only asked about folders. */
static int prepare(struct rank *rank, struct pd_error *err)
{
	json_t *job = json_object(), *connect = json_object();
	int status;

	pd_heartbeat_begin(&rank->heartbeat, &rank->process->channel);
	status = hear(rank, job, "place", err);
	if (status == 0 && !rank->exit)
		status = rank_set_up(rank, job, err) < 0 || rank_say_ready(rank, err) < 0 ||
			 hear(rank, connect, "connect", err) < 0 || rank_connect(rank, connect, err) < 0 ? -1 : 0;
	pd_heartbeat_end(&rank->heartbeat);
	json_decref(job);
	json_decref(connect);
	return status;
}

static int run(struct pd_rank_process *process, const json_t *message, struct pd_error *err)
{
	static struct rank rank;        /* which streams may still use when it has failed */
	int status;

	(void)message;
	rank = (struct rank){ .process = process, .heard = true };
	status = pd_gate_init(&rank.gate, err) < 0 ? -1 : prepare(&rank, err);
	pd_mem_for("training and its checkpoints");
	if (status == 0 && !rank.exit)
		status = train(&rank, err);
	if (status == 0)
		tear_down(&rank);
	else if (!err->text[0])
		*err = rank.send_error;
	return status;
}

const struct pd_rank_task pd_training_task = { .event = "train", .run = run };
