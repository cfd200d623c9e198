/* SPDX-License-Identifier: Apache-2.0 */
#include "predict/replay.h"

#include "base/json.h"
#include "base/mem.h"
#include "engine/device/sim/sim.h"
#include "engine/transport/sim/sim.h"
#include "engine/worker/worker.h"
#include "schedule/schedule.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct replay {
	const struct pd_plan *plan;
	const struct pd_replay_options *options;
	struct pd_schedule *schedule;
	struct pd_sim *sim;
	struct pd_sim_fabric *fabric;
	struct pd_arena arena;          /* memory of the workers */
	struct pd_worker **workers;     /* per rank */
	struct pd_buffer_counts *buffer_counts; /* per rank and chunk, or NULL */
	bool *done;
	int live;                       /* workers that are not done */
};

static void replay_free(struct replay *replay)
{
	for (int r = 0; replay->workers && r < replay->plan->rank_count; r++)
		pd_worker_free(replay->workers[r]);
	if (replay->buffer_counts)
		pd_buffer_counts_release(replay->buffer_counts,
					 replay->plan->rank_count * replay->schedule->chunks);
	free(replay->buffer_counts);
	free(replay->workers);
	pd_arena_release(&replay->arena);
	free(replay->done);
	pd_sim_fabric_free(replay->fabric);
	pd_sim_free(replay->sim);
	pd_schedule_free(replay->schedule);
}

/* Allocates as many buffers as the lists need. */
static void follow_lists(struct replay *replay, const struct pd_lists *lists)
{
	size_t ranks = (size_t)replay->plan->rank_count;
	int chunks = replay->schedule->chunks;

	replay->buffer_counts = pd_calloc(ranks * (size_t)chunks, sizeof(*replay->buffer_counts));
	for (int r = 0; r < replay->plan->rank_count; r++)
		pd_buffer_counts_of_list(replay->schedule, lists, r, false,
					 &replay->buffer_counts[r * chunks]);
}

int64_t pd_replay_work(const struct pd_plan *plan, int64_t microbatches)
{
	double work = 0;

	for (int s = 0; s < plan->stage_count; s++) {
		double r = plan->stages[s].replicas,
		       updates = (double)microbatches / (double)pd_plan_group(plan, s);

		work += 8 * (double)microbatches + (r > 1 ? 4 * r * r * updates : 0);
	}
	return work < (double)INT64_MAX / 2 ? (int64_t)work : INT64_MAX / 2;
}

int64_t pd_replay_length(const struct pd_plan *plan, int64_t most_work)
{
	int64_t usual = pd_times(pd_steady_minibatches(plan), plan->microbatches),
		two = 2 * plan->microbatches;

	if (pd_replay_work(plan, usual) <= most_work)
		return usual;
	return pd_weights_have(plan->weights, PD_WEIGHTS_DRAINS) && pd_replay_work(plan, two) <= most_work ? two : 0;
}

/* Returns how many microbatches are trained without lists or bounds. */
static int64_t length(const struct pd_plan *plan, const struct pd_replay_options *options)
{
	int64_t n;

	if (options->microbatches)
		return options->microbatches;
	if (options->minibatches)
		return pd_mul(options->minibatches, plan->microbatches, &n) ? n : INT64_MAX;
	n = pd_replay_length(plan, PD_REPLAY_WORK);
	return n ? n : pd_steady_part(plan);
}

/*
 * Counts buffers for the generator's lists, but for no more microbatches than are replayed: with
 * GPipe many more of a long update may be in flight.
 */
static void counts_of_stages(const struct replay *replay, const struct pd_replay_options *options,
			     const int *stages, int chunks, struct pd_buffer_counts *buffer_counts)
{
	const struct pd_plan *plan = replay->plan;
	int64_t microbatches = length(plan, options);

	for (int i = 0; i < chunks; i++) {
		struct pd_buffer_counts *counts = &buffer_counts[i];
		int64_t most = microbatches / plan->stages[stages[i]].replicas + 2;

		pd_buffer_counts_of_stage(replay->schedule, stages[i], counts);
		if (options->phase_count > 0)
			continue;
		counts->slots = counts->slots < most ? counts->slots : (int)most;
		counts->pool = counts->pool < chunks * most ? counts->pool : (int)(chunks * most);
		counts->inboxes = counts->inboxes < most ? counts->inboxes : (int)most;
	}
}

