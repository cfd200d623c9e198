/* SPDX-License-Identifier: Apache-2.0 */
#include "run/measure/layers.h"

#include "base/buffer_pieces.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "base/sort.h"
#include "engine/device/submit.h"
#include "profile/rounds.h"
#include "profile/spread.h"
#include "run/measure/bench.h"
#include "run/measure/companions.h"
#include "sums/direct.h"

#include <math.h>
#include <stdlib.h>

#define WARM_UP 3                       /* steps in which kernels are made, and pages and caches
					   filled */
#define LEAST 7
#define MOST 60
#define ENOUGH_NS INT64_C(8000000000)   /* time of timed steps, if their number is not given */
#define COPIES_EVERY 3                  /* timed steps, after which one is taken beside copies */
#define MOST_OVER 1000                  /* steps, however long they are spread over */

struct timing {
	struct pd_bench bench;
	struct pd_event *events;                /* (parts, layers) */
	int64_t *samples;                       /* (parts, layers, capacity) */
	int64_t *whole;                         /* each part of whole steps, and all of them
						   (BENCH_WHOLE_PARTS + 1, capacity) */
	int64_t *in_step;                       /* the same of steps taken at once with the workers
						   beside, the wait for the slowest in the last */
	int64_t *sums[BENCH_SUMS], *sums_in_step;       /* (capacity) */
	int64_t *launches, *pulses;     /* (capacity) */
	int64_t *beside_copies;         /* steps so (capacity), of which there are copied_count */
	int64_t copied_count;
	int members;                            /* that sum in each other's memory; 0: they do not */
	float *parts[PD_DIRECT_MEMBERS];        /* this one's share of their gradients */
	size_t part_floats;
	int64_t capacity, count;		/* of timed steps; those so far */
	int64_t over_ns, elapsed_ns;    /* of all of them: as was asked (0: nothing was), as it was */
};

/* Returns the event of a part of a layer, in the latest step. */
static struct pd_event *event_of(struct timing *t, int part, int layer)
{
	return &t->events[(size_t)part * (size_t)t->bench.model->layer_count + (size_t)layer];
}

/* Queues a layer; if the queue is full, waits for the event `behind`. */
static int queue_layer(struct timing *t, int part, int layer, struct pd_event *behind)
{
	struct pd_event *ev = event_of(t, part, layer);
	int status;

	pd_event_arm(ev);
	while ((status = pd_bench_queue(&t->bench, part, layer, 1, ev)) == PD_AGAIN)
		pd_event_wait(behind, &t->bench.gate);
	return status;
}

static int layered_step(struct timing *t, struct pd_error *err)
{
	const struct pd_model *model = t->bench.model;
	struct pd_event *last = NULL;
	int n = model->layer_count;

	for (int part = 0; part < BENCH_PARTS; part++)
		for (int i = 0; i < n && pd_bench_has(&t->bench, part); i++) {
			bool back = part == BENCH_BACKWARD || part == BENCH_INPUT ||
				    part == BENCH_WEIGHT;
			int layer = back ? n - 1 - i : i;

			if (queue_layer(t, part, layer, last) < 0)
				return pd_error_failed(err, "%s: the device refused it",
						       model->layers[layer].name);
			last = event_of(t, part, layer);
		}
	return pd_bench_wait(&t->bench, last, err);
}

/* Returns the times of a part of whole steps, or of all parts. */
static int64_t *whole_of(struct timing *t, int part)
{
	return t->whole + (size_t)part * (size_t)t->capacity;
}

static int whole_step(struct timing *t, struct pd_error *err)
{
	struct pd_event events[BENCH_WHOLE_PARTS] = { 0 }, *last = &events[BENCH_WHOLE_PARTS - 1];
	int status;

	status = pd_bench_step(&t->bench, 0, BENCH_WHOLE_PARTS, events, err);
	for (int part = 0; part < BENCH_WHOLE_PARTS; part++)
		whole_of(t, part)[t->count] = events[part].end_ns - events[part].start_ns;
	whole_of(t, BENCH_WHOLE_PARTS)[t->count] = last->end_ns - events[0].start_ns;
	return status;
}

