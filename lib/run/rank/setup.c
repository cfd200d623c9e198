/* SPDX-License-Identifier: Apache-2.0 */
/* Sets a rank up: data, device, transport, worker, parameters. */
#include "run/rank/internal.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/processors.h"
#include "checkpoint/checkpoint.h"
#include "plan/recompute.h"
#include "plan/show.h"
#include "run/device/rehearse.h"
#include "run/transport/address.h"
#include "schedule/peers.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LOADER_AHEAD 3

static void on_retired(void *context, const struct pd_record *record)
{
	struct rank *rank = context;
	struct pd_record shifted = *record;

	if (rank->durations)
		pd_durations_add(rank->durations, record);
	if (!rank->trace)
		return;
	shifted.start_ns -= rank->zero_ns;
	shifted.end_ns -= rank->zero_ns;
	pd_trace_write_record(rank->trace, &shifted);
}

static void on_losses(void *context, const struct pd_op *op, const struct pd_loss *losses,
		      int count)
{
	struct rank *rank = context;
	const struct pd_plan *plan = rank->job->plan;
	json_t *list = json_array();
	bool finite = true;

	for (int k = 0; k < count; k++)
		finite &= isfinite(losses[k].sum);
	if (!finite)                    /* the cause is named before what it has done */
		rank_say_not_finite_data(rank);
	/* JSON has no infinity: a diverged loss is null */
	for (int k = 0; k < count; k++)
		pd_json_add(list, json_pack("{s:o, s:I, s:I, s:I}", "sum",
			isfinite(losses[k].sum) ? json_real(losses[k].sum) : json_null(),
			"correct", (json_int_t)losses[k].correct,
			"samples", (json_int_t)losses[k].samples,
			"rows", (json_int_t)losses[k].rows));
	say(rank, json_pack("{s:s, s:I, s:I, s:b, s:i, s:i, s:o}", "event", "losses",
			    "at_ns", (json_int_t)(pd_now_ns() - rank->zero_ns), "microbatch", (json_int_t)op->microbatch, "evaluate", (int)op->evaluate,
			    "phase", rank->position.number, "first",
			    pd_model_losses(plan->profile->model, 0,
					    plan->stages[op->stage].first_layer),
			    "losses", list));
}

/* Reports an update from one rank, since the numbers are the same at all. */
static void on_updated(void *context, const struct pd_op *step, const struct pd_outcome *outcome)
{
	say(context, json_pack("{s:s, s:I, s:o, s:f, s:I, s:b}", "event", "updated",
			       "version", (json_int_t)step->version, "grad_norm",
			       isfinite(outcome->norm) ? json_real(outcome->norm) : json_null(),
			       "loss_scale", outcome->loss_scale,
			       "skipped", (json_int_t)outcome->skipped, "skip",
			       (int)outcome->skip));
}

static int open_loader(struct rank *rank, struct rank_part *part, struct pd_error *err)
{
	const struct pd_model *model = rank->job->plan->profile->model;
	const struct pd_net_sizes *sizes = rank->device->ops->net.sizes(part->net);
	int *inputs = pd_calloc((size_t)model->input_count, sizeof(*inputs)), n = 0;
	struct pd_loader_config config = {
		.model = model, .train = rank->job->only_evaluates ? NULL : &rank->train,
		.test = rank->job->test_microbatches ? &rank->test : NULL,
		.batch_size = rank->job->plan->profile->batch_size,
		.microbatches = rank->job->plan->microbatches,
		.dtype = rank->job->plan->profile->dtype, .seed = (uint64_t)rank->job->seed,
		.inputs = inputs,
		.ahead = LOADER_AHEAD, .device = rank->device, .gate = &rank->gate,
	};

	for (int i = 0; i < sizes->in_count; i++)
		if (sizes->in[i].tensor < model->input_count)
			inputs[n++] = sizes->in[i].tensor;
	config.input_count = n;
	if (n > 0 && (!rank->job->augment ||
		      pd_augment_parse(rank->job->augment, model, &config.augment, err) == 0))
		part->loader = pd_loader_open(&config, err);
	free(inputs);
	return n == 0 || part->loader ? 0 : -1;
}

