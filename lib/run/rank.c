/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages, from the supervisor: job, connect, stop (freeze and say where you are), stop_at,
 * write (a checkpoint's stage), exit; to it: ready, alive, loss, reached, exported, saved,
 * done, error.
 */
#include "run/rank.h"

#include "base/clock.h"
#include "base/event.h"
#include "base/mem.h"
#include "checkpoint/checkpoint.h"
#include "data/loader.h"
#include "launch/channel.h"
#include "launch/pulse.h"
#include "run/job.h"
#include "run/saver.h"
#include "transport/staged.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ALIVE_NS INT64_C(1000000000)
#define LOADER_AHEAD 3
#define UNWRITTEN 2                     /* checkpoints held in memory, at most */
#define TAG_STATE ((UINT64_C(1) << 47) | (UINT64_C(1) << 46))

/* One of the rank's stages. */
struct part {
	int stage;
	struct pd_net *net;
	struct pd_loader *loader;
	struct pd_saver **savers;
	size_t saver_count, saver_room;
	int64_t exported;               /* the last checkpoint step told to the supervisor */
};

struct rank {
	int number;
	struct pd_channel channel;
	struct pd_pulse pulse;
	struct pd_gate gate;
	struct pd_job *job;
	struct pd_schedule *schedule;
	int replica, part_count;
	struct part *parts;
	struct pd_dataset train, test;
	struct pd_device *device;
	struct pd_transport *transport;
	struct pd_worker *worker;
	struct pd_list_cursor cursor;   /* of the job's list, where it has one */
	struct pd_room *rooms;          /* that it needs, per part; or NULL */
	int64_t floor;                  /* of the first phase */
	int64_t asked;                  /* the last checkpoint step asked of the worker */
	int64_t alive_ns;
	FILE *trace;
	char *trace_name;
	int64_t zero_ns;                /* trace times count from here */

	struct pd_position position;
	struct pd_phase phase;
	bool in_phase, frozen, stopping, exit;
	int stop_phase;
	struct pd_error send_error;
};

static int say(struct rank *rank, json_t *message)
{
	return pd_channel_send(&rank->channel, message, &rank->send_error);
}

static void on_retired(void *context, const struct pd_record *record)
{
	struct rank *rank = context;
	struct pd_record shifted = *record;

	shifted.start_ns -= rank->zero_ns;
	shifted.end_ns -= rank->zero_ns;
	pd_trace_write_record(rank->trace, &shifted);
}

static void on_loss(void *context, const struct pd_op *op, const struct pd_loss *loss)
{
	struct rank *rank = context;

	/* JSON has no infinity: the loss of a training that diverges is null */
	say(rank, json_pack("{s:s, s:I, s:b, s:i, s:o, s:I, s:I}", "event", "loss",
			    "microbatch", (json_int_t)op->microbatch, "evaluate", (int)op->evaluate,
			    "phase", rank->position.number, "sum", isfinite(loss->sum) ? json_real(loss->sum) : json_null(),
			    "correct", (json_int_t)loss->correct,
			    "samples", (json_int_t)loss->samples));
}

/* All ranks have the same figures: one tells. */
static void on_updated(void *context, const struct pd_op *step, const struct pd_outcome *outcome)
{
	say(context, json_pack("{s:s, s:I, s:o, s:f, s:I}", "event", "updated",
			       "version", (json_int_t)step->version, "grad_norm",
			       isfinite(outcome->norm) ? json_real(outcome->norm) : json_null(),
			       "loss_scale", outcome->loss_scale,
			       "skipped", (json_int_t)outcome->skipped));
}

/* ---- setting up ---- */

static int open_loader(struct rank *rank, struct part *part, struct pd_error *err)
{
	const struct pd_model *model = rank->job->plan->profile->model;
	const struct pd_net_sizes *sizes = rank->device->ops->net_sizes(part->net);
	int inputs[4], n = 0;
	struct pd_loader_config config = {
		.model = model, .train = &rank->train,
		.test = rank->job->test_minibatches ? &rank->test : NULL,
		.batch_size = rank->job->plan->profile->batch_size,
		.seed = (uint64_t)rank->job->seed, .inputs = inputs,
		.ahead = LOADER_AHEAD, .device = rank->device, .gate = &rank->gate,
	};

	for (int i = 0; i < sizes->in_count; i++)
		if (sizes->in[i].tensor < model->input_count && n < 4)
			inputs[n++] = sizes->in[i].tensor;
	config.input_count = n;
	if (n == 0)
		return 0;
	part->loader = pd_loader_open(&config, err);
	return part->loader ? 0 : -1;
}

static int open_part(struct rank *rank, struct part *part, struct pd_error *err)
{
	const struct pd_plan *plan = rank->job->plan;
	const struct pd_device_ops *device = rank->device->ops;
	struct pd_net_config net = {
		.model = plan->profile->model, .batch_size = plan->profile->batch_size,
		.seed = (uint64_t)rank->job->seed,
		.first = plan->stages[part->stage].first_layer,
		.count = plan->stages[part->stage].layer_count, .split = rank->schedule->splits,
	};

	if (net.split && !device->splits)
		return pd_error_input(err, "schedule \"%s\": the %s device cannot split backward in"
				      " two", pd_schedule_kind_name[plan->schedule], device->name);
	if (plan->agree && !device->squares)
		return pd_error_input(err, "plan: agree: the %s device cannot make the norm of"
				      " gradients", device->name);
	part->net = device->net_open(rank->device, &net, err);
	return part->net ? open_loader(rank, part, err) : -1;
}

static int open_device(struct rank *rank, struct pd_error *err)
{
	const struct pd_device_ops *ops = pd_device_find(rank->job->device, err);
	struct pd_device_config config = { .gate = &rank->gate, .ordinal = rank->number,
					   .tf32 = rank->job->tf32,
					   .threads = (int)rank->job->threads };
	struct pd_transport_config ends = { .rank = rank->number,
					    .ranks = rank->job->plan->rank_count,
					    .gate = &rank->gate };

	if (!ops)
		return -1;
	rank->device = ops->open(&config, err);
	if (!rank->device)
		return -1;
	for (int i = 0; i < rank->part_count; i++)
		if (open_part(rank, &rank->parts[i], err) < 0)
			return -1;
	rank->transport = pd_transports[0]->open(&ends, err);
	if (rank->transport && ops->apart)
		rank->transport = pd_staged_open(rank->transport, rank->device, &rank->gate, err);
	return rank->transport ? 0 : -1;
}

static int init_weights(struct rank *rank, struct pd_error *err)
{
	for (int i = 0; i < rank->part_count; i++)
		if (rank->device->ops->net_init(rank->parts[i].net,
				pd_weights_newest(pd_worker_weights(rank->worker, i), NULL),
				pd_worker_state_arena(rank->worker, i), err) < 0)
			return -1;
	return 0;
}

static struct pd_saver *saver_of(struct part *part, int64_t step)
{
	for (size_t i = 0; i < part->saver_count; i++)
		if (part->savers[i]->step == step)
			return part->savers[i];
	return NULL;
}

/* One that is not in use, of stage number i. */
static struct pd_saver *free_saver(struct rank *rank, int i)
{
	struct part *part = &rank->parts[i];
	struct pd_saver *saver = saver_of(part, -1);

	if (saver)
		return saver;
	saver = pd_zalloc(sizeof(*saver));
	*saver = (struct pd_saver){
		.job = rank->job, .device = rank->device, .net = part->net,
		.worker = rank->worker, .number = i, .stage = part->stage, .step = -1,
	};
	part->savers = pd_grow(part->savers, &part->saver_room, part->saver_count + 1,
			       sizeof(*part->savers));
	part->savers[part->saver_count++] = saver;
	return saver;
}

static int restore_weights(struct rank *rank, struct pd_error *err)
{
	struct pd_checkpoint *ck = pd_checkpoint_open(rank->job->checkpoint,
						      rank->job->resume_step, err);
	int status = 0;

	if (!ck)
		return -1;
	/* several stages on a rank: their schedule drains, and keeps no older versions */
	for (int i = 0; i < rank->part_count && status == 0; i++)
		status = pd_saver_restore(ck, rank->schedule, free_saver(rank, i), &rank->floor,
					  err);
	pd_checkpoint_close(ck);
	return status;
}

static bool next_listed(void *context, struct pd_op *op_p)
{
	return pd_list_next(context, op_p);
}

static void follow_list(struct rank *rank, struct pd_worker_config *config)
{
	if (!rank->job->lists)
		return;
	rank->rooms = pd_calloc((size_t)rank->part_count, sizeof(*rank->rooms));
	pd_room_of_list(rank->schedule, rank->job->lists, rank->number,
			rank->job->test_minibatches > 0, rank->rooms);
	config->rooms = rank->rooms;
	config->next = next_listed;
	config->next_context = &rank->cursor;
}

static int open_worker(struct rank *rank, struct pd_error *err)
{
	const struct pd_job *job = rank->job;
	struct pd_worker_stage *stages = pd_calloc((size_t)rank->part_count, sizeof(*stages));
	struct pd_worker_config config = {
		.schedule = rank->schedule, .rank = rank->number, .device = rank->device,
		.stages = stages, .first_tensor = job->plan->profile->model->input_count,
		.transport = rank->transport, .gate = &rank->gate,
		.batch_size = job->plan->profile->batch_size,
		.optimizer = job->optimizer,
		.retired = rank->trace ? on_retired : NULL, .loss = on_loss,
		.updated = rank->number == 0 ? on_updated : NULL, .context = rank,
	};

	for (int i = 0; i < rank->part_count; i++)
		stages[i] = (struct pd_worker_stage){ rank->parts[i].net, rank->parts[i].loader };
	follow_list(rank, &config);
	rank->worker = pd_worker_new(&config, err);
	free(stages);
	if (!rank->worker)
		return -1;
	if (init_weights(rank, err) < 0)
		return -1;
	if (job->resume_step >= 0 && restore_weights(rank, err) < 0)
		return -1;
	for (int i = 0; i < rank->part_count; i++)
		if (pd_worker_correct(rank->worker, i) < 0)
			return pd_error_failed(err, "parameters cannot be read from the device");
	return 0;
}

static int open_trace(struct rank *rank, struct pd_error *err)
{
	if (!rank->job->trace)
		return 0;
	rank->trace_name = pd_format("%s.rank-%d", rank->job->trace, rank->number);
	rank->trace = fopen(rank->trace_name, "we");
	if (!rank->trace)
		return pd_error_failed(err, "%s: cannot create: %s", rank->trace_name,
				       strerror(errno));
	return 0;
}

static void set_parts(struct rank *rank)
{
	int stages[rank->schedule->chunks];

	rank->replica = pd_schedule_stages(rank->schedule, rank->number, stages);
	rank->part_count = rank->schedule->chunks;
	rank->parts = pd_calloc((size_t)rank->part_count, sizeof(*rank->parts));
	for (int i = 0; i < rank->part_count; i++)
		rank->parts[i] = (struct part){ .stage = stages[i],
						.exported = rank->job->resume_step };
}

static int set_up(struct rank *rank, json_t *message, struct pd_error *err)
{
	const struct pd_profile *profile;

	rank->job = pd_job_parse(message, err);
	if (!rank->job)
		return -1;
	profile = rank->job->plan->profile;
	rank->schedule = pd_schedule_new(rank->job->plan, err);
	if (!rank->schedule)
		return -1;
	set_parts(rank);
	if (!profile->model)
		return pd_error_input(err, "the plan's profile has no model: nothing to run");
	return pd_job_data(rank->job, &rank->train, &rank->test, err) < 0 ||
	       open_device(rank, err) < 0 || open_trace(rank, err) < 0 ||
	       open_worker(rank, err) < 0 ? -1 : 0;
}

static char *to_hex(const unsigned char *bytes, size_t length)
{
	char *text = pd_zalloc(length * 2 + 1);

	for (size_t i = 0; i < length; i++)
		sprintf(text + 2 * i, "%02x", bytes[i]);
	return text;
}

static int say_ready(struct rank *rank)
{
	const void *address;
	size_t length;
	char *hex;
	int status;

	rank->transport->ops->address(rank->transport, &address, &length);
	hex = to_hex(address, length);
	status = say(rank, json_pack("{s:s, s:s, s:I}", "event", "ready", "address", hex,
				     "memory_bytes", (json_int_t)pd_worker_bytes(rank->worker)));
	free(hex);
	return status;
}

static void *from_hex(const char *text, size_t *length_p)
{
	unsigned char *bytes;

	*length_p = strlen(text) / 2;
	bytes = pd_zalloc(*length_p);
	for (size_t i = 0; i < *length_p; i++)
		sscanf(text + 2 * i, "%2hhx", &bytes[i]);
	return bytes;
}

static int connect_ranks(struct rank *rank, const json_t *message, struct pd_error *err)
{
	const json_t *list = json_object_get(message, "addresses");
	size_t n = json_array_size(list);
	void **addresses = pd_calloc(n, sizeof(*addresses));
	size_t *lengths = pd_calloc(n, sizeof(*lengths));
	int status;

	for (size_t i = 0; i < n; i++)
		addresses[i] = from_hex(json_string_value(json_array_get(list, i)), &lengths[i]);
	rank->zero_ns = json_integer_value(json_object_get(message, "zero_ns"));
	status = rank->transport->ops->connect(rank->transport, (const void *const *)addresses,
					       lengths, err);
	for (size_t i = 0; i < n; i++)
		free(addresses[i]);
	free(addresses);
	free(lengths);
	return status;
}

/* ---- checkpoints ---- */

/*
 * While checkpoints come faster than they are written, the work waits.  A rank that waits
 * has nothing more to give to those that are to be written, so none waits for ever.
 */
static void hold_back(struct rank *rank)
{
	const struct part *part = &rank->parts[0];
	int unwritten = 0;

	for (size_t i = 0; i < part->saver_count; i++)
		unwritten += part->savers[i]->step >= 0 && part->savers[i]->complete;
	pd_worker_hold(rank->worker, unwritten >= UNWRITTEN);
}

/* Replica 0 of each stage writes it. */
static void ask_checkpoint(struct rank *rank, int64_t at)
{
	if (!rank->job->checkpoint || rank->replica != 0)
		return;
	for (int i = 0; i < rank->part_count; i++)
		pd_saver_begin(free_saver(rank, i), at,
			       pd_worker_checkpoint_oldest(rank->worker, i, at));
	pd_worker_checkpoint(rank->worker, at);
}

/* Minibatches that the first stage is ahead of its backwards. */
static int64_t most_ahead(const struct rank *rank)
{
	return (int64_t)rank->schedule->slots[0] * rank->job->plan->stages[0].replicas;
}

/*
 * Checkpoints inside the phase are asked for before any of their minibatches can be issued:
 * in one step the worker gets no further than its slots reach.
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
			return;         /* the end of the phase takes care of itself */
		rank->asked = at;
		ask_checkpoint(rank, at);
	}
}