/* Has backward and update use these gradients. */
static void use_gradients(struct timing *t, void *gradients)
{
	t->bench.pass.gradients = gradients;
	t->bench.update.gradients = gradients;
}

static size_t gradient_floats(const struct timing *t)
{
	return t->bench.device->ops->net.sizes(t->bench.net)->full_bytes / sizeof(float);
}

/*
 * Agrees with the workers beside, at their first meeting, on whether they sum in each other's memory, as
 * replicas do in a run.
 */
static int agree(struct timing *t, struct pd_error *err)
{
	struct pd_companions *companions = t->bench.options->companions;
	int me, members = pd_companions_members(companions, &me);
	size_t floats = gradient_floats(t), begin;

	if (!t->bench.shared || !pd_direct_suits(members, floats, PD_F32))
		return 0;
	pd_companions_show(companions, t->bench.shared);
	if (pd_companions_meet(companions, err) < 0)
		return -1;
	begin = pd_piece_begin(floats, members, me);
	t->part_floats = pd_piece_begin(floats, members, me + 1) - begin;
	pd_companions_map(companions, begin * sizeof(float), t->part_floats * sizeof(float), t->parts);
	if (pd_companions_meet(companions, err) < 0)
		return -1;
	t->members = pd_companions_mapped(companions) ? members : 0;
	return 0;
}

/* Sums with the workers beside, which are all ready, until all have done so. */
static int sum_in_step(struct timing *t, struct pd_error *err)
{
	struct pd_event ev = { 0 };

	pd_event_arm(&ev);
	if (pd_submit_sum_all(t->bench.stream, t->parts, t->members, t->part_floats,
					       &ev) != 0)
		return pd_error_failed(err, "the device refused a sum");
	if (pd_bench_wait(&t->bench, &ev, err) < 0)
		return -1;
	t->sums_in_step[t->count] = ev.end_ns - ev.start_ns;
	return pd_companions_meet(t->bench.options->companions, err);
}

/* Takes a step with the workers beside, which were called. */
static int step_together(struct timing *t, struct pd_error *err)
{
	struct pd_event events[BENCH_WHOLE_PARTS] = { 0 };
	int64_t *times[BENCH_WHOLE_PARTS + 1], met_ns;

	if (t->members > 0)
		use_gradients(t, t->bench.shared);
	if (pd_bench_step(&t->bench, 0, BENCH_UPDATE, events, err) < 0 ||
	    pd_companions_meet(t->bench.options->companions, err) < 0)
		return -1;
	met_ns = pd_now_ns();
	if ((t->members > 0 && sum_in_step(t, err) < 0) ||
	    pd_bench_step(&t->bench, BENCH_UPDATE, BENCH_WHOLE_PARTS, events, err) < 0)
		return -1;
	use_gradients(t, t->bench.gradients);
	for (int part = 0; part <= BENCH_WHOLE_PARTS; part++)
		times[part] = &t->in_step[part * t->capacity + t->count];
	for (int part = 0; part < BENCH_WHOLE_PARTS; part++)
		*times[part] = events[part].end_ns - events[part].start_ns;
	*times[BENCH_WHOLE_PARTS] = met_ns - events[BENCH_BACKWARD].end_ns;
	return 0;
}

/* The work of a worker beside the one that is timed. */
static int step_beside(struct timing *t, struct pd_error *err)
{
	struct pd_companions *companions = t->bench.options->companions;

	if (whole_step(t, err) < 0)
		return -1;
	if (!pd_companions_called(companions))
		return 0;
	return pd_companions_meet(companions, err) < 0 ? -1 : step_together(t, err);
}

