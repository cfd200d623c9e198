/* SPDX-License-Identifier: Apache-2.0 */
/* The device seam in virtual time: streams of tasks with durations. */
#include "base/cost.h"
#include "base/mem.h"
#include "engine/device/sim/engine.h"
#include "sums/direct.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GIVEN_BACK (-1)

struct stream;

/*
 * A task is one piece of work on a stream.  It waits for its events and for its turn, which comes
 * when it is the first of its stream.
 */
struct task {
	struct pd_sim_activity activity;
	struct stream *stream;
	struct task *after;             /* the next one on the stream */
	union {
		int64_t duration_ns;
		int64_t start_ns;       /* once it has begun */
	};
	enum { ALONE, AHEAD, BESIDE } half;     /* of a pair: a forward, the backward beside it */
};

struct stream {
	struct pd_stream base;
	struct pd_sim_device *device;
	bool computes;                  /* forwards and backwards, not only the sums of replicas */
	int64_t ended_ns;               /* when it last was busy */
	int64_t paired_ns;              /* when its last pair began */
	struct task *ahead;             /* a forward for whose backward a pair waits; or NULL */
	struct task *first, *last;
	struct task *open;              /* collects waits for the work that is queued next */
};

static struct pd_sim_device *device_of(struct pd_device *device)
{
	return (struct pd_sim_device *)device;
}

static void task_end(struct pd_sim *sim, struct pd_sim_activity *activity)
{
	struct task *task = (struct task *)activity;
	struct stream *stream = task->stream;

	stream->first = task->after;
	if (sim->now_ns > task->start_ns)
		stream->ended_ns = sim->now_ns;
	if (stream->first)
		__builtin_prefetch(stream->first, 1);
	else
		stream->last = NULL;
	sim->computed = stream->computes;
	pd_sim_complete(sim, activity->rank, activity->event, task->start_ns, sim->now_ns);
	sim->computed = false;
	pd_pool_return(&sim->tasks, task);
	if (stream->first)
		pd_sim_let(sim, &stream->first->activity);
}

static void task_run(struct pd_sim *sim, struct pd_sim_activity *activity)
{
	struct task *task = (struct task *)activity;
	int64_t duration_ns = task->duration_ns;

	if (task->half == AHEAD)
		task->stream->paired_ns = sim->now_ns;
	task->start_ns = task->half == BESIDE ? task->stream->paired_ns : sim->now_ns;
	activity->next = task_end;
	pd_sim_compute(sim, activity, activity->rank, duration_ns);
}

/* What a stream computes begins late if the stream was idle before. */
static void task_begin(struct pd_sim *sim, struct pd_sim_activity *activity)
{
	const struct task *task = (const struct task *)activity;

	if (sim->launch_ns == 0 || !task->stream->computes || task->duration_ns == 0 ||
	    task->stream->ended_ns == sim->now_ns) {
		task_run(sim, activity);
		return;
	}
	activity->next = task_run;
	pd_sim_at(sim, activity, sim->now_ns + sim->launch_ns);
}

static struct task *open_task(struct stream *stream)
{
	struct task *task = stream->open;

	if (!task) {
		task = pd_pool_take(&stream->device->sim->tasks, sizeof(*task));
		*task = (struct task){ .activity = { .next = task_begin, .waits = 1,
						     .rank = stream->device->rank },
				       .stream = stream };
	}
	return task;
}

static void queue(struct stream *stream, struct task *task)
{
	if (stream->last) {
		stream->last->after = task;
		stream->last = task;
		return;
	}
	stream->first = stream->last = task;
	pd_sim_let(stream->device->sim, &task->activity);
}

/*
 * The first task of a pair waits for all that either waits for, takes what both do, and is held until the second is
 * known.  The second ends with it, and is said to have begun with it.
 */
static void wait(struct stream *stream, struct pd_event *ev)
{
	if (pd_event_done(ev))
		return;
	if (!stream->ahead)
		stream->open = open_task(stream);
	pd_sim_await(stream->device->sim, &(stream->ahead ? stream->ahead : stream->open)->activity, ev);
}

static void hold(struct stream *stream, struct task *task)
{
	task->half = AHEAD;
	task->activity.waits++;
	stream->ahead = task;
}

/* Makes a task the second of a pair; returns the first, which may go on. */
static struct task *pair(struct stream *stream, struct task *task)
{
	double pairs = stream->device->kind->profile->pairs;
	struct task *first = stream->ahead;

	first->duration_ns = pd_pair_ns(first->duration_ns, task->duration_ns,
					llround(pairs * PD_PAIR_PARTS));
	task->half = BESIDE;
	task->duration_ns = 0;
	stream->ahead = NULL;
	return first;
}

static struct pd_stream *stream_open(struct pd_device *device, struct pd_error *err)
{
	struct stream *stream = pd_arena_take(&device_of(device)->sim->streams, 1,
					      sizeof(*stream));