static void share_processors(struct replay *replay, const struct pd_replay_options *options)
{
	int64_t processors = options->processors > 0 ? options->processors
						     : replay->plan->topology.processors;
	int64_t threads = options->threads > 0 ? options->threads
					       : replay->plan->profile->device_threads;

	if (processors > 0)
		pd_sim_set_processors(replay->sim, processors, threads > 0 ? threads : 1);
}

static void ahead(void *context, int rank, int step)
{
	struct replay *replay = context;

	pd_worker_prefetch(replay->workers[rank], step);
}

static void note(void *context, const struct pd_record *record)
{
	struct replay *replay = context;
	const struct pd_replay_options *options = replay->options;

	pd_recurrence_note(options->recurrence, record,
			   pd_worker_ahead(replay->workers[record->op.rank]), pd_sim_now_ns(replay->sim));
	if (options->retired)
		options->retired(options->context, record);
}

static int replay_new(struct replay *replay, const struct pd_plan *plan,
		      const struct pd_replay_options *options, struct pd_error *err)
{
	*replay = (struct replay){ .plan = plan, .options = options };
	replay->schedule = options->lists && pd_weights_have(plan->weights, PD_WEIGHTS_DRAINS)
		? pd_schedule_of_lists(plan) : pd_schedule_new(plan, err);
	if (!replay->schedule)
		return -1;
	if (options->lists)
		follow_lists(replay, options->lists);
	replay->sim = pd_sim_new(plan, replay->schedule->wiring);
	share_processors(replay, options);
	replay->fabric = pd_sim_fabric_new(replay->sim, &plan->topology);
	replay->workers = pd_calloc((size_t)plan->rank_count, sizeof(struct pd_worker *));
	replay->done = pd_calloc((size_t)plan->rank_count, sizeof(bool));
	for (int r = 0; r < plan->rank_count; r++) {
		int most = replay->schedule->chunks, chunks = pd_schedule_chunks(replay->schedule, r);
		int stages[chunks];
		struct pd_worker_stage nets[chunks];
		struct pd_buffer_counts buffer_counts[chunks];
		struct pd_worker_config config = {
			.schedule = replay->schedule, .rank = r,
			.device = pd_sim_device(replay->sim, r), .stages = nets,
			.transport = pd_sim_transport(replay->fabric, r),
			.batch_size = plan->profile->batch_size,
			.optimizer = { .hyper.momentum = 1 },       /* the velocity counts as memory */
			.list = options->lists ? &options->lists->ranks[r] : NULL,
			.buffer_counts = options->lists ? &replay->buffer_counts[r * most]
			: buffer_counts, .arena = &replay->arena,
			.retired = options->recurrence ? note : options->retired,
			.context = options->recurrence ? replay : options->context,
		};

		pd_schedule_stages(replay->schedule, r, stages);
		if (!options->lists)
			counts_of_stages(replay, options, stages, chunks, buffer_counts);
		for (int i = 0; i < chunks; i++)
			nets[i] = (struct pd_worker_stage){
				.net = pd_sim_net(replay->sim, stages[i]) };
		replay->workers[r] = pd_worker_new(&config, err);
		if (!replay->workers[r])
			return -1;
	}
	pd_sim_look_ahead(replay->sim, ahead, replay);
	return 0;
}

/* Lets a worker do all that it can at this time. */
static int drive(struct replay *replay, int rank, struct pd_error *err)
{
	struct pd_worker *worker = replay->workers[rank];
	const struct pd_event *awaited = NULL;
	enum pd_worker_state state;

	do {
		state = pd_worker_step(worker, err);
		if (state != PD_WORKER_FAILED)
			awaited = pd_worker_awaits(worker);
	} while (state == PD_WORKER_BUSY && !awaited);
	if (state == PD_WORKER_FAILED)
		return pd_error_prefix(err, "rank %d", rank);
	pd_sim_awaits(replay->sim, rank, awaited);
	if (state == PD_WORKER_DONE && !replay->done[rank]) {
		replay->done[rank] = true;
		replay->live--;
	}
	return 0;
}

