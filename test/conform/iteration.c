/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An update, a forward and a backward that a device is given at once (stream.submit)
 * compute the same bits as one by one, with numbers that change from one iteration to the next, with
 * times or without, with graphs or without, and after a rehearsal.  Each of the three has its own event.
 * On the emulated GPU an iteration that is repeated is one graph.
 */
#include "chain.h"
#include "engine/device/submit.h"
#include "tap.h"

#include "base/mem.h"
#include "base/rng.h"
#include "run/device/rehearse.h"

#include <stdlib.h>
#include <string.h>

#define BATCH 6
#define STEPS 4                         /* the second is the first with an update, the third repeats it */
#define ARENAS 5

/* Only the emulated GPU (contrib/emulate-cuda.sh) defines these. */
extern int emulated_firsts(void) __attribute__((weak));
extern int emulated_launches(void) __attribute__((weak));
extern int emulated_graphs(void) __attribute__((weak));

struct result {
	float *arenas[ARENAS];
	int64_t counts[ARENAS];
	double losses[STEPS];
	int firsts, launches;           /* firsts of all steps, launches of the last one */
	bool ascending;                 /* the end times of each step's events ascend */
};

static int firsts(void)
{
	return emulated_firsts ? emulated_firsts() : 0;
}

static int launches(void)
{
	return emulated_launches ? emulated_launches() : 0;
}

/* Loads the minibatch of a step; the last two samples of the third one do not count. */
static void load(struct chain *c, int step)
{
	int64_t n = c->batch * pd_shape_elements(&c->model->inputs[0].shape);
	float *x = pd_calloc((size_t)n, sizeof(*x));
	int32_t y[BATCH];

	for (int64_t i = 0; i < n; i++)
		x[i] = 2 * pd_unit(pd_random(11, (uint64_t)step, 0, (uint32_t)i).v[0]) - 1;
	for (int i = 0; i < BATCH; i++)
		y[i] = (i * 3 + step) % 10;
	chain_load(c, x, y);
	free(x);
	c->first_sample = step * BATCH;
	c->valid = step == 2 ? BATCH - 2 : BATCH;
}

static struct pd_update update_of(const struct chain *c, enum pd_optimizer_kind kind, int step)
{
	const struct stage *s = &c->stages[0];

	return (struct pd_update){
		.kind = kind, .weights = s->weights, .next = s->weights, .master = s->master,
		.gradients = s->gradients, .velocity = s->velocity, .second = s->second,
		.rate = 0.1 / (step + 2), .hyper.momentum = 0.9, .weight_decay = 1e-3,
		.hyper.beta1 = 0.9, .hyper.beta2 = 0.99, .hyper.eps = 1e-6, .count = step + 1,
		.spares_vectors = kind == PD_ADAMW,
	};
}

static struct pd_pass pass_of(struct chain *c)
{
	const struct stage *s = &c->stages[0];

	return (struct pd_pass){
		.weights = s->weights, .state = s->state, .gradients = s->gradients,
		.inbox = s->inbox, .slot = s->slot, .scratch = s->scratch, .gradient_in = s->in,
		.gradient_out = s->out, .first_sample = c->first_sample, .valid = c->valid,
		.losses = &c->loss,
	};
}

/* Submits the update, if there is one, and the passes at once.  ev: one for each of the three, or NULL. */
static int submit(struct chain *c, const struct pd_update *update, const struct pd_pass *pass, struct pd_event *ev)
{
	const struct stage *s = &c->stages[0];
	static const enum pd_work_kind kinds[] = { PD_WORK_UPDATE, PD_WORK_FORWARD, PD_WORK_BACKWARD };
	struct pd_work works[3];
	int first = update ? 0 : 1;

	for (int i = first; i < 3; i++) {
		works[i] = (struct pd_work){ .kind = kinds[i], .net = s->net, .from = s->first, .count = s->count,
					     .ev = ev ? &ev[i] : NULL, .pass = *pass };
		if (i == 0)
			works[i].update = *update;
	}
	return c->ops->stream.submit(c->stream, &works[first], 3 - first);
}