static int exported(struct rank *rank, struct part *part, struct pd_saver *saver)
{
	json_t *versions = json_array(), *scales = rank->job->plan->agree ? json_array() : NULL;

	for (int i = 0; i < saver->version_count; i++)
		json_array_append_new(versions, json_integer(saver->versions[i]));
	for (int i = 0; i < saver->version_count && scales; i++)
		json_array_append_new(scales, json_pack("{s:I, s:f, s:I, s:I}",
			"version", (json_int_t)saver->versions[i],
			"loss_scale", saver->scales[i].loss_scale,
			"good", (json_int_t)saver->scales[i].good,
			"skipped", (json_int_t)saver->scales[i].skipped));
	part->exported = saver->step;
	return say(rank, json_pack("{s:s, s:i, s:I, s:o, s:o*}", "event", "exported",
				   "stage", saver->stage, "step", (json_int_t)saver->step,
				   "versions", versions, "scales", scales));
}

static int take_pause_of(struct rank *rank, struct part *part, enum pd_pause pause,
			 struct pd_error *err)
{
	for (size_t i = 0; i < part->saver_count; i++) {
		struct pd_saver *saver = part->savers[i];
		bool reached;

		if (saver->step < 0 || saver->complete)
			continue;
		/* a pause for the state of another checkpoint may come before this one's */
		reached = pause != PD_PAUSE_STATE ||
			  pd_worker_state_reached(rank->worker, saver->step);
		if (pd_saver_take(saver, reached ? pause : PD_PAUSE_VERSION, err) < 0)
			return -1;
		if (saver->complete && exported(rank, part, saver) < 0)
			return -1;
	}
	return 0;
}

