/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a plan's training run computes, worked out by one process from the published rule
 * alone: it shares the kernels, the loader and the readers of documents with pd-run, and
 * nothing that orders operations, keeps versions or sums over replicas.
 *
 * It keeps every version of every parameter since the epoch began, and computes with the
 * whole network as one net.  Let w be the warm-up of a stage (0 with schedule none), r its
 * replicas, M the plan's microbatches.  A stage updates after every G microbatches: M, or r where the plan says 1
 * (with 2bw, flush and nf1b always M).  Microbatch b, counted from where the pipeline was
 * last empty, is number i = floor(b / r) of its replica.  In updates since then, its forward
 * and backward see at that stage version
 *
 *     stash          max(0, floor((i - w) / (G / r)))            SOSP 2019, section 3.3
 *                    max(0, floor(b / M) - w) with nf1b, whose w counts minibatches
 *                    with an eager start-up, another w for the first (w_0 + 1) r_0: below
 *     vertical-sync  the newest that has no more microbatches in it than stage 0's by the
 *                    rule of stash, and is not newer than the stage's own by that rule
 *     2bw            max(0, floor(b / M) - 1)                    ICML 2021
 *     flush          floor(b / M): plain SGD over the sum of M gradients
 *     latest         forward as with stash, backward floor(b / G): whatever is newest then, and
 *                    a forward that is done again sees what backward does
 *
 * PipeMare (MLSys 2021) for latest, with t = ceil(w r / G) (w with nf1b) the updates between
 * forward and backward.  --lr-reschedule=K: the rate over t^(1 - b / K), b counted from the
 * beginning, while b < K and t > 0.  --discrepancy=D, where t > 0: after each update, with
 * c = D^(1 / t), d' = c d + (1 - c)(w' - w), and backward sees w - t d.
 *
 * Each replica adds the gradients of its own microbatches in order; those sums are added in
 * the order of the replicas, with zeros for a replica that has none in the last group.
 * Running statistics are those of a stage's replica 0.
 *
 * Where layers share parameters, with 2bw and flush each has a copy; their sums are summed, from
 * the last to the first, before an update of all.
 *
 * With --clip-grad-norm=X or --loss-scale=X a group is updated for as a whole (2bw and flush).
 * Backward begins with the loss times the scale S of the version that the group sees.  Let n be
 * the root of the sum of all squares, a sum per layer, in the order of the layers, over S.  Where
 * it is not finite the next version is this one; otherwise gradients are multiplied by
 * min(1, X / (n + 1e-6)) / S.  The scale of the next version is that of this one, but with
 * --loss-scale-interval=N: where n is not finite S / 2, at least 1, if that is less; after N
 * finite ones, one after the other, twice as large.
 *
 * In 16 bits all of these versions are f32: what is computed with is rounded from them where it
 * is brought to the device.
 *
 * With --switch=K --to=PLAN it goes over to another plan after K minibatches, as a resumed
 * run does: a stage of which every layer had the same warm-up, replicas and G before goes on
 * with the older versions, any other begins with the newest.
 */
#include "base/json.h"
#include "base/mem.h"
#include "base/opt.h"
#include "checkpoint/safetensors.h"
#include "data/loader.h"
#include "device/device.h"
#include "plan/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SYNTHETIC_MINIBATCHES 10

enum mutation { NONE, VERSION, LATEST, SUM, CLIP, SKIP, SCALE, UNSCALE, UNTIED };

static const char *data, *output, *other_plan;
static int64_t minibatches = -1, seed = 1, switch_at = -1;
static double rate = 0.01, momentum = 0.9, weight_decay;
static double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, lr_gamma = 0.1, lr_power = 2;
static int64_t lr_step = 30, lr_warmup, loss_scale_interval, lr_reschedule;
static double clip_norm, loss_scale, discrepancy = -1;
static const char *loss_scale_text;
static int optimizer, lr_schedule, mutation;
static const char *const mutations[] = { "none", "version", "latest", "sum", "clip", "skip",
					"scale", "unscale", "untied", NULL };