/* Runs the update of the step before and this step's passes, one by one or at once. */
static bool step_once(struct chain *c, enum pd_optimizer_kind kind, int step, bool at_once)
{
	const struct pd_update update = update_of(c, kind, step - 1);
	const struct pd_pass pass = pass_of(c);
	struct pd_event ev[3];
	struct stage *s = &c->stages[0];

	for (int i = step > 0 ? 0 : 1; i < 3; i++)
		pd_event_arm(&ev[i]);
	if (at_once) {
		submit(c, step > 0 ? &update : NULL, &pass, ev);
	} else {
		if (step > 0)
			pd_submit_update(c->stream, s->net, &update, s->first, s->count, &ev[0]);
		pd_submit_forward(c->stream, s->net, &pass, s->first, s->count, &ev[1]);
		pd_submit_backward(c->stream, s->net, &pass, s->first, s->count, &ev[2]);
	}
	for (int i = step > 0 ? 0 : 1; i < 3; i++) {
		pd_event_wait(&ev[i], &c->gate);
		if (pd_event_failed(&ev[i]))
			return false;
	}
	return (step == 0 || ev[0].end_ns <= ev[1].end_ns) && ev[1].end_ns <= ev[2].end_ns;
}

static struct result train(const struct pd_device_ops *ops, const struct pd_model *model,
			   enum pd_optimizer_kind kind, bool at_once, bool rehearsed)
{
	const struct pd_net_config config = {
		.model = model, .count = model->layer_count, .batch_size = BATCH,
		.dtype = chain_dtype,
	};
	const struct pd_rehearsal what = {
		.config = &config, .evaluates = kind == PD_ADAM, .update = kind,
		.moments = pd_optimizer_rows[kind].moments,
		.turns = 3,
	};
	struct chain *c = chain_open(ops, model, NULL, 0, BATCH, 5, 1);
	struct result r = { .ascending = true };
	struct pd_error err;

	if (rehearsed)
		ok(pd_rehearse(c->device, c->stages[0].net, &what, &c->gate, &err) == 0,
		   "%s: rehearsal", chain_name(ops));
	/* forward, backward, and both with an update or without; an evaluation */
	if (rehearsed && emulated_graphs && !getenv("PD_EMULATED_NO_CAPTURE"))
		is_int(emulated_graphs(), (what.evaluates ? 5 : 4) * what.turns,
		       "%s: graphs are made for each kind of pass that there will be", chain_name(ops));
	r.firsts = -firsts();
	for (int step = 0; step < STEPS; step++) {
		load(c, step);
		r.launches = -launches();
		r.ascending = step_once(c, kind, step, at_once) && r.ascending;
		r.launches += launches();
		r.losses[step] = c->loss.sum;
	}
	r.firsts += firsts();
	for (int a = 0; a < ARENAS; a++)
		r.arenas[a] = chain_export(c, (enum arena)a, &r.counts[a]);
	chain_close(c);
	return r;
}

static void release(struct result *r)
{
	for (int a = 0; a < ARENAS; a++)
		free(r->arenas[a]);
}

static bool same(const struct result *a, const struct result *b)
{
	bool equal = memcmp(a->losses, b->losses, sizeof(a->losses)) == 0;

	for (int i = 0; i < ARENAS; i++)
		equal = equal && a->counts[i] == b->counts[i] &&
			memcmp(a->arenas[i], b->arenas[i],
			       (size_t)a->counts[i] * sizeof(float)) == 0;
	return equal && a->losses[0] != a->losses[1];
}

static void test_device(const struct pd_device_ops *ops, const struct pd_model *model)
{
	for (int kind = 0; kind < PD_OPTIMIZER_KINDS; kind++) {
		struct result one, all;

		if (pd_optimizer_is((enum pd_optimizer_kind)kind, PD_OPTIMIZER_NORMS))
			continue;       /* its updates do not join */
		chain_untimed = true;
		one = train(ops, model, (enum pd_optimizer_kind)kind, false, false);
		for (int way = 0; way < (kind > PD_ADAM ? 1 : 4); way++) {
			static const char *const ways[] = { "", ", timed", ", no graphs",
							    ", rehearsed" };

			chain_untimed = way != 1;
			if (way == 2)
				setenv("PD_CUDA_GRAPHS", "no", 1);
			all = train(ops, model, (enum pd_optimizer_kind)kind, true, way == 3);
			unsetenv("PD_CUDA_GRAPHS");
			ok(same(&one, &all) && all.ascending, "%s, %s: at once%s, the same bits",
			   chain_name(ops), pd_optimizer_kind_name[kind], ways[way]);
			if (emulated_launches && !getenv("PD_EMULATED_NO_CAPTURE"))
				is_int(all.launches, way == 1 ? 2 : way == 2 ? 0 : 1,
				       "%s, %s: graphs%s", chain_name(ops), pd_optimizer_kind_name[kind], ways[way]);
			if (way == 3)
				is_int(all.firsts, 0, "%s, %s: and nothing is made for the first time",
				       chain_name(ops), pd_optimizer_kind_name[kind]);
			release(&all);
		}
		chain_untimed = false;
		release(&one);
	}
}