/* Rehearses, before any transfer of this rank can wait on the device for another rank. */
static int rehearse(struct rank *rank, struct rank_part *part, const struct pd_net_config *net,
		    struct pd_error *err)
{
	const struct pd_plan *plan = rank->job->plan;
	struct pd_buffer_counts counts;
	struct pd_rehearsal what = {
		.config = net, .evaluates = rank->job->test_microbatches > 0,
		.update = rank->job->optimizer.kind,
		.moments = pd_optimizer_moments(&rank->job->optimizer).count,
		.agrees = pd_plan_agrees(plan),
		.corrects = rank->job->optimizer.corrects && pd_schedule_delay(rank->schedule, part->stage) > 0,
		.spares_vectors = rank->job->optimizer.spares_vectors,
	};

	if (!rank->device->ops->separate_memory || plan->rank_count == 1)
		return 0;
	if (rank->buffer_counts)
		counts = rank->buffer_counts[part - rank->parts];
	else
		pd_buffer_counts_of_stage(rank->schedule, part->stage, &counts);
	/* where several backwards are added up, the first goes to another arena than the others */
	what.turns = pd_buffer_counts_turns(&counts) * (plan->microbatches > 1 ? 2 : 1);
	return pd_rehearse(rank->device, part->net, &what, &rank->gate, err);
}

static int open_part(struct rank *rank, struct rank_part *part, struct pd_error *err)
{
	const struct pd_plan *plan = rank->job->plan;
	const struct pd_device_ops *device = rank->device->ops;
	struct pd_net_config net = {
		.model = plan->profile->model, .batch_size = plan->profile->batch_size,
		.microbatches = plan->microbatches,
		.dtype = plan->profile->dtype, .seed = (uint64_t)rank->job->seed,
		.first = plan->stages[part->stage].first_layer,
		.count = plan->stages[part->stage].layer_count, .split = rank->schedule->splits,
		.copies = pd_plan_has_tied_weights(plan),
		.recomputes = plan->stages[part->stage].recompute,
		.segment = pd_plan_reruns_some(plan, part->stage) ? plan->segment : NULL,
	};
	const char **engines;
	int64_t *algorithms;

	if (net.split && !device->splits)
		return pd_error_input(err, "schedule \"%s\": the %s device cannot split backward in"
				      " two", pd_schedule_kind_name[plan->schedule], device->name);
	if (net.copies && !device->net.tied_layers)
		return pd_error_input(err, "parameters that layers share: the %s device has one place"
				      " for them", device->name);
	algorithms = pd_calloc((size_t)plan->profile->layer_count, sizeof(*algorithms));
	engines = pd_calloc((size_t)plan->profile->layer_count, sizeof(*engines));
	for (int l = 0; l < plan->profile->layer_count; l++) {
		algorithms[l] = plan->profile->layers[l].algorithms;
		engines[l] = plan->profile->layers[l].engines;
	}
	net.algorithms = algorithms;
	net.engines = engines;
	part->net = device->net.open(rank->device, &net, err);
	free(algorithms);
	free(engines);
	if (!part->net)
		return -1;
	return rehearse(rank, part, &net, err) < 0 ? -1 : open_loader(rank, part, err);
}

/* With whom this rank exchanges anything; a new array. */
static bool *find_peers(const struct rank *rank)
{
	bool *peers = pd_calloc((size_t)rank->job->plan->rank_count, sizeof(*peers));

	pd_schedule_peers(rank->schedule, rank->process->rank, peers);
	return peers;
}

static int open_transport(struct rank *rank, struct pd_error *err)
{
	int ranks = rank->job->plan->rank_count;
	bool *peers = find_peers(rank);
	struct pd_routes_config config = {
		.how = rank->job->transport, .rank = rank->process->rank, .ranks = ranks,
		.seat = rank->job->seat, .peers = peers,
		.device = rank->device->ops->separate_memory ? rank->device : NULL,
		.gate = &rank->gate,
	};

	rank->transport = pd_routes_open(&config, err);
	free(peers);
	return rank->transport ? 0 : -1;
}

/* Returns as many threads as the plan was made for, if this process has so many processors. */
static int64_t threads_of(const struct pd_job *job)
{
	int64_t share = pd_processors(), profiled = job->plan->profile->device_threads;

	if (job->threads > 0)
		return job->threads;
	return profiled > 0 && profiled < share ? profiled : share;
}

/* Refuses a device of another kind than the plan has for the rank. */
static int check_kind(const struct rank *rank, struct pd_error *err)
{
	const struct pd_plan *plan = rank->job->plan;
	const struct pd_topology *topology = &plan->topology;
	const char *planned = topology->kind[pd_topology_kind_of(topology, rank->process->rank)].name;
	struct pd_device_info info;
	char *devices;

	if (!pd_topology_mixed(topology))
		return 0;
	rank->device->ops->describe(rank->device, &info);
	if (strcmp(info.name, planned) == 0)
		return 0;
	devices = pd_show_devices(topology);
	pd_error_input(err, "%s: rank %d computes on \"%s\", and the plan has it on \"%s\": expected %s",
		       pd_plan_name(plan), rank->process->rank, info.name, planned, devices);
	free(devices);
	return -1;
}

