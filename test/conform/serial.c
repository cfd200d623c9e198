/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Computes in one process, from the published rule alone, what a plan's training run computes.  It
 * shares the kernels, the loader and the readers of documents with pd-run, and nothing that orders
 * operations, keeps versions or sums over replicas.
 *
 * It keeps every version of every parameter since the epoch began, and computes with the
 * whole network as one net.  Let w be the warm-up of a stage (0 with schedule none), r its
 * replicas, M the plan's microbatches, which make a minibatch.  A stage updates after every G
 * microbatches: G is M, or r if the plan's M is 1 (with 2bw, flush and nf1b always M).  The gradient
 * of a minibatch is that of the mean of the loss over its samples: each sample's gradient is divided
 * by M times the samples of a microbatch before they are added up.  If M is 1 the r minibatches of
 * an update are added.  Microbatch b, counted from the moment at which
 * the pipeline was last empty, is number i = floor(b / r) of its replica.  Its forward and backward
 * see this version at that stage, counted in updates since then:
 *
 *     stash          max(0, floor((i - w) / (G / r)))            SOSP 2019, section 3.3
 *                    max(0, floor(b / M) - w) with nf1b, whose w counts minibatches
 *                    with an eager start-up, another w for the first (w_0 + 1) r_0: below
 *     vertical-sync  the newest that has no more microbatches in it than stage 0's by the
 *                    rule of stash, and is not newer than the stage's own by that rule
 *     2bw            max(0, floor(b / M) - 1)                    ICML 2021
 *     flush          floor(b / M): plain SGD
 *     latest         forward as with stash, backward floor(b / G), the newest at that time;
 *                    a forward that is recomputed sees the same version as backward
 *
 * PipeMare (MLSys 2021) applies to latest, with t = ceil(w r / G) (w with nf1b) the updates between
 * forward and backward.  With --lr-reschedule=K the rate is divided by t^(1 - m / K), m the minibatch
 * counted from the beginning, while m < K and t > 0.  With --discrepancy=D and t > 0 each update is
 * followed by d' = c d + (1 - c)(w' - w), with c = D^(1 / t), and backward sees w - t d.
 *
 * Each replica adds the gradients of its own microbatches in order; these sums are added in
 * the order of the replicas, with zeros for a replica that has none in the last group.
 * If the plan has a gradient_dtype and the stage replicas, each replica's sum is rounded to that type
 * first, and so is the sum of all, except with recursive doubling.  If f16 is that type and not the
 * network's, and the loss scale S constant, a number is multiplied by 1024 / S (the nearest power of two)
 * while it is f16, and is at most the largest f16 number.
 * Running statistics are those of a stage's replica 0.
 *
 * If layers share parameters, with 2bw and flush each has a copy; their sums are added up, from
 * the last to the first, before an update of all.
 *
 * With --clip-grad-norm=X or --loss-scale=X all parameters are updated together after a group (2bw and
 * flush).  Backward begins with the loss times the scale S of the version that the group sees.  Let n be
 * the root of the sum of all squares, a sum per layer, in the order of the layers, divided by S.  If n
 * is not finite the next version is this one; otherwise gradients are multiplied by
 * min(1, X / (n + 1e-6)) / S.  The scale of the next version is that of this one, except with
 * --loss-scale-interval=N: if n is not finite it is the lesser of it and max(S / 2, 1); after N
 * finite ones in a row it is twice as large.
 *
 * In 16 bits all of these versions are f32; the weights that are computed with are rounded from them
 * when they are brought to the device.
 *
 * If sums of gradients are sparse, serial_sparse.c computes them.
 *
 * With --switch=K --to=PLAN it goes over to another plan after K minibatches, as a resumed
 * run does: a stage whose layers all had the same warm-up, replicas and G before goes on
 * with the older versions, any other begins with the newest.  With vertical-sync so does any
 * whose first stage had others.
 */
#include "engine/device/submit.h"
#include "serial.h"
#include "unit/read_plan.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/opt.h"
#include "model/normalize.h"

#include <stdlib.h>
#include <string.h>

#define SYNTHETIC_MINIBATCHES 10