/* Checks that an iteration gets a place in the queue as a whole or not at all. */
static void test_full(const struct pd_device_ops *ops, const struct pd_model *model)
{
	struct chain *c = chain_open(ops, model, NULL, 0, 1, 5, 1);
	const struct pd_update update = update_of(c, PD_SGD, 0);
	const struct pd_pass pass = pass_of(c);
	char *memory = ops->memory.alloc(c->device, 2, NULL);
	struct pd_event go, done;
	int fit = 0, more = 0, status = 0;

	pd_event_arm(&go);
	pd_submit_wait(c->stream, &go);
	while (status == 0) {
		status = submit(c, &update, &pass, NULL);
		fit += status == 0;
	}
	while (pd_submit_copy(c->stream, memory, memory + 1, 1, PD_COPY_WITHIN, NULL) == 0)
		more++;
	ok(status == PD_AGAIN && fit > 10 && more < 3, "%s: %d fit, and then %d of a copy",
	   ops->name, fit, more);
	pd_event_complete(&go, 0, 0, &c->gate);
	do {
		pd_event_arm(&done);
		status = pd_submit_copy(c->stream, memory, memory + 1, 1, PD_COPY_WITHIN, &done);
	} while (status == PD_AGAIN);
	pd_event_wait(&done, &c->gate);
	ok(!pd_event_failed(&done), "%s: and all of them are run", ops->name);
	ops->memory.free(c->device, memory);
	chain_close(c);
}

/* Checks that an error in forward fails its event, and every event that is queued after it. */
static void test_failure(const struct pd_device_ops *ops, const struct pd_model *model)
{
	struct chain *c = chain_open(ops, model, NULL, 0, BATCH, 5, 1);
	float *x = pd_calloc((size_t)(BATCH * pd_shape_elements(&model->inputs[0].shape)),
			     sizeof(*x));
	int32_t y[BATCH] = { 1, 2, 3, 77, 1, 2 };
	const struct pd_pass pass = pass_of(c);
	struct pd_event ev[6];

	chain_load(c, x, y);
	for (int i = 0; i < 6; i++)
		pd_event_arm(&ev[i]);
	for (int i = 0; i < 6; i += 3) {
		const struct pd_update update = update_of(c, PD_SGD, 0);

		submit(c, &update, &pass, &ev[i]);
		for (int k = i; k < i + 3; k++)
			pd_event_wait(&ev[k], &c->gate);
	}
	ok(!pd_event_failed(&ev[0]) && pd_event_failed(&ev[1]) &&
	   strstr(c->gate.err.text, "label 77"), "%s: a forward's failure: %s", ops->name,
	   c->gate.err.text);
	ok(pd_event_failed(&ev[3]) && pd_event_failed(&ev[4]) && pd_event_failed(&ev[5]),
	   "%s: what is queued after it fails", ops->name);
	free(x);
	chain_close(c);
}

int main(void)
{
	struct pd_model *branching = branching_model();

	for (int i = 0; pd_devices[i]; i++) {
		if (!chain_usable(pd_devices[i]))
			continue;
		for (int type = 0; type < chain_types(pd_devices[i]); type++)
			if (chain_take(pd_devices[i], type))
				test_device(pd_devices[i], branching);
		chain_take(pd_devices[i], 0);
		chain_untimed = true;
		test_full(pd_devices[i], branching);
		test_failure(pd_devices[i], branching);
		chain_untimed = false;
	}
	pd_model_free(branching);
	return done_testing();
}