static int timed_sums(struct timing *t, struct pd_error *err)
{
	for (int i = 0; i < BENCH_SUMS; i++) {
		struct pd_event ev = { 0 };

		pd_event_arm(&ev);
		if (pd_bench_queue_sum(&t->bench, (enum bench_sum)i, &ev) != 0)
			return pd_error_failed(err, "the device refused a sum");
		if (pd_bench_wait(&t->bench, &ev, err) < 0)
			return -1;
		t->sums[i][t->count] = ev.end_ns - ev.start_ns;
	}
	return 0;
}

static int64_t *samples_of(struct timing *t, int part, int layer)
{
	size_t layers = (size_t)t->bench.model->layer_count;

	return t->samples + ((size_t)part * layers + (size_t)layer) * (size_t)t->capacity;
}

static void keep_samples(struct timing *t)
{
	for (int part = 0; part < BENCH_PARTS; part++)
		for (int l = 0; l < t->bench.model->layer_count; l++) {
			const struct pd_event *ev = event_of(t, part, l);

			samples_of(t, part, l)[t->count] = ev->end_ns - ev->start_ns;
		}
}

static void allocate(struct timing *t)
{
	int64_t iterations = t->bench.options->iterations;
	size_t cells = (size_t)BENCH_PARTS * (size_t)t->bench.model->layer_count;

	t->over_ns = t->bench.options->over_s * 1000000000;
	t->capacity = iterations ? iterations : t->over_ns <= ENOUGH_NS ? MOST
		: pd_clamp(MOST * (t->over_ns / ENOUGH_NS), MOST, MOST_OVER);
	t->events = pd_calloc(cells, sizeof(*t->events));
	t->samples = pd_calloc(cells * (size_t)t->capacity, sizeof(*t->samples));
	t->whole = pd_calloc((BENCH_WHOLE_PARTS + 1) * (size_t)t->capacity, sizeof(*t->whole));
	t->in_step = pd_calloc((BENCH_WHOLE_PARTS + 1) * (size_t)t->capacity, sizeof(*t->in_step));
	for (int i = 0; i < BENCH_SUMS; i++)
		t->sums[i] = pd_calloc((size_t)t->capacity, sizeof(*t->sums[i]));
	t->sums_in_step = pd_calloc((size_t)t->capacity, sizeof(*t->sums_in_step));
	t->launches = pd_calloc((size_t)t->capacity, sizeof(*t->launches));
	t->pulses = pd_calloc((size_t)t->capacity, sizeof(*t->pulses));
	t->beside_copies = pd_calloc((size_t)t->capacity, sizeof(*t->beside_copies));
}

static int call_and_step(struct timing *t, struct pd_error *err)
{
	return pd_companions_call(t->bench.options->companions, err) < 0 ? -1 : step_together(t, err);
}

/* Takes such a step now and then, where there are steps enough to compare it with. */
static int step_beside_copies(struct timing *t, struct pd_error *err)
{
	int64_t ns;

	if (t->capacity < PD_ROUNDS_LEAST || t->count % COPIES_EVERY != 0)
		return 0;
	if (pd_bench_beside_copies(&t->bench, whole_of(t, BENCH_WHOLE_PARTS)[t->count], &ns, err) < 0)
		return -1;
	if (ns > 0)
		t->beside_copies[t->copied_count++] = ns;
	return 0;
}

/* Tells whether another timed step is wanted, after so long. */
static bool wants_more(const struct timing *t, int64_t elapsed_ns)
{
	int64_t enough_ns = t->over_ns > 0 ? t->over_ns : ENOUGH_NS;

	return t->count < t->capacity &&
	       (t->bench.options->iterations || t->count < LEAST || elapsed_ns < enough_ns);
}

/* Takes steps that do not count until the next one that does is due. */
static int step_until_due(struct timing *t, int64_t begun, struct pd_error *err)
{
	double part = t->capacity > 1 ? (double)t->count / (double)(t->capacity - 1) : 0;

	while ((double)(pd_now_ns() - begun) < part * (double)t->over_ns)
		if (whole_step(t, err) < 0)
			return -1;
	return 0;
}