/* What all stages of the rank have given, the worker need not pause for any more. */
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
 * Replica 0's running statistics are the stage's: the others, which nothing but an
 * evaluation reads, take them over when a training phase ends.
 */
static int share_state(struct rank *rank, int i, struct pd_error *err)
{
	const struct pd_stage *stage = &rank->job->plan->stages[rank->parts[i].stage];
	const struct pd_transport_ops *transport = rank->transport->ops;
	size_t bytes = rank->device->ops->net_sizes(rank->parts[i].net)->state_bytes;
	void *state = pd_worker_state_arena(rank->worker, i);
	uint64_t tag = TAG_STATE + (uint64_t)i;
	struct pd_event *events;
	bool pending = true;

	if (stage->replicas == 1 || bytes == 0)
		return 0;
	events = pd_calloc((size_t)stage->replicas, sizeof(*events));
	for (int k = 1; k < stage->replicas; k++) {
		if (rank->replica != 0 && rank->replica != k)
			continue;
		pd_event_arm(&events[k]);
		if (rank->replica == 0)
			transport->send(rank->transport, stage->ranks[k], tag, state, bytes, NULL,
					&events[k]);
		else
			transport->recv(rank->transport, stage->ranks[0], tag, state, bytes, NULL,
					&events[k]);
	}
	while (pending) {
		struct pollfd p = { .fd = transport->fd(rank->transport), .events = POLLIN };

		pending = false;
		if (transport->progress(rank->transport) < 0) {
			free(events);
			return pd_error_failed(err, "transport: %s", rank->gate.err.text);
		}
		for (int k = 1; k < stage->replicas; k++)
			pending |= !pd_event_done(&events[k]);
		if (pending && transport->arm(rank->transport) == 0)
			poll(&p, 1, 100);
	}
	free(events);
	return 0;
}

