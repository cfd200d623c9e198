/* SPDX-License-Identifier: Apache-2.0 */
#include "run/device/rehearse.h"

#include "base/mem.h"

#define TAKEN 16
#define WORKS 32
#define TIMES 2	/* devices keep work that comes again when it comes for the second time */
#define FLOATS 1024             /* elements of a sum */

struct rehearsal {
	struct pd_device *device;
	const struct pd_device_ops *ops;
	struct pd_net *net;
	const struct pd_rehearsal *what;
	const struct pd_net_config *config;
	struct pd_gate *gate;
	struct pd_stream *stream;
	void *taken[TAKEN];
	int count;
	struct pd_work works[WORKS];
	int work_count;
	int forward;                    /* of works: its update is before it, its backward behind it */
	struct pd_event done;
};

/* Allocates memory until the end.  After a failure it returns NULL, and so do all later calls. */
static void *take(struct rehearsal *r, size_t bytes, struct pd_error *err)
{
	void *memory = NULL;

	if (r->count == 0 || r->taken[r->count - 1])
		memory = r->ops->memory.alloc(r->device, bytes, err);
	r->taken[r->count++] = memory;
	return memory;
}

static void add(struct rehearsal *r, struct pd_work work)
{
	work.net = r->net;
	work.from = r->config ? r->config->first : 0;
	work.count = r->config ? r->config->count : 0;
	r->works[r->work_count++] = work;
}

static void add_passes(struct rehearsal *r, struct pd_pass pass, const struct pd_update *update)
{
	const struct pd_net_config *c = r->config;
	enum pd_backward_part to = c->split ? PD_BACKWARD_WEIGHT : PD_BACKWARD_ALL;

	pass.evaluate = true;
	if (r->what->evaluates)
		add(r, (struct pd_work){ .kind = PD_WORK_FORWARD, .pass = pass });
	pass.evaluate = false;
	pass.again = true;
	if (c->recomputes)
		add(r, (struct pd_work){ .kind = PD_WORK_FORWARD, .pass = pass });
	pass.again = false;
	add(r, (struct pd_work){ .kind = PD_WORK_UPDATE, .update = *update });
	r->forward = r->work_count;
	add(r, (struct pd_work){ .kind = PD_WORK_FORWARD, .pass = pass });
	for (pass.part = PD_BACKWARD_ALL; pass.part <= to; pass.part++)
		add(r, (struct pd_work){ .kind = PD_WORK_BACKWARD, .pass = pass });
}

static void add_squares(struct rehearsal *r, const struct pd_update *update, double *vector)
{
	add(r, (struct pd_work){ .kind = PD_WORK_SQUARES, .squares = {
		.gradients = update->gradients, .scale = update->norm.before, .clear = true, .vector = vector } });
	add(r, (struct pd_work){ .kind = PD_WORK_UNITE, .unite = {
		.vector = vector, .other = vector, .count = (size_t)r->config->model->layer_count + 1 } });
}

/* Adds each step of sparse sums. */
static void add_chunks(struct rehearsal *r, float *numbers)
{
	const int64_t chunk = FLOATS / 8;

	for (enum pd_chunk_step step = PD_CHUNKS_CHOOSE; step <= PD_CHUNKS_UNPACK; step++)
		add(r, (struct pd_work){ .kind = PD_WORK_CHUNKS, .chunks = {
			.step = step, .gradients = numbers, .residual = numbers + chunk,
			.packed = numbers + 2 * chunk, .norms = numbers + 3 * chunk,
			.places = (int32_t *)(numbers + 4 * chunk), .floats = chunk, .chunk = chunk,
			.count = 1, .sent = 1, .members = 1 } });
}

/* From 16 bits and to them, of both types: a plan says later whether gradients travel so. */
static void add_mixed_sums(struct rehearsal *r, float *numbers)
{
	for (int way = 0; way < 4; way++)
		add(r, (struct pd_work){ .kind = PD_WORK_MIXED_SUM, .mixed_sum = {
			.rounding = { way < 2 ? PD_BF16 : PD_F16, 1, false }, .dst = numbers,
			.src = { numbers + FLOATS / 2 }, .n = 1, .narrow = way % 2 == 0,
			.narrow_sources = (uint32_t)way % 2, .count = FLOATS / 2 } });
}

static void add_sums(struct rehearsal *r, float *numbers)
{
	add_chunks(r, numbers);
	add_mixed_sums(r, numbers);
	/* aligned at the beginning, and then aligned to no more than a float */
	for (float *at = numbers; at <= numbers + 1; at++)
		add(r, (struct pd_work){ .kind = PD_WORK_SUM, .sum = {
			.dst = at, .src = { at, at }, .n = 2, .count = FLOATS - 1 } });
	/* a replica without gradients contributes zeros */
	add(r, (struct pd_work){ .kind = PD_WORK_SUM, .sum = { .dst = numbers, .count = FLOATS } });
	add(r, (struct pd_work){ .kind = PD_WORK_COPY, .copy = {
		.dst = numbers, .src = numbers + FLOATS / 2, .bytes = FLOATS / 2 * sizeof(float),
		.way = PD_COPY_WITHIN } });
}