static int measure(struct timing *t, struct pd_error *err)
{
	const struct pd_measure_options *o = t->bench.options;
	int64_t begun;

	for (int i = 0; i < WARM_UP; i++)
		if (layered_step(t, err) < 0 || whole_step(t, err) < 0)
			return -1;
	if (o->companions && agree(t, err) < 0)
		return -1;
	while (o->endless)
		if (step_beside(t, err) < 0)
			return -1;
	if (o->companions && call_and_step(t, err) < 0)     /* a warm-up */
		return -1;
	begun = pd_now_ns();
	while (wants_more(t, pd_now_ns() - begun)) {
		if (step_until_due(t, begun, err) < 0 || layered_step(t, err) < 0 ||
		    whole_step(t, err) < 0 || timed_sums(t, err) < 0 ||
		    pd_bench_launch(&t->bench, &t->launches[t->count], err) < 0)
			return -1;
		if ((o->companions && call_and_step(t, err) < 0) || step_beside_copies(t, err) < 0)
			return -1;
		keep_samples(t);
		t->pulses[t->count] = pd_pulse_ns();
		t->count++;
		if (o->progress)
			o->progress(o->context, t->count, t->capacity);
	}
	t->elapsed_ns = pd_now_ns() - begun;
	return 0;
}

/* Returns the interquartile range of forward + backward over their median. */
static double spread(struct timing *t, int layer)
{
	const int64_t *forward = samples_of(t, BENCH_FORWARD, layer);
	const int64_t *backward = samples_of(t, BENCH_BACKWARD, layer);
	int64_t *both = pd_calloc((size_t)t->count, sizeof(*both)), middle;
	double range;

	for (int64_t i = 0; i < t->count; i++)
		both[i] = forward[i] + backward[i];
	middle = pd_median(both, t->count);
	range = (double)(both[t->count * 3 / 4] - both[t->count / 4]);
	free(both);
	return middle > 0 ? range / (double)middle : 0;
}

/* Returns the time that a part of all layers took, one by one, in a round. */
static double part_in_round(struct timing *t, enum bench_part part, int64_t round)
{
	double sum = 0;

	for (int l = 0; l < t->bench.model->layer_count; l++)
		sum += pd_round_mean(samples_of(t, (int)part, l), t->count, round);
	return sum;
}

/* Sets how a part of each layer varied, apart from what all of them did. */
static void fill_part_spreads(struct timing *t, enum pd_timed part, struct pd_profile *profile)
{
	static const enum bench_part timed[] = { [PD_TIMED_FORWARD] = BENCH_FORWARD,
						 [PD_TIMED_BACKWARD] = BENCH_BACKWARD,
						 [PD_TIMED_UPDATE] = BENCH_UPDATE };
	int64_t rounds = pd_rounds_of(t->count);
	double sums[rounds], shares[rounds];

	for (int64_t r = 0; r < rounds; r++)
		sums[r] = part_in_round(t, timed[part], r);
	for (int l = 0; l < profile->layer_count; l++) {
		struct pd_profile_layer *layer = &profile->layers[l];

		for (int64_t r = 0; r < rounds; r++)
			shares[r] = sums[r] > 0 ? pd_round_mean(samples_of(t, (int)timed[part], l), t->count, r) /
						  sums[r] : 0;
		if (part != PD_TIMED_UPDATE || layer->parameter_bytes > 0)
			layer->spreads[part] = pd_rounds_spread(shares, rounds);
	}
}

/* Sets all spreads; the samples must be in their order. */
static void fill_spreads(struct timing *t, struct pd_profile *profile)
{
	int64_t rounds = pd_rounds_of(t->count);
	double steps[rounds];

	for (int64_t r = 0; r < rounds; r++)
		steps[r] = pd_round_mean(whole_of(t, BENCH_WHOLE_PARTS), t->count, r);
	if (rounds < PD_ROUNDS_LEAST)
		return;
	profile->rounds = (struct pd_rounds){ .count = rounds, .elapsed_ns = t->elapsed_ns,
					      .step = pd_rounds_spread(steps, rounds) };
	for (int part = 0; part < PD_TIMEDS; part++)
		fill_part_spreads(t, (enum pd_timed)part, profile);
}