static const struct pd_opt options[] = {
	{ "data", 0, PD_OPT_STRING, "DIR", "data set (default: synthetic)", &data },
	{ "minibatches", 'm', PD_OPT_COUNT, "N", "to train", &minibatches },
	{ "lr", 0, PD_OPT_REAL, "X", "learning rate", &rate, 0, 1e6 },
	{ "momentum", 0, PD_OPT_REAL, "X", "momentum", &momentum, 0, 1 },
	{ "weight-decay", 0, PD_OPT_REAL, "X", "L2 penalty", &weight_decay, 0, 1e3 },
	{ "optimizer", 0, PD_OPT_CHOICE, "NAME", "as pd-run's, like all below", &optimizer,
	  .choices = (const char *const[]){ "sgd", "adam", "adamw", NULL } },
	{ "beta1", 0, PD_OPT_REAL, "X", "first moment", &beta1, 0, 1 },
	{ "beta2", 0, PD_OPT_REAL, "X", "second moment", &beta2, 0, 1 },
	{ "epsilon", 0, PD_OPT_REAL, "X", "of adam", &epsilon, 0, 1 },
	{ "lr-schedule", 0, PD_OPT_CHOICE, "NAME", "learning rate", &lr_schedule,
	  .choices = (const char *const[]){ "constant", "step", "polynomial", "cosine", NULL } },
	{ "lr-step", 0, PD_OPT_COUNT, "EPOCHS", "of step", &lr_step, 1, 1e12 },
	{ "lr-gamma", 0, PD_OPT_REAL, "X", "of step", &lr_gamma, 0, 1 },
	{ "lr-power", 0, PD_OPT_REAL, "X", "of polynomial", &lr_power, 0, 100 },
	{ "lr-warmup", 0, PD_OPT_COUNT, "N", "minibatches", &lr_warmup },
	{ "clip-grad-norm", 0, PD_OPT_REAL, "X", "global norm", &clip_norm, 0, 1e30 },
	{ "loss-scale", 0, PD_OPT_STRING, "X", "or dynamic", &loss_scale_text },
	{ "loss-scale-init", 0, PD_OPT_REAL, "X", "dynamic", &loss_scale, 0, 1e38 },
	{ "loss-scale-interval", 0, PD_OPT_COUNT, "N", "dynamic", &loss_scale_interval },
	{ "lr-reschedule", 0, PD_OPT_COUNT, "N", "minibatches", &lr_reschedule },
	{ "discrepancy", 0, PD_OPT_REAL, "D", "correction", &discrepancy, 0, 1 },
	{ "seed", 's', PD_OPT_COUNT, "N", "as pd-run's", &seed },
	{ "switch", 0, PD_OPT_COUNT, "K", "go over to another plan after K minibatches", &switch_at },
	{ "to", 0, PD_OPT_STRING, "PLAN", "the other plan", &other_plan },
	{ "mutate", 0, PD_OPT_CHOICE, "WHAT", "break the rule", &mutation,
	  .choices = mutations },
	{ "output", 'o', PD_OPT_STRING, "FILE", "where the tensors go", &output },
	{ 0 }
};

static const struct pd_command command = {
	.name = "serial", .synopsis = "[OPTION]... plan.json",
	.summary = "Train as a plan says, one minibatch after the other.",
	.options = options, .max_operands = 1,
};

/* One named tensor of the network, with its past. */
struct tensor {
	const struct pd_named *named;
	size_t elements;
	float **versions;               /* parameters: since the epoch began, ascending */
	double *scales;                 /* of the loss, per version */
	size_t scales_room;
	size_t count, capacity;
	size_t origin;                  /* index of version 0 of the rule */
	size_t floor;                   /* index of the oldest that may be seen */
	float *gradient, *sum, *velocity, *second;
	float *delta, *seen;            /* PipeMare's; seen: by backward */
	float **parts;                  /* of the sum, by replica */
	int64_t updates;                /* made so far */
	float *state;                   /* running statistics */
};

struct trainer {
	const struct pd_plan *plan;
	const struct pd_model *model;
	const struct pd_device_ops *ops;
	struct pd_device *device;
	struct pd_stream *stream;
	struct pd_gate gate;
	struct pd_net *net;
	const struct pd_net_sizes *sizes;
	char *weights, *master, *gradients, *state, *inbox, *slot, *scratch, *spare, *in, *out, *scale;
	struct pd_dataset train, test;
	struct pd_loader *loader;
	int inputs[4];
	int64_t epoch;                  /* minibatches in one */
	int64_t first;                  /* since the pipeline was empty */
	struct tensor *tensors;
	int count;
	int most_replicas;
	struct pd_loss loss;
	int64_t good;                   /* groups since the scale changed or one was skipped */
};

static void check(bool good, const struct pd_error *err)
{
	if (!good)
		exit(pd_command_fail(err));
}

static char *alloc(struct trainer *t, size_t bytes)
{
	struct pd_error err;
	char *ptr = t->ops->alloc(t->device, bytes ? bytes : PD_ALIGN, &err);

	check(ptr != NULL, &err);
	return ptr;
}

/* Has each layer that shares parameters its own, with gradients that are summed? */
static bool ties(const struct trainer *t)
{
	bool shares = false;

	for (int l = 0; l < t->model->layer_count; l++)
		shares |= t->model->layers[l].shares >= 0;
	return shares && (t->plan->weights == PD_WEIGHTS_2BW ||
			  t->plan->weights == PD_WEIGHTS_FLUSH);
}