/* The end of an epoch or of the run: the newest version is all there is to keep. */
static int take_end(struct rank *rank, int i, struct pd_error *err)
{
	struct part *part = &rank->parts[i];
	struct pd_saver *saver;

	if (!rank->job->checkpoint || rank->replica != 0 || part->exported >= rank->phase.last)
		return 0;
	saver = free_saver(rank, i);
	saver->step = rank->phase.last;
	return pd_saver_take_all(saver, err) < 0 ? -1 : exported(rank, part, saver);
}

static int phase_done(struct rank *rank, struct pd_error *err)
{
	rank->in_phase = false;
	if (rank->phase.evaluate || rank->phase.last == rank->phase.first)
		return 0;
	/* waits for the other replicas, and takes large arenas along */
	pd_pulse_begin(&rank->pulse, &rank->channel);
	for (int i = 0; i < rank->part_count; i++)
		if (share_state(rank, i, err) < 0 || take_end(rank, i, err) < 0)
			return -1;
	pd_pulse_end(&rank->pulse);
	return 0;
}

/* ---- messages ---- */

static int stop_at(struct rank *rank, const json_t *message)
{
	int phase = (int)json_integer_value(json_object_get(message, "phase"));
	int64_t at = json_integer_value(json_object_get(message, "at"));

	rank->stopping = true;
	rank->frozen = false;
	rank->stop_phase = phase;
	if (rank->in_phase && rank->position.number == phase && !rank->phase.evaluate &&
	    at < rank->phase.last) {
		for (int i = 0; i < rank->part_count; i++) {
			struct pd_saver *end = saver_of(&rank->parts[i], rank->phase.last);

			if (end) {
				pd_worker_checkpoint_done(rank->worker, end->step);
				pd_saver_release(end);
			}
		}
		/* nothing of the phase has begun: the one before left its checkpoint, if any */
		if (at > rank->phase.first && !saver_of(&rank->parts[0], at) &&
		    rank->parts[0].exported < at)
			ask_checkpoint(rank, at);
		pd_worker_limit(rank->worker, at);
		rank->phase.last = at;
	} else {
		pd_worker_limit(rank->worker, INT64_MAX);
	}
	rank->job->total_minibatches = at;
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
		int64_t step = json_integer_value(json_object_get(message, "step"));

		pd_pulse_begin(&rank->pulse, &rank->channel);
		for (int i = 0; i < rank->part_count && status == 0; i++) {
			status = pd_saver_write(saver_of(&rank->parts[i], step), err);
			if (status == 0)
				status = say(rank, json_pack("{s:s, s:I}", "event", "saved",
							     "step", (json_int_t)step));
		}
		pd_pulse_end(&rank->pulse);
	} else if (pd_message_is(message, "exit")) {
		rank->exit = true;
	}
	json_decref(message);
	return status;
}