static int open_device(struct rank *rank, struct pd_error *err)
{
	const struct pd_device_ops *ops = pd_device_find(rank->job->device, err);
	struct pd_device_config config = { .gate = &rank->gate, .ordinal = rank->job->seat.device,
					   .tf32 = rank->job->tf32,
					   .untimed = !rank->job->trace,
					   .threads = (int)rank->threads };
	const struct pd_job *job = rank->job;

	if (!ops)
		return -1;
	if (!ops->separate_memory && job->transport && pd_provider_of_devices(job->transport))
		return pd_error_input(err, "--transport=%s: the %s device's workers share a memory,"
				      " and pass everything through that", job->transport,
				      ops->name);
	if (ops->separate_memory)
		pd_routes_prepare(job->transport, ops, rank->process->rank, job->plan->rank_count,
				  &job->seat);
	rank->device = ops->open(&config, err);
	if (!rank->device || check_kind(rank, err) < 0)
		return -1;
	pd_mem_for("layers, and data that are loaded");
	for (int i = 0; i < rank->part_count; i++)
		if (open_part(rank, &rank->parts[i], err) < 0)
			return -1;
	pd_mem_for("what workers exchange");
	return open_transport(rank, err);
}

static int restore_weights(struct rank *rank, struct pd_error *err)
{
	struct pd_checkpoint *ck = rank->job->own_folders
		? pd_checkpoint_open_part(rank->job->checkpoint, rank->job->resume_step, err)
		: pd_checkpoint_open(rank->job->checkpoint, rank->job->resume_step, err);
	int status = 0;

	if (!ck)
		return -1;
	/* a schedule with several stages on a rank drains, and keeps no older versions */
	for (int i = 0; i < rank->part_count && status == 0; i++)
		status = pd_saver_restore(ck, rank->schedule, rank_free_saver(rank, i), &rank->floor,
					  err);
	pd_checkpoint_close(ck);
	return status;
}

/* Counts the buffers that a schedule from a file needs. */
static void count_buffers(struct rank *rank)
{
	if (!rank->job->lists)
		return;
	rank->buffer_counts = pd_calloc((size_t)rank->part_count, sizeof(*rank->buffer_counts));
	pd_buffer_counts_of_list(rank->schedule, rank->job->lists, rank->process->rank,
				 rank->job->test_microbatches > 0, rank->buffer_counts);
}

static int open_worker(struct rank *rank, struct pd_error *err)
{
	const struct pd_job *job = rank->job;
	struct pd_worker_stage *stages = pd_calloc((size_t)rank->part_count, sizeof(*stages));
	struct pd_worker_config config = {
		.schedule = rank->schedule, .rank = rank->process->rank, .device = rank->device,
		.stages = stages, .first_tensor = job->plan->profile->model->input_count,
		.transport = rank->transport, .gate = &rank->gate,
		.batch_size = job->plan->profile->batch_size,
		.test_samples = rank->test.samples,
		.list = job->lists ? &job->lists->ranks[rank->process->rank] : NULL,
		.buffer_counts = rank->buffer_counts, .optimizer = job->optimizer,
		.retired = rank->trace || rank->durations ? on_retired : NULL, .losses = on_losses,
		.updated = rank->process->rank == 0 ? on_updated : NULL, .context = rank,
	};

	for (int i = 0; i < rank->part_count; i++)
		stages[i] = (struct pd_worker_stage){ rank->parts[i].net, rank->parts[i].loader };
	pd_mem_for("weights, activations and gradients");
	rank->worker = pd_worker_new(&config, err);
	free(stages);
	if (!rank->worker)
		return -1;
	pd_routes_expect(rank->transport, pd_worker_under_way_bytes(rank->worker));
	pd_mem_for("parameters");
	if (rank_begin_weights(rank, err) < 0)
		return -1;
	if (job->resume_step >= 0 && restore_weights(rank, err) < 0)
		return -1;
	for (int i = 0; i < rank->part_count; i++)
		if (pd_worker_correct_discrepancy(rank->worker, i) < 0)
			return pd_error_failed(err, "parameters cannot be read from the device");
	return 0;
}