static void open_device(struct trainer *t)
{
	struct pd_device_config config = { .threads = 1, .gate = &t->gate };
	struct pd_net_config net = {
		.model = t->model, .count = t->model->layer_count,
		.batch_size = t->plan->profile->batch_size, .seed = (uint64_t)seed,
		.copies = ties(t), .dtype = t->plan->profile->dtype,
	};
	int64_t *algorithms = pd_calloc((size_t)net.count, sizeof(*algorithms));
	const char **engines = pd_calloc((size_t)net.count, sizeof(*engines));
	struct pd_error err;

	for (int l = 0; l < net.count; l++) {
		algorithms[l] = t->plan->profile->layers[l].algorithms;
		engines[l] = t->plan->profile->layers[l].engines;
	}
	net.algorithms = algorithms;
	net.engines = engines;
	check(pd_gate_init(&t->gate, &err) == 0, &err);
	t->ops = pd_device_find(getenv("PD_TEST_DEVICE") ? getenv("PD_TEST_DEVICE") : "cpu", &err);
	check(t->ops != NULL, &err);
	t->device = t->ops->open(&config, &err);
	check(t->device != NULL, &err);
	t->stream = t->ops->stream_open(t->device, &err);
	check(t->stream != NULL, &err);
	t->net = t->ops->net_open(t->device, &net, &err);
	check(t->net != NULL, &err);
	free(algorithms);
	free(engines);
	t->sizes = t->ops->net_sizes(t->net);
	t->weights = alloc(t, t->sizes->weights_bytes);
	t->master = net.dtype != PD_F32 ? alloc(t, t->sizes->full_bytes) : NULL;
	t->gradients = alloc(t, t->sizes->full_bytes);
	t->state = alloc(t, t->sizes->state_bytes);
	t->inbox = alloc(t, t->sizes->inbox_bytes);
	t->slot = alloc(t, t->sizes->slot_bytes);
	t->scratch = alloc(t, t->sizes->scratch_bytes);
	t->spare = alloc(t, t->sizes->scratch_bytes);
	t->in = alloc(t, t->sizes->gradient_in_bytes);
	t->out = alloc(t, t->sizes->gradient_out_bytes);
	t->scale = alloc(t, sizeof(struct pd_scale));
	check(t->ops->net_init(t->net, t->weights, t->master, t->state, &err) == 0, &err);
}

static void open_data(struct trainer *t)
{
	int64_t batch = t->plan->profile->batch_size;
	struct pd_loader_config config = {
		.model = t->model, .train = &t->train, .batch_size = batch,
		.dtype = t->plan->profile->dtype, .seed = (uint64_t)seed, .inputs = t->inputs, .ahead = 2, .gate = &t->gate,
	};
	struct pd_error err;

	if (data)
		check(pd_dataset_open(data, t->model, &t->train, &t->test, &err) == 0, &err);
	else
		pd_dataset_synthetic(t->model, SYNTHETIC_MINIBATCHES * batch, &t->train);
	t->epoch = pd_loader_epoch(&t->train, batch);
	for (int i = 0; i < t->sizes->in_count; i++)
		t->inputs[config.input_count++] = t->sizes->in[i].tensor;
	t->loader = pd_loader_open(&config, &err);
	check(t->loader != NULL, &err);
}

static void add_version(struct tensor *v, float *values, double scale)
{
	v->scales = pd_grow(v->scales, &v->scales_room, v->count + 1, sizeof(*v->scales));
	v->scales[v->count] = scale;
	v->versions = pd_grow(v->versions, &v->capacity, v->count + 1, sizeof(*v->versions));
	v->versions[v->count++] = values;
}

static void open_tensors(struct trainer *t)
{
	const struct pd_named *named;

	t->count = t->ops->net_named(t->net, &named);
	t->tensors = pd_calloc((size_t)t->count, sizeof(*t->tensors));
	for (int i = 0; i < t->count; i++) {
		struct tensor *v = &t->tensors[i];
		float *values = pd_calloc((size_t)named[i].elements, sizeof(float));

		v->named = &named[i];
		v->elements = (size_t)named[i].elements;
		if (named[i].part == PD_PART_STATE) {
			t->ops->export(t->net, i, PD_FULL, t->state, values);
			v->state = values;
			continue;
		}
		t->ops->export(t->net, i, PD_FULL, t->master ? t->master : t->weights, values);
		add_version(v, values, loss_scale > 0 ? loss_scale : 1);
		v->gradient = pd_calloc(v->elements, sizeof(float));
		v->sum = pd_calloc(v->elements, sizeof(float));
		v->velocity = pd_calloc(v->elements, sizeof(float));
		v->second = pd_calloc(v->elements, sizeof(float));
		v->delta = pd_calloc(v->elements, sizeof(float));
		v->seen = pd_calloc(v->elements, sizeof(float));
		memcpy(v->seen, values, v->elements * sizeof(float));
		v->parts = pd_calloc((size_t)t->most_replicas, sizeof(*v->parts));
		for (int k = 0; k < t->most_replicas; k++)
			v->parts[k] = pd_calloc(v->elements, sizeof(float));
	}
}