struct asked asked = {
	.minibatches = -1, .seed = 1, .switch_at = -1, .rate = 0.01, .momentum = 0.9, .trust = 0.001,
	.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .lr_gamma = 0.1, .lr_power = 2,
	.lr_step = 30, .discrepancy = -1, .residual = -1,
};

static const char *const mutations[] = { "none", "version", "latest", "sum", "clip", "skip",
					"scale", "unscale", "untied", "mean", "round",
					"correction", "set", "twice", NULL };

static const struct pd_opt options[] = {
	{ "data", 0, PD_OPT_STRING, "DIR", "data set (default: synthetic)", &asked.data },
	{ "normalize", 0, PD_OPT_STRING, "MEAN,STD", "as pd-run's", &asked.normalize },
	{ "augment", 0, PD_OPT_STRING, "HOW", "likewise", &asked.augment },
	{ "minibatches", 'm', PD_OPT_COUNT, "N", "to train", &asked.minibatches },
	{ "lr", 0, PD_OPT_REAL, "X", "learning rate", &asked.rate, 0, 1e6 },
	{ "momentum", 0, PD_OPT_REAL, "X", "momentum", &asked.momentum, 0, 1 },
	{ "weight-decay", 0, PD_OPT_REAL, "X", "L2 penalty", &asked.weight_decay, 0, 1e3 },
	{ "optimizer", 0, PD_OPT_CHOICE, "NAME", "as pd-run's, like all below", &asked.optimizer,
	  .choices = (const char *const[]){ [SGD] = "sgd", [ADAM] = "adam", [ADAMW] = "adamw",
	  [LARS] = "lars", [NESTEROV] = "nesterov", [LION] = "lion", NULL } },
	{ "decay", 0, PD_OPT_CHOICE, "WHAT", "what decays", &asked.decay,
	  .choices = (const char *const[]){ "all", "matrices", NULL } },
	{ "trust", 0, PD_OPT_REAL, "X", "of lars", &asked.trust, 0, 1e3 },
	{ "beta1", 0, PD_OPT_REAL, "X", "first moment", &asked.beta1, 0, 1 },
	{ "beta2", 0, PD_OPT_REAL, "X", "second moment", &asked.beta2, 0, 1 },
	{ "epsilon", 0, PD_OPT_REAL, "X", "of adam", &asked.epsilon, 0, 1 },
	{ "lr-schedule", 0, PD_OPT_CHOICE, "NAME", "learning rate", &asked.lr_schedule,
	  .choices = (const char *const[]){ "constant", "step", "polynomial", "cosine", NULL } },
	{ "lr-step", 0, PD_OPT_COUNT, "EPOCHS", "of step", &asked.lr_step, 1, 1e12 },
	{ "lr-gamma", 0, PD_OPT_REAL, "X", "of step", &asked.lr_gamma, 0, 1 },
	{ "lr-power", 0, PD_OPT_REAL, "X", "of polynomial", &asked.lr_power, 0, 100 },
	{ "lr-warmup", 0, PD_OPT_COUNT, "N", "minibatches", &asked.lr_warmup },
	{ "clip-grad-norm", 0, PD_OPT_REAL, "X", "global norm", &asked.clip_norm, 0, 1e30 },
	{ "loss-scale", 0, PD_OPT_STRING, "X", "or dynamic", &asked.loss_scale_text },
	{ "loss-scale-init", 0, PD_OPT_REAL, "X", "dynamic", &asked.loss_scale, 0, 1e38 },
	{ "loss-scale-interval", 0, PD_OPT_COUNT, "N", "dynamic", &asked.loss_scale_interval },
	{ "lr-reschedule", 0, PD_OPT_COUNT, "N", "minibatches", &asked.lr_reschedule },
	{ "discrepancy", 0, PD_OPT_REAL, "D", "correction", &asked.discrepancy, 0, 1 },
	{ "residual", 0, PD_OPT_REAL, "X", "of sparse sums", &asked.residual, 0, 1 },
	{ "seed", 's', PD_OPT_COUNT, "N", "as pd-run's", &asked.seed },
	{ "switch", 0, PD_OPT_COUNT, "K", "go over to another plan after K minibatches",
	  &asked.switch_at },
	{ "to", 0, PD_OPT_STRING, "PLAN", "the other plan", &asked.other_plan },
	{ "mutate", 0, PD_OPT_CHOICE, "WHAT", "break the rule", &asked.mutation,
	  .choices = mutations },
	{ "output", 'o', PD_OPT_STRING, "FILE", "where the tensors go", &asked.output },
	{ 0 }
};