/* Durations are kept where somebody may expect some, and the device takes times without being asked. */
static void open_durations(struct rank *rank)
{
	int stages[rank->part_count];

	if (!pd_profile_has_spread(rank->job->plan->profile) ||
	    (rank->device->ops->separate_memory && !rank->job->trace))
		return;
	for (int i = 0; i < rank->part_count; i++)
		stages[i] = rank->parts[i].stage;
	rank->durations = pd_durations_new(stages, rank->part_count);
}

static int open_trace(struct rank *rank, struct pd_error *err)
{
	if (!rank->job->trace)
		return 0;
	rank->trace = pd_channel_stream(&rank->process->channel);
	if (!rank->trace)
		return pd_error_failed(err, "%s: cannot write: %s", rank->job->trace,
				       strerror(errno));
	return 0;
}

static void set_parts(struct rank *rank)
{
	int count = pd_schedule_chunks(rank->schedule, rank->process->rank), stages[count];

	rank->replica = pd_schedule_stages(rank->schedule, rank->process->rank, stages);
	rank->part_count = count;
	rank->parts = pd_calloc((size_t)rank->part_count, sizeof(*rank->parts));
	for (int i = 0; i < rank->part_count; i++)
		rank->parts[i] = (struct rank_part){ .stage = stages[i],
						     .exported = rank->job->resume_step < 0 ? -1
							    : pd_job_first(rank->job) };
}

/* Each host reads the data by itself: its first rank finds out whether they are the same. */
static int check_data(const struct rank *rank, struct pd_error *err)
{
	const struct pd_job *job = rank->job;
	const struct pd_dataset *set = job->only_evaluates ? &rank->test : &rank->train;

	if (!job->data_sum || job->seat.hosts < 2 || job->seat.local > 0)
		return 0;
	return pd_job_check_sum(job->data, pd_dataset_checksum(set, job->plan->profile->model),
				job->data_sum, err);
}

int rank_set_up(struct rank *rank, json_t *message, struct pd_error *err)
{
	pd_mem_for("the plan");
	rank->job = pd_job_parse(message, err);
	if (!rank->job)
		return -1;
	rank->schedule = pd_schedule_new(rank->job->plan, err);
	if (!rank->schedule)
		return -1;
	rank->threads = threads_of(rank->job);
	set_parts(rank);
	pd_mem_for("the data set");
	if (pd_job_data(rank->job, &rank->train, &rank->test, err) < 0)
		return -1;
	if (check_data(rank, err) < 0)
		return -1;
	count_buffers(rank);
	if (open_device(rank, err) < 0 || open_trace(rank, err) < 0)
		return -1;
	open_durations(rank);
	return open_worker(rank, err);
}

int rank_say_ready(struct rank *rank, struct pd_error *err)
{
	char *address = pd_address_text(rank->transport);
	json_t *ready = json_pack("{s:s, s:I, s:I}", "event", "ready",
				  "memory_bytes", (json_int_t)pd_worker_bytes(rank->worker),
				  "threads", (json_int_t)rank->threads);
	int status = pd_exchange_put(&rank->process->exchange, address, ready, err);

	free(address);
	if (status == 0)
		return say(rank, ready);
	json_decref(ready);
	return -1;
}

/* Reports why GPUs do not exchange as fast as they could. */
static int say_transport(struct rank *rank)
{
	const char *why;
	const struct pd_transport_provider *chosen = pd_routes_chosen(rank->transport, &why);
	char *text = why && chosen->before ? pd_format("%s%s%s", chosen->before, why, chosen->after) : NULL;
	int status = text ? say(rank, json_pack("{s:s, s:o}", "event", "exchange", "text", pd_json_bytes(text))) : 0;

	free(text);
	return status;
}

/* A rank knows its own address as the others do. */
static int learn_addresses(struct rank *rank, json_t *message, struct pd_error *err)
{
	bool *known = find_peers(rank);
	int status;

	known[rank->process->rank] = true;
	status = pd_exchange_get(&rank->process->exchange, known, rank->job->plan->rank_count, message, err);
	free(known);
	return status;
}

int rank_connect(struct rank *rank, json_t *message, struct pd_error *err)
{
	pd_mem_for("what workers exchange");
	rank->zero_ns = pd_member_int(message, "zero_ns") + rank->job->seat.clock_ahead_ns;
	return learn_addresses(rank, message, err) < 0 ||
	       pd_address_connect(rank->transport, message, err) < 0 ||
	       say_transport(rank) < 0 ? -1 : 0;
}