static const struct pd_stage *stage_of(const struct pd_plan *plan, const struct tensor *v)
{
	return &plan->stages[pd_plan_stage_of_layer(plan, v->named->layer)];
}

/* Microbatches per update. */
static int64_t group_of(const struct pd_plan *plan, const struct pd_stage *stage)
{
	return plan->microbatches > 1 || plan->weights == PD_WEIGHTS_2BW ||
	       plan->weights == PD_WEIGHTS_FLUSH || plan->schedule == PD_SCHEDULE_NF1B
		? plan->microbatches : stage->replicas;
}

/* The pipeline is empty and all begins again from the newest version. */
static void forget(struct tensor *v)
{
	for (size_t i = 0; i + 1 < v->count; i++)
		free(v->versions[i]);
	v->versions[0] = v->versions[v->count - 1];
	v->scales[0] = v->scales[v->count - 1];
	v->count = 1;
	v->origin = v->floor = 0;
}

/* Does the stage of a tensor under `to` find the versions that it needs after `from`? */
static bool goes_on(const struct pd_plan *from, const struct pd_plan *to, const struct tensor *v)
{
	const struct pd_stage *stage = stage_of(to, v);

	for (int l = stage->first_layer; l < stage->first_layer + stage->layer_count; l++) {
		const struct pd_stage *old = &from->stages[pd_plan_stage_of_layer(from, l)];

		if (old->warmup != stage->warmup || old->replicas != stage->replicas ||
		    group_of(from, old) != group_of(to, stage))
			return false;
	}
	return true;
}

static int64_t floor_div(int64_t a, int64_t b)
{
	return a / b - (a % b < 0);
}

/*
 * Forwards of a replica ahead of its backwards at microbatch b.  While an eager start-up lasts
 * (SOSP 2019, figure 4), those of the first stage go on to each stage as far as they arrive
 * before the first gradient: 3 for each rank behind it, shared by its replicas.
 */
static int64_t ahead(const struct pd_plan *plan, const struct pd_stage *stage, int64_t b)
{
	const struct pd_stage *first = &plan->stages[0];
	int64_t all = first->warmup * (int64_t)first->replicas, behind = 0;

	if (plan->startup == PD_STARTUP_FRUGAL || b >= all + first->replicas)
		return stage->warmup;
	for (int s = 0; s < plan->stage_count; s++)
		behind += plan->stages[s].replicas;
	for (const struct pd_stage *at = first;; at++) {
		int64_t r = at->replicas, come;

		behind -= r;
		come = 3 * behind < all ? 3 * behind / r : all / r;
		all = (come > at->warmup ? come : at->warmup) * r;
		if (at == stage)
			return all / r;
	}
}

/* The updates that a stage has made before its forward of microbatch b. */
static int64_t updates_before(const struct pd_plan *plan, const struct pd_stage *stage, int64_t b)
{
	int64_t warmup = plan->schedule == PD_SCHEDULE_NONE ? 0 : ahead(plan, stage, b);

	if (plan->schedule == PD_SCHEDULE_NF1B)
		return b / plan->microbatches - warmup;
	return floor_div(b / stage->replicas - warmup,
			 group_of(plan, stage) / stage->replicas);
}

/* The version that a stage sees, in updates; negative: before the pipeline was empty. */
static int64_t rule(const struct pd_plan *plan, const struct pd_stage *stage, int64_t b,
		    bool backward)
{
	int64_t group = group_of(plan, stage), own = updates_before(plan, stage, b), tag;

	switch (plan->weights) {
	case PD_WEIGHTS_VERTICAL_SYNC:
		tag = floor_div(updates_before(plan, &plan->stages[0], b) *
				group_of(plan, &plan->stages[0]), group);
		return tag < own ? tag : own;
	case PD_WEIGHTS_2BW:
		return b / group - 1;
	case PD_WEIGHTS_FLUSH:
		return b / group;
	case PD_WEIGHTS_LATEST:
		return backward ? b / group : own;
	default:
		return own;
	}
}

static size_t version_seen(const struct trainer *t, const struct tensor *v, int64_t b,
			   bool backward)
{
	const struct pd_stage *stage = stage_of(t->plan, v);
	int64_t newest = b / group_of(t->plan, stage), back = rule(t->plan, stage, b, backward);
	int64_t seen;

	if (mutation == VERSION)        /* the next, or where there is none the one before */
		back += back < newest ? 1 : -1;
	if (mutation == LATEST)
		back = newest;
	seen = (int64_t)v->origin + back;
	return seen > (int64_t)v->floor ? (size_t)seen : v->floor;
}