static const struct pd_command command = {
	.name = "serial", .synopsis = "[OPTION]... plan.json",
	.summary = "Train as a plan says, one minibatch after the other.",
	.options = options, .max_operands = 1,
};

void serial_check(bool good, const struct pd_error *err)
{
	if (!good)
		exit(pd_command_fail(err));
}

static char *alloc(struct trainer *t, size_t bytes)
{
	struct pd_error err;
	char *ptr = t->ops->memory.alloc(t->device, bytes ? bytes : PD_ALIGN, &err);

	serial_check(ptr != NULL, &err);
	return ptr;
}

static void open_device(struct trainer *t)
{
	struct pd_device_config config = { .threads = 1, .gate = &t->gate };
	struct pd_net_config net = {
		.model = t->model, .count = t->model->layer_count,
		.batch_size = t->plan->profile->batch_size, .seed = (uint64_t)asked.seed,
		.microbatches = asked.mutation == MEAN ? 1 : t->plan->microbatches,
		.copies = serial_has_tied_weights(t), .dtype = t->plan->profile->dtype,
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
	serial_check(pd_gate_init(&t->gate, &err) == 0, &err);
	t->ops = pd_device_find(getenv("PD_TEST_DEVICE") ? getenv("PD_TEST_DEVICE") : "cpu", &err);
	serial_check(t->ops != NULL, &err);
	t->device = t->ops->open(&config, &err);
	serial_check(t->device != NULL, &err);
	t->stream = t->ops->stream.open(t->device, &err);
	serial_check(t->stream != NULL, &err);
	t->net = t->ops->net.open(t->device, &net, &err);
	serial_check(t->net != NULL, &err);
	free(algorithms);
	free(engines);
	t->sizes = t->ops->net.sizes(t->net);
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
	t->vector = alloc(t, ((size_t)t->model->layer_count + 1) * sizeof(double));
	serial_check(t->ops->net.init(t->net, t->weights, t->master, t->state, &err) == 0, &err);
}

static void open_data(struct trainer *t)
{
	int64_t batch = t->plan->profile->batch_size, microbatches = t->plan->microbatches;
	struct pd_loader_config config = {
		.model = t->model, .train = &t->train, .batch_size = batch,
		.microbatches = microbatches,
		.dtype = t->plan->profile->dtype, .seed = (uint64_t)asked.seed,
		.ahead = 2, .gate = &t->gate,
	};
	struct pd_error err;

	if (asked.normalize)
		serial_check(pd_model_normalize(t->plan->profile->model, asked.normalize, &err) == 0, &err);
	if (asked.augment)
		serial_check(pd_augment_parse(asked.augment, t->model, &config.augment, &err) == 0, &err);
	if (asked.data)
		serial_check(pd_dataset_open(asked.data, t->model, &t->train, NULL, &err) == 0, &err);
	else
		pd_dataset_synthetic(t->model, SYNTHETIC_MINIBATCHES * microbatches * batch,
				     (uint64_t)asked.seed, &t->train);
	t->epoch = t->train.samples / (batch * microbatches);
	t->inputs = pd_calloc((size_t)t->sizes->in_count, sizeof(*t->inputs));
	config.inputs = t->inputs;
	for (int i = 0; i < t->sizes->in_count; i++)
		t->inputs[config.input_count++] = t->sizes->in[i].tensor;
	t->loader = pd_loader_open(&config, &err);
	serial_check(t->loader != NULL, &err);
}

/* Tells whether two stages keep the same versions, but for vertical-sync. */
static bool keep_the_same(const struct pd_plan *from, const struct pd_stage *old,
			  const struct pd_plan *to, const struct pd_stage *new)
{
	return (from->schedule == PD_SCHEDULE_NONE) == (to->schedule == PD_SCHEDULE_NONE) &&
	       old->warmup == new->warmup && old->replicas == new->replicas &&
	       serial_group(from, old) == serial_group(to, new);
}

/* Tells whether a tensor's stage under `to` finds the versions that it needs after `from`. */
static bool goes_on(const struct pd_plan *from, const struct pd_plan *to, const struct tensor *v)
{
	const struct pd_stage *stage = serial_stage_of(to, v);
	int end = stage->first_layer + stage->layer_count;

	if (to->weights == PD_WEIGHTS_VERTICAL_SYNC &&
	    !keep_the_same(from, &from->stages[0], to, &to->stages[0]))
		return false;
	for (int l = stage->first_layer; l < end; l++)
		if (!keep_the_same(from, &from->stages[pd_plan_stage_of_layer(from, l)], to, stage))
			return false;
	return true;
}

static void import_versions(struct trainer *t, int64_t b, bool backward)
{
	for (int i = 0; i < t->count; i++) {
		struct tensor *v = &t->tensors[i];

		if (v->named->part == PD_PART_PARAMETER)
			t->ops->net.import(t->net, i, PD_WORKING, t->weights,
					   backward && serial_corrects(t, v)
					   ? v->seen : v->versions[serial_version(t, v, b,
										  backward)]);
		else if (!backward)
			t->ops->net.import(t->net, i, PD_FULL, t->state, v->state);
	}
}

/*
 * Runs backward stage by stage, from the last to the first.  With latest a stage that recomputes makes
 * its activations anew before, with the weights that its backward sees, from the same inputs.  In other
 * cases recomputation would change nothing, and is not done.
 */
static void back(struct trainer *t, const struct pd_pass *pass, struct pd_event *ev)
{
	const struct pd_plan *plan = t->plan;
	struct pd_pass again = *pass;

	again.again = true;
	again.scratch = t->spare;
	for (int s = plan->stage_count - 1; s >= 0; s--) {
		const struct pd_stage *stage = &plan->stages[s];

		if (stage->recompute && plan->weights == PD_WEIGHTS_LATEST)
			pd_submit_forward(t->stream, t->net, &again, stage->first_layer,
					    stage->layer_count, NULL);
		pd_submit_backward(t->stream, t->net, pass, stage->first_layer,
				     stage->layer_count,
				     s == 0 ? ev : NULL);
	}
}

static void compute(struct trainer *t, const struct pd_batch *batch, int64_t b)
{
	struct pd_pass pass = {
		.weights = t->weights, .state = t->state, .gradients = t->gradients,
		.inbox = t->inbox, .slot = t->slot, .scratch = t->scratch,
		.gradient_in = t->in, .gradient_out = t->out, .first_sample = batch->first_sample,
		.valid = batch->valid,
	};
	struct pd_scale scale = { .loss_scale = 1 };
	const struct tensor *v = serial_parameter(t);
	struct pd_event ev;
	int layers = t->model->layer_count;

	for (int i = 0; i < t->sizes->in_count; i++)
		pd_submit_copy(t->stream, t->inbox + t->sizes->in[i].offset, batch->buffers[i],
				    batch->bytes[i], PD_COPY_TO_DEVICE, NULL);
	import_versions(t, b, false);
	pd_event_arm(&ev);
	pd_submit_forward(t->stream, t->net, &pass, 0, layers, &ev);
	pd_event_wait(&ev, &t->gate);
	import_versions(t, b, true);
	scale.loss_scale = v->scales[serial_version(t, v, b, true)];
	pd_submit_copy(t->stream, t->scale, &scale, sizeof(scale), PD_COPY_TO_DEVICE, NULL);
	pass.scale = (const struct pd_scale *)t->scale;
	pd_event_arm(&ev);
	back(t, &pass, &ev);
	pd_event_wait(&ev, &t->gate);
	serial_check(!pd_event_failed(&ev), &t->gate.err);
}

/* Trains microbatches first to last - 1; the pipeline is empty before and after them. */
static void stretch(struct trainer *t, int64_t first, int64_t last)
{
	t->first = first;
	pd_loader_plan(t->loader, false, first, 1, last);
	for (int64_t b = 0; b < last - first; b++) {
		struct pd_batch *batch = pd_loader_next(t->loader);

		pd_event_wait(&batch->ready, &t->gate);
		compute(t, batch, b);
		pd_loader_release(t->loader, batch);
		serial_learn(t, b, last - first - 1);
	}
}

/* Goes over to the other plan; counts the updates of each tensor as if that had made them all. */
static void go_over(struct trainer *t, const struct pd_plan *other)
{
	t->plan = other;
	for (int i = 0; i < t->count; i++) {
		struct tensor *v = &t->tensors[i];
		int64_t group = serial_group(other, serial_stage_of(other, v));
		int64_t per_epoch = (t->epoch * other->microbatches + group - 1) / group;
		int64_t rest = asked.switch_at % t->epoch * other->microbatches;

		v->updates = asked.switch_at / t->epoch * per_epoch + (rest + group - 1) / group -
			     t->skipped;
	}
}

static void train(struct trainer *t, const struct pd_plan *other)
{
	int64_t at = 0, end;

	while (at < asked.minibatches) {
		end = (at / t->epoch + 1) * t->epoch;
		if (end > asked.minibatches)
			end = asked.minibatches;
		if (asked.switch_at > at && end > asked.switch_at)
			end = asked.switch_at;
		stretch(t, at * t->plan->microbatches, end * t->plan->microbatches);
		for (int i = 0; i < t->count; i++) {
			struct tensor *v = &t->tensors[i];

			if (v->named->part != PD_PART_PARAMETER || end == asked.minibatches)
				continue;
			if (end % t->epoch == 0 || !goes_on(t->plan, other, v))
				serial_forget(v);
			v->origin = v->count - 1;
		}
		if (end == asked.switch_at)
			go_over(t, other);
		at = end;
	}
}

static void close_all(struct trainer *t)
{
	char *const arenas[] = { t->weights, t->master, t->gradients, t->state, t->inbox, t->slot,
				 t->scratch, t->spare, t->in, t->out, t->scale, t->vector };

	serial_tensors_close(t);
	pd_loader_close(t->loader);
	pd_dataset_release(&t->train);
	free(t->inputs);
	t->ops->stream.close(t->stream);
	for (size_t i = 0; i < PD_COUNT(arenas); i++)
		if (arenas[i])
			t->ops->memory.free(t->device, arenas[i]);
	t->ops->net.close(t->net);
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

	if (asked.minibatches < 0 || !asked.output ||
	    (asked.switch_at >= 0) != (asked.other_plan != NULL)) {
		pd_error_input(&err, "give --minibatches, --output, and both or none of --switch"
			       " and --to");
		return pd_command_fail(&err);
	}
	if (asked.loss_scale_text && strcmp(asked.loss_scale_text, "dynamic") != 0)
		asked.loss_scale = atof(asked.loss_scale_text);
	else if (asked.loss_scale_text) {
		/* pd-run's defaults */
		if (asked.loss_scale == 0)
			asked.loss_scale = 65536;
		if (asked.loss_scale_interval == 0)
			asked.loss_scale_interval = 2000;
	}
	plan = read_plan_file(pd_operand(argc, argv, first, 0), &err);
	serial_check(plan != NULL, &err);
	if (asked.other_plan) {
		other = read_plan_file(asked.other_plan, &err);
		serial_check(other != NULL, &err);
		if (other->microbatches != plan->microbatches)
			pd_bug("serial: plans of other minibatches");
		if (other->chunk > 0 || plan->chunk > 0)
			pd_bug("serial: another plan, and sparse sums");
	}
	t = (struct trainer){ .plan = plan, .model = plan->profile->model };
	t.most_replicas = most_replicas(plan) > most_replicas(other) ? most_replicas(plan)
								     : most_replicas(other);
	open_device(&t);
	open_data(&t);
	serial_tensors_open(&t);
	serial_sparse_open(&t);
	train(&t, other ? other : plan);
	serial_tensors_write(&t);
	serial_sparse_close();
	close_all(&t);
	pd_plan_free(plan);
	pd_plan_free(other);
	return pd_command_end(PD_EXIT_YES);
}