/* Does n works together, from number `first` on, and waits for them. */
static int together(struct rehearsal *r, int first, int n, struct pd_error *err)
{
	struct pd_work *last = &r->works[first + n - 1];
	int status;

	pd_event_arm(&r->done);
	last->ev = &r->done;
	status = r->ops->stream.submit(r->stream, &r->works[first], n);
	last->ev = NULL;
	if (status != 0)
		return pd_error_failed(err, "the %s device refused work", r->ops->name);
	pd_event_wait(&r->done, r->gate);
	if (!pd_event_failed(&r->done))
		return 0;
	*err = r->gate->err;
	return -1;
}

/* Does each work alone.  A stage that sends nothing on has its backward behind a forward, too, and an update before. */
static int rehearse(struct rehearsal *r, struct pd_error *err)
{
	bool joins = r->net && !r->config->split && r->ops->net.sizes(r->net)->out_count == 0;

	for (int i = 0; i < TIMES; i++) {
		for (int k = 0; k < r->work_count; k++)
			if (together(r, k, 1, err) < 0)
				return -1;
		if (joins && (together(r, r->forward, 2, err) < 0 || together(r, r->forward - 1, 3, err) < 0))
			return -1;
	}
	return 0;
}

static int do_all(struct rehearsal *r, struct pd_error *err)
{
	const struct pd_net_sizes *sizes = r->ops->net.sizes(r->net);
	const struct pd_rehearsal *what = r->what;
	int layers = r->config->model->layer_count;
	bool half = r->config->dtype != PD_F32;
	struct pd_outcome outcome;
	struct pd_pass pass = {
		.weights = take(r, sizes->weights_bytes, err),
		.state = take(r, sizes->state_bytes, err),
		.gradients = take(r, sizes->full_bytes, err),
		.inbox = take(r, sizes->inbox_bytes, err),
		.slot = take(r, sizes->slot_bytes, err),
		.kept = take(r, sizes->kept_bytes, err),
		.scratch = take(r, sizes->scratch_bytes, err),
		.gradient_in = take(r, sizes->gradient_in_bytes, err),
		.gradient_out = take(r, sizes->gradient_out_bytes, err),
		.scale = take(r, sizeof(struct pd_scale), err),
		.valid = r->config->batch_size,
	};
	double *vector = take(r, ((size_t)layers + 1) * sizeof(double), err);
	/* The results do not matter: moments lie where the gradients are. */
	struct pd_update update = {
		.kind = what->update, .weights = pass.weights, .next = (void *)pass.weights, .gradients = pass.gradients,
		.velocity = what->moments > 0 ? pass.gradients : NULL,
		.second = what->moments > 1 ? pass.gradients : NULL,
		.delta = what->corrects ? pass.gradients : NULL, .corrected = (void *)pass.weights,
		.master = half ? take(r, sizes->full_bytes, err) : NULL,
		.norm = {
			.vector = what->agrees ? vector : NULL, .layers = layers, .outcome = &outcome,
			.before = pass.scale, .next = (struct pd_scale *)pass.scale,
		},
		.hyper = pd_optimizer_rows[what->update].defaults, .spares_vectors = what->spares_vectors, .count = 1,
	};
	float *numbers = take(r, 2 * FLOATS * sizeof(float), err);

	if (!numbers)
		return -1;
	add_passes(r, pass, &update);
	add_squares(r, &update, vector);
	add_sums(r, numbers);
	if (rehearse(r, err) < 0)
		return -1;
	return r->ops->net.settle ? r->ops->net.settle(r->net, what->turns, err) : 0;
}

int pd_rehearse(struct pd_device *device, struct pd_net *net, const struct pd_rehearsal *what,
		struct pd_gate *gate, struct pd_error *err)
{
	struct rehearsal r = { .device = device, .ops = device->ops, .net = net, .what = what,
			       .config = what->config, .gate = gate };
	int status = -1;

	r.stream = r.ops->stream.open(device, err);
	if (r.stream) {
		status = do_all(&r, err);
		r.ops->stream.close(r.stream);
	}
	while (r.count > 0)
		if (r.taken[--r.count])
			r.ops->memory.free(device, r.taken[r.count]);
	return status;
}

int pd_rehearse_sum(struct pd_device *device, struct pd_stream *stream, struct pd_gate *gate,
		    struct pd_error *err)
{
	struct rehearsal r = { .device = device, .ops = device->ops, .gate = gate, .stream = stream };
	float *numbers = take(&r, 2 * FLOATS * sizeof(float), err);
	int status;

	if (!numbers)
		return -1;
	add_sums(&r, numbers);
	status = rehearse(&r, err);
	r.ops->memory.free(device, numbers);
	return status;
}