/* The updates between a stage's forward and backward. */
static int64_t lateness(const struct pd_plan *plan, const struct pd_stage *stage)
{
	int64_t group = group_of(plan, stage), forwards = stage->warmup * (int64_t)stage->replicas;

	if (plan->schedule == PD_SCHEDULE_NF1B)
		return stage->warmup;
	return forwards / group + (forwards % group > 0);
}

static bool corrected(const struct trainer *t, const struct tensor *v)
{
	return discrepancy >= 0 && lateness(t->plan, stage_of(t->plan, v)) > 0;
}

static void import_versions(struct trainer *t, int64_t b, bool backward)
{
	for (int i = 0; i < t->count; i++) {
		struct tensor *v = &t->tensors[i];

		if (v->named->part == PD_PART_PARAMETER)
			t->ops->import(t->net, i, PD_WORKING, t->weights, backward && corrected(t, v)
				       ? v->seen : v->versions[version_seen(t, v, b, backward)]);
		else if (!backward)
			t->ops->import(t->net, i, PD_FULL, t->state, v->state);
	}
}

/* The first parameter stands for all: they have the same scales. */
static struct tensor *some_parameter(const struct trainer *t)
{
	struct tensor *v = t->tensors;

	while (v->named->part != PD_PART_PARAMETER)
		v++;
	return v;
}

/*
 * Stage by stage, last first, where that is another thing than all at once: with latest a stage
 * that recomputes makes its activations anew, with the weights that its backward sees, from the
 * same inputs.  With other weights nothing would change, and nothing is done.
 */
static void back(struct trainer *t, const struct pd_pass *pass, struct pd_event *ev)
{
	const struct pd_plan *plan = t->plan;
	struct pd_pass again = *pass;

	again.again = true;
	again.loss = NULL;
	again.scratch = t->spare;
	for (int s = plan->stage_count - 1; s >= 0; s--) {
		const struct pd_stage *stage = &plan->stages[s];

		if (stage->recompute && plan->weights == PD_WEIGHTS_LATEST)
			t->ops->forward(t->stream, t->net, &again, stage->first_layer,
					stage->layer_count, NULL);
		t->ops->backward(t->stream, t->net, pass, stage->first_layer, stage->layer_count,
				 s == 0 ? ev : NULL);
	}
}

static void compute(struct trainer *t, const struct pd_batch *batch, int64_t b)
{
	struct pd_pass pass = {
		.weights = t->weights, .state = t->state, .gradients = t->gradients,
		.inbox = t->inbox, .slot = t->slot, .scratch = t->scratch,
		.gradient_in = t->in, .gradient_out = t->out, .first_sample = batch->first_sample,
		.valid = batch->valid, .loss = &t->loss,
	};
	struct pd_scale scale = { .loss_scale = 1 };
	const struct tensor *v = some_parameter(t);
	struct pd_event ev;
	int layers = t->model->layer_count;

	for (int i = 0; i < t->sizes->in_count; i++)
		t->ops->copy(t->stream, t->inbox + t->sizes->in[i].offset, batch->buffers[i],
			     batch->bytes[i], PD_COPY_TO_DEVICE, NULL);
	import_versions(t, b, false);
	pd_event_arm(&ev);
	t->ops->forward(t->stream, t->net, &pass, 0, layers, &ev);
	pd_event_wait(&ev, &t->gate);
	import_versions(t, b, true);
	scale.loss_scale = v->scales[version_seen(t, v, b, true)];
	t->ops->copy(t->stream, t->scale, &scale, sizeof(scale), PD_COPY_TO_DEVICE, NULL);
	pass.scale = (const struct pd_scale *)t->scale;
	pd_event_arm(&ev);
	back(t, &pass, &ev);
	pd_event_wait(&ev, &t->gate);
	check(!pd_event_failed(&ev), &t->gate.err);
}

/* The rate after minibatch b, counted from the beginning (pd-run's manual). */
static double rate_after(const struct trainer *t, int64_t b)
{
	double part = b > lr_warmup ? (double)(b - lr_warmup) / (double)(minibatches - lr_warmup) : 0;
	double now = rate;

	if (lr_schedule == 1)
		now *= pow(lr_gamma, (double)(b / (lr_step * t->epoch)));
	if (lr_schedule == 2)
		now *= pow(1 - part, lr_power);
	if (lr_schedule == 3)
		now *= (1 + cos(M_PI * part)) / 2;
	return b + 1 < lr_warmup ? now * ((double)(b + 1) / (double)lr_warmup) : now;
}