	stream->base.device = device;
	stream->device = device_of(device);
	return &stream->base;
}

/*
 * Streams and tasks are freed at the end only: an event may still refer to a task that is open, or,
 * after a failed run, to one that will never run.
 */
static void stream_close(struct pd_stream *base)
{
}

static int sim_count(struct pd_error *why)
{
	return 0;
}

static struct pd_device *sim_open(const struct pd_device_config *config, struct pd_error *err)
{
	pd_error_input(err, "the simulated device computes nothing: it serves replays only");
	return NULL;
}

static void sim_close(struct pd_device *device)
{
}

static void sim_describe(struct pd_device *device, struct pd_device_info *info_p)
{
	*info_p = (struct pd_device_info){ .name = "simulated" };
}

/* Addresses start high and grow; blocks of a rank never share an address, and none is NULL. */
static void *sim_alloc(struct pd_device *base, size_t bytes, struct pd_error *err)
{
	struct pd_sim_device *device = device_of(base);
	struct pd_sim_block *block;
	int64_t held;

	if (bytes > INT64_MAX || !pd_add(device->bytes, (int64_t)bytes, &held)) {
		pd_error_input(err, "rank %d holds 2^63 bytes or more", device->rank);
		return NULL;
	}
	device->blocks = pd_grow(device->blocks, &device->block_capacity,
				 device->block_count + 1, sizeof(*device->blocks));
	block = &device->blocks[device->block_count++];
	block->address = device->next_address;
	block->bytes = (int64_t)bytes;
	device->next_address += pd_align(bytes) + PD_ALIGN;
	device->bytes = held;
	return (void *)(uintptr_t)block->address;
}

/* Returns the last block that begins at or before an address; there is one. */
static struct pd_sim_block *find_block(const struct pd_sim_device *device, uint64_t address)
{
	size_t low = 0, high = device->block_count;

	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;

		if (device->blocks[middle].address <= address)
			low = middle;
		else
			high = middle;
	}
	return &device->blocks[low];
}

/* A freed block keeps its entry while later blocks exist. */
static void sim_release(struct pd_device *base, void *ptr)
{
	struct pd_sim_device *device = device_of(base);
	struct pd_sim_block *block;

	if (!ptr)
		return;
	block = device->block_count > 0 ? find_block(device, (uintptr_t)ptr) : NULL;
	if (!block || block->address != (uintptr_t)ptr || block->bytes == GIVEN_BACK)
		pd_bug("rank %d: frees simulated memory that it does not hold", device->rank);
	device->bytes -= block->bytes;
	block->bytes = GIVEN_BACK;
	while (device->block_count > 0 &&
	       device->blocks[device->block_count - 1].bytes == GIVEN_BACK)
		device->block_count--;
}

static bool sim_shares(struct pd_device *device, const int *ranks, int n, size_t floats)
{
	struct pd_members members = device_of(device)->sim->direct;

	members.ranks = ranks;
	members.count = n;
	members.direct_bytes_per_s = device_of(device)->direct_bytes_per_s;
	return pd_direct_expected(&members, (int64_t)(floats * sizeof(float)));
}

static struct pd_net *sim_net_open(struct pd_device *device, const struct pd_net_config *config,
				   struct pd_error *err)
{
	pd_error_input(err, "the simulated device has the nets of its plan, and no others");
	return NULL;
}

static void sim_net_close(struct pd_net *net)
{
}

static const struct pd_net_sizes *sim_net_sizes(const struct pd_net *net)
{
	return ((const struct pd_sim_net *)net)->sizes;
}

static int sim_net_init(struct pd_net *net, void *weights, void *master, void *state,
			struct pd_error *err)
{
	return 0;
}

static int sim_net_named(const struct pd_net *net, const struct pd_named **list_p)
{
	*list_p = NULL;
	return 0;
}

/* Returns the time of a sum of so many gradients by a speed; 0: sums take none. */
static int64_t sum_ns(size_t count, double part, int64_t bytes_per_s)
{
	double ns = bytes_per_s > 0 ? (double)count * sizeof(float) * part * 1e9 /
				      (double)bytes_per_s : 0;

	return ns < (double)PD_COST_MAX ? llround(ns) : PD_COST_MAX;
}

static int sim_net_tied_layers(const struct pd_net *base, const struct pd_tied_layer **list_p)
{
	const struct pd_sim_net *net = (const struct pd_sim_net *)base;

	*list_p = net->tied_layers;
	return net->tied_layer_count;
}

static int64_t layers_ns(const int64_t *before, const struct pd_work *w, double factor)
{
	int64_t ns = before[w->from + w->count] - before[w->from];

	return factor > 1 ? llround((double)ns * factor) : ns;
}

static const int64_t *backward_of(const struct pd_sim_kind *kind, enum pd_backward_part part)
{
	return part == PD_BACKWARD_INPUT ? kind->input_ns : part == PD_BACKWARD_WEIGHT ? kind->weight_ns
		: kind->backward_ns;
}