static void fill_layer(struct timing *t, int l, struct pd_profile_layer *out)
{
	const struct pd_model *model = t->bench.model;
	const struct pd_layer *layer = &model->layers[l];
	struct pd_net_layer bytes;

	t->bench.device->ops->net.layer(t->bench.net, l, &bytes);
	*out = (struct pd_profile_layer){
		.name = pd_strdup(layer->name),
		.inputs = pd_calloc((size_t)layer->input_count, sizeof(int)),
		.backward_input_ns = -1, .backward_weight_ns = -1,
		.activation_bytes = (int64_t)bytes.activation_bytes,
		.parameter_bytes = (int64_t)bytes.parameter_bytes,
		.stash_bytes = (int64_t)bytes.slot_bytes,
		.workspace_bytes = (int64_t)bytes.scratch_bytes,
		.forward_workspace_bytes = (int64_t)bytes.forward_bytes,
		.backward_workspace_bytes = (int64_t)bytes.backward_bytes,
		.state_bytes = (int64_t)bytes.state_bytes, .in_place = bytes.in_place,
		.passes_gradient = bytes.passes_gradient,
		.algorithms = bytes.algorithms,
		.engines = bytes.engines ? pd_strdup(bytes.engines) : NULL,
		.slow_kernel = bytes.slow_kernel ? pd_strdup(bytes.slow_kernel) : NULL,
		.spread = spread(t, l),
	};
	for (int i = 0; i < layer->input_count; i++)
		if (layer->inputs[i] >= model->input_count)
			out->inputs[out->input_count++] = layer->inputs[i] - model->input_count;
}

/* Sets the times; this sorts the samples. */
static void fill_times(struct timing *t, int l, struct pd_profile_layer *out)
{
	out->forward_ns = pd_median(samples_of(t, BENCH_FORWARD, l), t->count);
	out->backward_ns = pd_median(samples_of(t, BENCH_BACKWARD, l), t->count);
	out->update_ns = pd_median(samples_of(t, BENCH_UPDATE, l), t->count);
	out->update_apart_ns = pd_median(samples_of(t, BENCH_APART, l), t->count);
	if (!t->bench.split)
		return;
	out->backward_input_ns = pd_median(samples_of(t, BENCH_INPUT, l), t->count);
	out->backward_weight_ns = pd_median(samples_of(t, BENCH_WEIGHT, l), t->count);
}

/* Returns the speed of sums of all gradients that took `ns`, in bytes of these per second. */
static int64_t bytes_per_s(const struct timing *t, double ns)
{
	double bytes = (double)(gradient_floats(t) * sizeof(float));

	return ns > 0 ? (int64_t)(bytes * 1e9 / ns) : 0;
}

/* Returns the mean of a part of the steps taken with the workers beside, in units of `ns`. */
static double in_step_over(struct timing *t, int part, double ns)
{
	double mean = pd_trimmed_mean(t->in_step + part * t->capacity, t->count);

	return ns > 0 ? mean / ns : 1;
}

static void share_whole(struct timing *t, struct pd_profile *profile)
{
	struct pd_whole whole = {
		.forward_ns = pd_trimmed_mean(whole_of(t, BENCH_FORWARD), t->count),
		.backward_ns = pd_trimmed_mean(whole_of(t, BENCH_BACKWARD), t->count),
		.update_ns = pd_trimmed_mean(whole_of(t, BENCH_UPDATE), t->count),
	};

	pd_share_whole(profile, &whole);
	if (!t->bench.options->companions)
		return;
	profile->in_step = (struct pd_in_step){
		.forward = in_step_over(t, BENCH_FORWARD, whole.forward_ns),
		.backward = in_step_over(t, BENCH_BACKWARD, whole.backward_ns),
		.update = in_step_over(t, BENCH_UPDATE, whole.update_ns),
		.slowest_ns = llround(in_step_over(t, BENCH_WHOLE_PARTS, 1)),
		.sum_bytes_per_s = t->members > 0
			? bytes_per_s(t, pd_trimmed_mean(t->sums_in_step, t->count)) : 0,
	};
}