/* g = sum + decay w;  v = momentum v + g;  w' = w - rate v */
__attribute__((optimize("fp-contract=off")))
static void sgd(struct tensor *v, const float *old, float *new, float step)
{
	for (size_t i = 0; i < v->elements; i++) {
		float g = v->sum[i] + (float)weight_decay * old[i];

		v->velocity[i] = (float)momentum * v->velocity[i] + g;
		new[i] = old[i] - step * v->velocity[i];
	}
}

/*
 * v and s the moments, each divided by what is missing in it after so many updates:
 *     w' = w - now v / (1 - beta1^n) / (sqrt(s / (1 - beta2^n)) + epsilon)
 * The decay is in the gradient; with adamw, it is taken off w.
 */
__attribute__((optimize("fp-contract=off")))
static void adam(struct tensor *v, const float *old, float *new, double now)
{
	bool apart = optimizer == 2;
	double n = (double)v->updates;
	float step = (float)(now / (1 - pow(beta1, n))), root = (float)sqrt(1 - pow(beta2, n));
	float keep = apart ? (float)(1 - now * weight_decay) : 1;

	for (size_t i = 0; i < v->elements; i++) {
		float g = v->sum[i] + (apart ? 0 : (float)weight_decay) * old[i];

		v->velocity[i] = (float)beta1 * v->velocity[i] + (float)(1 - beta1) * g;
		v->second[i] = (float)beta2 * v->second[i] + (float)(1 - beta2) * (g * g);
		new[i] = keep * old[i] - step * (v->velocity[i] / (sqrtf(v->second[i]) / root +
								   (float)epsilon));
	}
}

__attribute__((optimize("fp-contract=off")))
static void correct(struct tensor *v, const float *old, const float *new, double late)
{
	double c = pow(discrepancy, 1 / late);

	for (size_t i = 0; i < v->elements; i++) {
		v->delta[i] = (float)c * v->delta[i] + (float)(1 - c) * (new[i] - old[i]);
		v->seen[i] = new[i] - (float)late * v->delta[i];
	}
}

/* After minibatch b, counted from the beginning. */
static void update(const struct trainer *t, struct tensor *v, int64_t b, double next_scale)
{
	const float *old = v->versions[v->count - 1];
	float *new = pd_calloc(v->elements, sizeof(float));

	int64_t late = lateness(t->plan, stage_of(t->plan, v));
	double now = rate_after(t, b);

	if (late > 0 && b < lr_reschedule)
		now /= pow((double)late, 1 - (double)b / (double)lr_reschedule);
	v->updates++;
	if (optimizer)
		adam(v, old, new, now);
	else
		sgd(v, old, new, (float)now);
	if (corrected(t, v))
		correct(v, old, new, (double)late);
	add_version(v, new, next_scale);
}

/* The sum of all squares of a group's gradients, layer after layer. */
static double all_squares(struct trainer *t)
{
	int layers = t->model->layer_count;
	double *vector = pd_calloc((size_t)layers + 1, sizeof(*vector)), sum = 0;
	struct pd_squares what = { .gradients = t->gradients, .vector = vector, .clear = true };
	struct pd_event ev;

	for (int i = 0; i < t->count; i++)
		if (t->tensors[i].named->part == PD_PART_PARAMETER)
			t->ops->import(t->net, i, PD_FULL, t->gradients, t->tensors[i].sum);
	pd_event_arm(&ev);
	t->ops->squares(t->stream, t->net, &what, &ev);
	pd_event_wait(&ev, &t->gate);
	for (int l = 0; l < layers; l++)
		sum += vector[l] >= 0 || isnan(vector[l]) ? vector[l] : 0;
	free(vector);
	return sum;
}

static double scale_after(struct trainer *t, double used, double now, bool finite)
{
	if (loss_scale_interval == 0)
		return now;
	t->good = finite ? t->good + 1 : 0;
	if (!finite)
		return fmin(now, fmax(used / 2, 1));
	if (t->good < loss_scale_interval)
		return now;
	t->good = 0;
	return 2 * now;
}

/* sum += gradient; the first is taken as it is */
static void add(float *sum, const float *gradient, size_t elements, bool first)
{
	for (size_t i = 0; i < elements; i++)
		sum[i] = first ? gradient[i] : sum[i] + gradient[i];
}

/* What all layers with this parameter have made, from the last to the first. */
static void sum_copies(struct trainer *t, struct tensor *owner)
{
	struct tensor *copies[16];
	int n = 0;

	for (int i = t->count - 1; i >= 0; i--)
		if (strcmp(t->tensors[i].named->name, owner->named->name) == 0)
			copies[n++] = &t->tensors[i];
	for (int k = 1; k < n; k++)
		add(copies[0]->sum, copies[k]->sum, owner->elements, false);
	for (int k = 1; k < n; k++)
		memcpy(copies[k]->sum, copies[0]->sum, owner->elements * sizeof(float));
}