static int stalled(const struct replay *replay, struct pd_error *err)
{
	char text[400] = "", name[40];
	struct pd_op op;
	size_t used = 0;

	for (int r = 0; r < replay->plan->rank_count && used + 40 < sizeof(text); r++)
		if (!replay->done[r] && pd_worker_oldest(replay->workers[r], &op))
			used += (size_t)snprintf(text + used, sizeof(text) - used,
						 ", rank %d for %s", r, pd_op_short(&op, name));
	return pd_error_failed(err, "the replay stalls at %" PRId64 " ns with %d of %d ranks not"
			       " done%s%s", pd_sim_now_ns(replay->sim), replay->live,
			       replay->plan->rank_count, used ? ": waiting" : "",
			       used ? text + 1 : "");
}

static int too_long(const struct pd_plan *plan, const struct pd_replay_options *options, struct pd_error *err)
{
	if (!options->too_long)
		return pd_error_input(err, "%s: the replay takes more than 73 years of virtual time: "
				      "expected faster links or layers", pd_plan_name(plan));
	*options->too_long = true;
	return 0;
}

static int train_phase(struct replay *replay, const struct pd_phase *phase,
		       const struct pd_replay_options *options, struct pd_error *err)
{
	replay->live = replay->plan->rank_count;
	memset(replay->done, 0, (size_t)replay->plan->rank_count * sizeof(bool));
	for (int r = 0; r < replay->plan->rank_count; r++) {
		pd_worker_begin(replay->workers[r], phase, phase->first);
		if (drive(replay, r, err) < 0)
			return -1;
	}
	while (replay->live > 0 && !(options->enough && *options->enough)) {
		if (!pd_sim_advance(replay->sim))
			return stalled(replay, err);
		if (pd_sim_now_ns(replay->sim) >= PD_COST_MAX)
			return too_long(replay->plan, options, err);
		for (int r; (r = pd_sim_ready(replay->sim)) >= 0;)
			if (drive(replay, r, err) < 0)
				return -1;
	}
	return 0;
}

static int train(struct replay *replay, const struct pd_replay_options *options,
		 struct pd_error *err)
{
	struct pd_phase phase = { .last = length(replay->plan, options) };

	if (options->lists)
		phase.last = options->lists->microbatches;
	if (options->phase_count == 0)
		return train_phase(replay, &phase, options, err);
	for (int p = 0; p < options->phase_count; p++) {
		phase.first = options->bounds[p];
		phase.last = options->bounds[p + 1];
		if (train_phase(replay, &phase, options, err) < 0)
			return -1;
		phase.base = pd_schedule_next_base(replay->schedule, &phase);
	}
	return 0;
}

int pd_replay_run(const struct pd_plan *plan, const struct pd_replay_options *options,
		  struct pd_error *err)
{
	struct replay replay;
	int result = replay_new(&replay, plan, options, err);

	if (result == 0)
		result = train(&replay, options, err);
	replay_free(&replay);
	return result;
}

static void gather(void *context, const struct pd_record *record)
{
	pd_trace_add(context, record);
}

static struct pd_plan *copy_of(const struct pd_plan *plan, struct pd_error *err)
{
	json_t *json = pd_plan_json(plan);
	struct pd_place place = pd_place_root(pd_plan_name(plan), json);
	struct pd_plan *copy = pd_plan_parse_at(&place, err);

	json_decref(json);
	return copy;
}

struct pd_trace *pd_replay(const struct pd_plan *plan, const struct pd_replay_options *options,
			   struct pd_error *err)
{
	struct pd_replay_options with = options ? *options : (struct pd_replay_options){ 0 };
	struct pd_plan *copy = copy_of(plan, err);
	struct pd_trace *trace;

	if (!copy)
		return NULL;
	trace = pd_trace_new(copy, "sim", 0);
	trace->shared = with.processors > 0 || copy->topology.processors > 0;
	with.retired = gather;
	with.context = trace;
	if (pd_replay_run(trace->plan, &with, err) < 0) {
		pd_trace_free(trace);
		return NULL;
	}
	pd_trace_sort(trace);
	return trace;
}