static int read_messages(struct rank *rank, struct pd_error *err)
{
	json_t *message;
	int verdict;

	while ((verdict = pd_channel_receive(&rank->channel, &message)) > 0)
		if (handle(rank, message, err) < 0)
			return -1;
	return verdict < 0 ? pd_error_failed(err, "the launcher is gone") : 0;
}

static int say_alive(struct rank *rank)
{
	int64_t now = pd_now_ns();
	struct pd_op op;
	char name[64] = "";
	bool computing = false;

	if (now - rank->alive_ns < ALIVE_NS)
		return 0;
	rank->alive_ns = now;
	if (pd_worker_oldest(rank->worker, &op)) {
		snprintf(name, sizeof(name), "%s of minibatch %" PRId64,
			 pd_op_kind_name[op.kind], op.microbatch);
		computing = op.peer < 0 && op.kind != PD_OP_allreduce;
	}
	return say(rank, json_pack("{s:s, s:I, s:s, s:b}", "event", "alive",
				   "retired", (json_int_t)pd_worker_retired(rank->worker),
				   "doing", name, "computing", (int)computing));
}

/* Sleeps until an event completes, the transport moves, or somebody has something to say. */
static void sleep_until_moved(struct rank *rank)
{
	const struct pd_transport_ops *transport = rank->transport->ops;
	struct pollfd fds[3] = {
		{ .fd = rank->gate.fd, .events = POLLIN },
		{ .fd = rank->channel.fd, .events = POLLIN },
		{ .fd = transport->fd(rank->transport), .events = POLLIN },
	};
	uint64_t count;

	if (transport->arm(rank->transport) == 0)
		poll(fds, 3, (int)(ALIVE_NS / 1000000));
	if (read(rank->gate.fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		pd_bug("eventfd: %s", strerror(errno));
}

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
	if (rank->job->lists && !rank->phase.evaluate)
		pd_list_begin(&rank->cursor, &rank->job->lists->ranks[rank->number],
			      &rank->phase);
	pd_worker_begin(rank->worker, &rank->phase, floor);
	rank->in_phase = true;
	/* who goes on inside an epoch needs the older versions too */
	if (!rank->phase.evaluate && !rank->job->lists &&
	    rank->phase.last % rank->job->epoch_minibatches != 0)
		ask_checkpoint(rank, rank->phase.last);
	return true;
}

static int train(struct rank *rank, struct pd_error *err)
{
	bool finished = false;

	pd_job_begin(rank->job, &rank->position);
	while (!rank->exit) {
		if (read_messages(rank, err) < 0 || say_alive(rank) < 0)
			return -1;
		if (rank->exit)
			break;
		if (!rank->in_phase && !rank->frozen && !finished && !next_phase(rank)) {
			finished = true;
			if (rank->trace && (fflush(rank->trace) != 0 || ferror(rank->trace)))
				return pd_error_failed(err, "%s: cannot write: %s", rank->trace_name,
						       strerror(errno));
			if (say(rank, json_pack("{s:s}", "event", "done")) < 0)
				return -1;
		}
		ask_next_checkpoint(rank);
		hold_back(rank);
		switch (pd_worker_step(rank->worker, err)) {
		case PD_WORKER_BUSY:
			break;
		case PD_WORKER_PAUSED:
			pd_pulse_begin(&rank->pulse, &rank->channel);
			if (take_pause(rank, err) < 0)
				return -1;
			pd_pulse_end(&rank->pulse);
			break;
		case PD_WORKER_DONE:
			if (rank->in_phase && phase_done(rank, err) < 0)
				return -1;
			if (finished || rank->frozen)
				sleep_until_moved(rank);
			break;
		case PD_WORKER_WAITING:
			sleep_until_moved(rank);
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
		struct part *part = &rank->parts[i];

		for (size_t k = 0; k < part->saver_count; k++) {
			pd_saver_release(part->savers[k]);
			free(part->savers[k]);
		}
		free(part->savers);
	}
	pd_worker_free(rank->worker);
	for (int i = 0; i < rank->part_count; i++) {
		if (rank->parts[i].loader)
			pd_loader_close(rank->parts[i].loader);
		if (rank->parts[i].net)
			rank->device->ops->net_close(rank->parts[i].net);
	}
	free(rank->parts);
	if (rank->rooms)
		pd_rooms_release(rank->rooms, rank->part_count);
	free(rank->rooms);
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
	free(rank->trace_name);
	pd_gate_release(&rank->gate);
	pd_channel_release(&rank->channel);
}

static int run(struct rank *rank, struct pd_error *err)
{
	json_t *message;
	int status;

	pd_pulse_begin(&rank->pulse, &rank->channel);
	if (pd_channel_wait(&rank->channel, -1, &message) < 0)
		return pd_error_failed(err, "the launcher is gone");
	status = set_up(rank, message, err);
	json_decref(message);
	if (status < 0 || say_ready(rank) < 0)
		return -1;
	if (pd_channel_wait(&rank->channel, -1, &message) < 0)
		return pd_error_failed(err, "the launcher is gone");
	status = connect_ranks(rank, message, err);
	json_decref(message);
	pd_pulse_end(&rank->pulse);
	return status < 0 ? -1 : train(rank, err);
}

enum pd_exit pd_rank_main(int number, int fd)
{
	struct rank rank = { .number = number };
	struct pd_error err = { .status = PD_EXIT_FAILED };
	int status;

	pd_channel_init(&rank.channel, fd);
	if (pd_gate_init(&rank.gate, &err) < 0)
		return PD_EXIT_FAILED;
	err.text[0] = 0;
	status = run(&rank, &err);
	if (status < 0) {
		if (!err.text[0])
			err = rank.send_error;
		say(&rank, json_pack("{s:s, s:s, s:i}", "event", "error", "text", err.text,
				     "status", (int)err.status));
		/* streams may wait for what will never come: nothing is torn down */
		_exit(err.status);
	}
	tear_down(&rank);
	return PD_EXIT_YES;
}