/* Of all tensors at once, at the end of the group of microbatch b. */
static void update_all(struct trainer *t, int64_t b)
{
	const struct tensor *any = some_parameter(t);

	for (int i = 0; i < t->count && mutation != UNTIED; i++)
		if (t->tensors[i].named->part == PD_PART_PARAMETER && !t->tensors[i].named->copy)
			sum_copies(t, &t->tensors[i]);
	double used = any->scales[version_seen(t, any, b, true)], now = any->scales[any->count - 1];
	double squares = all_squares(t), norm = sqrt(squares) / used, factor = mutation == UNSCALE ? 1 : 1 / used, next;
	bool finite = isfinite(squares) || mutation == SKIP;

	next = scale_after(t, mutation == SCALE ? now / 2 : used, now, finite);
	if (clip_norm > 0 && clip_norm / (norm + 1e-6) < 1 && mutation != CLIP)
		factor = clip_norm / (norm + 1e-6) / used;
	for (int i = 0; i < t->count; i++) {
		struct tensor *v = &t->tensors[i];

		if (v->named->part != PD_PART_PARAMETER)
			continue;
		for (size_t k = 0; k < v->elements; k++)
			v->sum[k] = (float)(factor * (double)v->sum[k]);
		if (finite) {
			update(t, v, t->first + b, next);
		} else {
			float *same = pd_calloc(v->elements, sizeof(float));

			memcpy(same, v->versions[v->count - 1], v->elements * sizeof(float));
			add_version(v, same, next);
		}
	}
}

/* The replicas' sums in their order; those without a microbatch have zeros. */
static void add_replicas(struct tensor *v, int64_t replicas)
{
	for (int64_t k = 0; k < replicas; k++) {
		add(v->sum, v->parts[k], v->elements, k == 0);
		memset(v->parts[k], 0, v->elements * sizeof(float));
	}
}

/* After microbatch b, of those up to last that go through before the pipeline is empty; is it
 * the last of a group whose tensors are updated together? */
static bool learn(struct trainer *t, struct tensor *v, int number, int64_t b, int64_t last)
{
	const struct pd_stage *stage = stage_of(t->plan, v);
	int64_t replicas = stage->replicas, member = b % replicas;
	int64_t in_group = b % group_of(t->plan, stage);

	if (v->named->part == PD_PART_STATE) {
		if (member == 0)
			t->ops->export(t->net, number, PD_FULL, t->state, v->state);
		return false;
	}
	t->ops->export(t->net, number, PD_FULL, t->gradients, v->gradient);
	if (mutation == SUM)            /* whichever replica they belong to */
		add(v->parts[0], v->gradient, v->elements, in_group == 0);
	else
		add(v->parts[member], v->gradient, v->elements, in_group < replicas);
	if (in_group < group_of(t->plan, stage) - 1 && b < last)
		return false;
	add_replicas(v, replicas);
	if (clip_norm > 0 || loss_scale > 0 || ties(t))
		return true;
	update(t, v, t->first + b, 1);
	return false;
}

/* Minibatches first to last - 1; the pipeline is empty before and after them. */
static void stretch(struct trainer *t, int64_t first, int64_t last)
{
	t->first = first;
	pd_loader_plan(t->loader, false, first, 1, last);
	for (int64_t b = 0; b < last - first; b++) {
		struct pd_batch *batch = pd_loader_next(t->loader);
		bool together = false;

		pd_event_wait(&batch->ready, &t->gate);
		compute(t, batch, b);
		pd_loader_release(t->loader, batch);
		for (int i = 0; i < t->count; i++)
			together |= learn(t, &t->tensors[i], i, b, last - first - 1);
		if (together)
			update_all(t, b);
	}
}

/* The updates of a stage are from now on counted as if the other plan had made them all. */
static void go_over(struct trainer *t, const struct pd_plan *other)
{
	t->plan = other;
	for (int i = 0; i < t->count; i++) {
		struct tensor *v = &t->tensors[i];
		int64_t group = group_of(other, stage_of(other, v));
		int64_t per_epoch = (t->epoch + group - 1) / group;

		v->updates = switch_at / t->epoch * per_epoch +
			     (switch_at % t->epoch + group - 1) / group;
	}
}

static void train(struct trainer *t, const struct pd_plan *other)
{
	int64_t at = 0, end;

	while (at < minibatches) {
		end = (at / t->epoch + 1) * t->epoch;
		if (end > minibatches)
			end = minibatches;
		if (switch_at > at && end > switch_at)
			end = switch_at;
		stretch(t, at, end);
		for (int i = 0; i < t->count; i++) {
			struct tensor *v = &t->tensors[i];

			if (v->named->part == PD_PART_STATE || end == minibatches)
				continue;
			if (end % t->epoch == 0 || !goes_on(t->plan, other, v))
				forget(v);
			v->origin = v->count - 1;
		}
		if (end == switch_at)
			go_over(t, other);
		at = end;
	}
}