/* Returns how many times as long steps take while bytes are copied, at least 1. */
static double beside_copies(struct timing *t)
{
	double alone = (double)pd_median(whole_of(t, BENCH_WHOLE_PARTS), t->count);
	double factor = alone > 0 ? (double)pd_median(t->beside_copies, t->copied_count) / alone : 1;

	return factor > 1 ? round(factor * 1e4) / 1e4 : 1;
}

static struct pd_profile *make_profile(struct timing *t, struct pd_error *err)
{
	const struct pd_measure_options *o = t->bench.options;
	const struct pd_model *model = t->bench.model;
	struct pd_profile *profile = pd_zalloc(sizeof(*profile));
	struct pd_device_info info = { 0 };

	profile->model = pd_model_parse(model->name, model->json, err);
	if (!profile->model) {
		free(profile);
		return NULL;
	}
	t->bench.device->ops->describe(t->bench.device, &info);
	profile->name = pd_strdup(model->name);
	profile->batch_size = o->batch_size;
	profile->dtype = o->dtype;
	profile->device_kind = pd_strdup(o->device->name);
	profile->device_name = pd_strdup(info.name[0] ? info.name : o->device->name);
	profile->device_threads = info.threads;
	profile->device_memory_bytes = info.memory_bytes;
	profile->sum_bytes_per_s = bytes_per_s(t, (double)pd_median(t->sums[BENCH_SUM], t->count));
	profile->round_bytes_per_s = bytes_per_s(t, (double)pd_median(t->sums[BENCH_ROUND],
								      t->count));
	profile->mixed_sum_bytes_per_s = bytes_per_s(t, (double)pd_median(
			t->sums[BENCH_MIXED_SUM], t->count));
	profile->layer_count = model->layer_count;
	profile->layers = pd_calloc((size_t)profile->layer_count, sizeof(*profile->layers));
	for (int l = 0; l < profile->layer_count; l++)
		fill_layer(t, l, &profile->layers[l]);
	fill_spreads(t, profile);
	if (t->count >= PD_ROUNDS_LEAST)
		profile->launch_ns = pd_median(t->launches, t->count);
	if (t->count >= PD_ROUNDS_LEAST && !t->bench.device->ops->separate_memory)
		profile->clock_ns = pd_median(t->pulses, t->count);
	if (t->copied_count > 1)
		profile->beside_transfers = beside_copies(t);
	for (int l = 0; l < profile->layer_count; l++)
		fill_times(t, l, &profile->layers[l]);
	profile->step_ns = pd_median(whole_of(t, BENCH_WHOLE_PARTS), t->count);
	share_whole(t, profile);
	return profile;
}

struct pd_profile *pd_measure_layers(const struct pd_model *model,
				     const struct pd_measure_options *options,
				     struct pd_error *err)
{
	struct timing t = { 0 };
	struct pd_profile *profile = NULL;

	if (pd_bench_open(&t.bench, model, options, err) < 0)
		return NULL;
	allocate(&t);
	if (measure(&t, err) == 0)
		profile = make_profile(&t, err);
	pd_bench_close(&t.bench);       /* this completes the events of work that is still queued */
	if (t.part_floats > 0)
		pd_companions_unmap(options->companions, t.part_floats * sizeof(float), t.parts);
	free(t.events);
	free(t.samples);
	free(t.whole);
	free(t.in_step);
	for (int i = 0; i < BENCH_SUMS; i++)
		free(t.sums[i]);
	free(t.sums_in_step);
	free(t.launches);
	free(t.pulses);
	free(t.beside_copies);
	return profile;
}