/* A member sums its share of the n buffers while the others sum theirs. */
static int64_t sum_all_ns(const struct pd_sim_device *device, int64_t count)
{
	struct pd_members members = device->sim->direct;

	members.direct_bytes_per_s = device->direct_bytes_per_s;
	return pd_direct_ns(&members, count * (int64_t)sizeof(float));
}

/*
 * The profile's rates are for f32 rounded to 16 bits, six bytes read and written, and for 16 bits added
 * to f32, ten.  If it has none, bytes take as long as in a sum of f32, twelve.
 */
static int64_t mixed_sum_ns(const struct pd_profile *profile, const struct pd_mixed_sum *sum)
{
	double bytes = 4 * (sum->n + 1) - 2 * (__builtin_popcount(sum->narrow_sources) + sum->narrow);
	int64_t rate = sum->n == 1 ? profile->round_bytes_per_s : profile->mixed_sum_bytes_per_s;

	return rate > 0 ? sum_ns(sum->count, bytes / (sum->n == 1 ? 6 : 10), rate)
			: sum_ns(sum->count, bytes / 12, profile->sum_bytes_per_s);
}

/* A pass reads gradients and residual and writes two arrays: a third more than a sum.  To choose takes no time. */
static int64_t chunks_ns(const struct pd_profile *profile, const struct pd_chunks *what)
{
	bool packs = what->step == PD_CHUNKS_PACK;
	int64_t count = (packs ? what->count : what->sent) * what->chunk;

	return what->step == PD_CHUNKS_CHOOSE ? 0
		: sum_ns((size_t)count, (packs ? 4 : 2) / 3.0, profile->sum_bytes_per_s);
}

/* The profile's rate of sums is for two sources: two arrays read, one written. */
static int64_t work_ns(const struct pd_sim_device *device, const struct pd_work *w)
{
	const struct pd_sim_kind *kind = device->kind;

	switch (w->kind) {
	case PD_WORK_FORWARD:
		return layers_ns(w->pass.again ? kind->again_ns : kind->forward_ns, w, device->replicas.forward);
	case PD_WORK_BACKWARD:
		return layers_ns(backward_of(kind, w->pass.part), w, device->replicas.backward);
	case PD_WORK_UPDATE:
		return layers_ns(w->update.next != w->update.weights ? kind->update_apart_ns : kind->update_ns, w,
				 device->replicas.update);
	case PD_WORK_SUM:
		return sum_ns(w->sum.count, (w->sum.n + 1) / 3.0, kind->profile->sum_bytes_per_s);
	case PD_WORK_SUM_ALL:
		return sum_all_ns(device, (int64_t)w->sum_all.count * w->sum_all.n);
	case PD_WORK_MIXED_SUM:
		return mixed_sum_ns(kind->profile, &w->mixed_sum);
	case PD_WORK_CHUNKS:
		return chunks_ns(kind->profile, &w->chunks);
	default:                /* the profile has no times for these */
		return 0;
	}
}

static void submit_task(struct stream *stream, const struct pd_work *w)
{
	struct task *task = open_task(stream), *first = NULL;

	stream->open = NULL;
	task->duration_ns = work_ns(stream->device, w);
	task->activity.event = w->ev;
	if (w->kind == PD_WORK_FORWARD && w->pass.beside && stream->device->kind->profile->pairs > 0)
		hold(stream, task);
	else if (w->kind == PD_WORK_BACKWARD && stream->ahead)
		first = pair(stream, task);
	queue(stream, task);
	if (first)
		pd_sim_let(stream->device->sim, &first->activity);
}

static int submit(struct pd_stream *base, const struct pd_work *works, int n)
{
	struct stream *stream = (struct stream *)base;

	for (const struct pd_work *w = works; w < works + n; w++) {
		if (w->kind == PD_WORK_WAIT) {
			wait(stream, w->awaited);
			continue;
		}
		stream->computes |= w->kind == PD_WORK_FORWARD || w->kind == PD_WORK_BACKWARD ||
				    w->kind == PD_WORK_UPDATE;
		submit_task(stream, w);
	}
	return 0;
}

const struct pd_device_ops pd_device_sim = {
	.name = "sim",
	.splits = true,
	.count = sim_count,
	.open = sim_open,
	.close = sim_close,
	.describe = sim_describe,
	.memory.alloc = sim_alloc,
	.memory.shared_alloc = sim_alloc,
	.memory.shares = sim_shares,
	.memory.free = sim_release,
	.stream.open = stream_open,
	.stream.close = stream_close,
	.stream.submit = submit,
	.net.open = sim_net_open,
	.net.close = sim_net_close,
	.net.sizes = sim_net_sizes,
	.net.init = sim_net_init,
	.net.named = sim_net_named,
	.net.tied_layers = sim_net_tied_layers,
};