static void set_tensor(struct pd_tensor *out, const struct pd_named *named, const char *what)
{
	*out = (struct pd_tensor){ .name = pd_format("%s%s", named->name, what), .f32 = true,
				   .dims = named->dims, .elements = named->elements };
	memcpy(out->size, named->size, sizeof(named->size));
}

static void write_tensors(struct trainer *t)
{
	size_t n = 0, room = 4 * (size_t)t->count + 1;
	struct pd_tensor *list = pd_calloc(room, sizeof(*list));
	const float **values = pd_calloc(room, sizeof(*values));
	struct pd_safetensors_writer *writer;
	struct pd_error err;

	for (int i = 0; i < t->count; i++) {
		struct tensor *v = &t->tensors[i];

		if (v->named->copy)
			continue;
		set_tensor(&list[n], v->named, "");
		values[n++] = v->state ? v->state : v->versions[v->count - 1];
		if (!v->state && corrected(t, v)) {
			set_tensor(&list[n], v->named, ".delta");
			values[n++] = v->delta;
		}
		if (v->state || (!optimizer && momentum == 0))
			continue;
		set_tensor(&list[n], v->named, ".velocity");
		values[n++] = v->velocity;
		if (!optimizer)
			continue;
		set_tensor(&list[n], v->named, ".second");
		values[n++] = v->second;
	}
	writer = pd_safetensors_create(output, list, n, NULL, &err);
	check(writer != NULL, &err);
	for (size_t i = 0; i < n; i++) {
		check(pd_safetensors_put(writer, values[i], &err) == 0, &err);
		free(list[i].name);
	}
	check(pd_safetensors_commit(writer, &err) == 0, &err);
	free(list);
	free(values);
}

static void close_all(struct trainer *t)
{
	char *const arenas[] = { t->weights, t->master, t->gradients, t->state, t->inbox, t->slot, t->scratch, t->spare,
				 t->in, t->out, t->scale };

	for (int i = 0; i < t->count; i++) {
		struct tensor *v = &t->tensors[i];

		for (size_t k = 0; k < v->count; k++)
			free(v->versions[k]);
		for (int k = 0; k < t->most_replicas && v->parts; k++)
			free(v->parts[k]);
		free(v->parts);
		free(v->versions);
		free(v->scales);
		free(v->gradient);
		free(v->sum);
		free(v->velocity);
		free(v->second);
		free(v->delta);
		free(v->seen);
		free(v->state);
	}
	free(t->tensors);
	pd_loader_close(t->loader);
	pd_dataset_release(&t->train);
	pd_dataset_release(&t->test);
	t->ops->stream_close(t->stream);
	for (size_t i = 0; i < PD_COUNT(arenas); i++)
		if (arenas[i])
			t->ops->free(t->device, arenas[i]);
	t->ops->net_close(t->net);
	t->ops->close(t->device);
	pd_gate_release(&t->gate);
}

static int most_replicas(const struct pd_plan *plan)
{
	int most = 0;

	for (int s = 0; plan && s < plan->stage_count; s++)
		most = plan->stages[s].replicas > most ? plan->stages[s].replicas : most;
	return most;
}

int main(int argc, char **argv)
{
	int first = pd_command_parse(&command, argc, argv);
	struct pd_plan *plan, *other = NULL;
	struct pd_error err = { 0 };
	struct trainer t;

	if (minibatches < 0 || !output || (switch_at >= 0) != (other_plan != NULL)) {
		pd_error_input(&err, "give --minibatches, --output, and both or none of --switch"
			       " and --to");
		return pd_command_fail(&err);
	}
	if (loss_scale_text && strcmp(loss_scale_text, "dynamic") != 0)
		loss_scale = atof(loss_scale_text);
	plan = pd_plan_read(pd_operand(argc, argv, first, 0), &err);
	check(plan != NULL, &err);
	if (other_plan) {
		other = pd_plan_read(other_plan, &err);
		check(other != NULL, &err);
	}
	t = (struct trainer){ .plan = plan, .model = plan->profile->model };
	t.most_replicas = most_replicas(plan) > most_replicas(other) ? most_replicas(plan)
								     : most_replicas(other);
	open_device(&t);
	open_data(&t);
	open_tensors(&t);
	train(&t, other ? other : plan);
	write_tensors(&t);
	close_all(&t);
	pd_plan_free(plan);
	pd_plan_free(other);
	return pd_command_end(PD_EXIT_YES);
}
