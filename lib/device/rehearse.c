/* SPDX-License-Identifier: Apache-2.0 */
#include "device/rehearse.h"

#include "base/mem.h"
#include "device/submit.h"

#define TAKEN 16
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

static struct pd_event *arm(struct rehearsal *r)
{
	pd_event_arm(&r->done);
	return &r->done;
}

/* Waits for the work; status is what queueing it returned. */
static int finish(struct rehearsal *r, int status, struct pd_error *err)
{
	if (status != 0)
		return pd_error_failed(err, "the %s device refused work", r->ops->name);
	pd_event_wait(&r->done, r->gate);
	if (!pd_event_failed(&r->done))
		return 0;
	*err = r->gate->err;
	return -1;
}

static int passes(struct rehearsal *r, struct pd_pass pass, struct pd_error *err)
{
	const struct pd_net_config *c = r->config;
	enum pd_backward_part to = c->split ? PD_BACKWARD_WEIGHT : PD_BACKWARD_ALL;

	/* evaluation, training, recomputation */
	for (int k = r->what->evaluates ? 0 : 1; k < (c->recomputes ? 3 : 2); k++) {
		pass.evaluate = k == 0;
		pass.again = k == 2;
		if (finish(r, pd_submit_forward(r->stream, r->net, &pass, c->first, c->count,
						  arm(r)), err) < 0)
			return -1;
	}
	pass.again = false;
	for (pass.part = PD_BACKWARD_ALL; pass.part <= to; pass.part++)
		if (finish(r, pd_submit_backward(r->stream, r->net, &pass, c->first, c->count,
						   arm(r)), err) < 0)
			return -1;
	return 0;
}

/* The results do not matter: moments lie where the gradients are. */
static int updates(struct rehearsal *r, struct pd_update update, struct pd_scale *scale,
		   struct pd_error *err)
{
	const struct pd_squares squares = {
		.gradients = update.gradients, .scale = scale, .clear = true,
		.vector = (double *)update.norm.vector,
	};

	if (finish(r, pd_submit_squares(r->stream, r->net, &squares, arm(r)), err) < 0 ||
	    finish(r, pd_submit_unite(r->stream, squares.vector, squares.vector, (size_t)update.norm.layers + 1,
				      arm(r)), err) < 0)
		return -1;
	return finish(r, pd_submit_update(r->stream, r->net, &update, r->config->first,
					    r->config->count, arm(r)), err);
}

/* A stage that sends nothing on has iterations, without an update or with one. */
static int iterations(struct rehearsal *r, const struct pd_pass *pass, struct pd_update update,
		      struct pd_error *err)
{
	struct pd_iteration it = { .pass = pass };

	if (!r->ops->joins || r->config->split || r->ops->net.sizes(r->net)->out_count > 0)
		return 0;
	update.norm.vector = NULL;
	update.delta = NULL;
	for (int k = 0; k < (r->what->joins ? 2 : 1); k++) {
		it.update = k > 0 ? &update : NULL;
		it.ended = arm(r);
		if (finish(r, pd_submit_iteration(r->stream, r->net, &it, r->config->first,
						  r->config->count), err) < 0)
			return -1;
	}
	return 0;
}

/* Executes each step of sparse sums once. */
static int chunks(struct rehearsal *r, float *numbers, struct pd_error *err)
{
	const int64_t chunk = FLOATS / 8;
	struct pd_chunks what = {
		.gradients = numbers, .residual = numbers + chunk, .packed = numbers + 2 * chunk,
		.norms = numbers + 3 * chunk, .places = (int32_t *)(numbers + 4 * chunk),
		.floats = chunk, .chunk = chunk, .count = 1, .sent = 1, .members = 1,
	};

	for (what.step = PD_CHUNKS_CHOOSE; what.step <= PD_CHUNKS_UNPACK; what.step++)
		if (finish(r, pd_submit_chunks(r->stream, &what, arm(r)), err) < 0)
			return -1;
	return 0;
}

/* From 16 bits and to them, of both types: a plan says later whether gradients travel so. */
static int mixed_sums(struct rehearsal *r, float *numbers, struct pd_error *err)
{
	for (int way = 0; way < 4; way++) {
		struct pd_mixed_sum sum = {
			.rounding = { way < 2 ? PD_BF16 : PD_F16, 1, false }, .dst = numbers,
			.src = { numbers + FLOATS / 2 }, .n = 1, .narrow = way % 2 == 0,
			.narrow_sources = (uint32_t)way % 2, .count = FLOATS / 2,
		};

		if (finish(r, pd_submit_mixed_sum(r->stream, &sum, arm(r)), err) < 0)
			return -1;
	}
	return 0;
}

static int sums(struct rehearsal *r, float *numbers, struct pd_error *err)
{
	if (chunks(r, numbers, err) < 0)
		return -1;
	/* aligned at the beginning, and then aligned to no more than a float */
	for (int skew = 0; skew <= 1; skew++) {
		const float *parts[2] = { numbers + skew, numbers + skew };

		if (finish(r, pd_submit_sum(r->stream, numbers + skew, parts, 2, FLOATS - 1,
					       arm(r)), err) < 0)
			return -1;
	}
	if (mixed_sums(r, numbers, err) < 0)
		return -1;
	/* a replica without gradients contributes zeros */
	if (finish(r, pd_submit_sum(r->stream, numbers, NULL, 0, FLOATS, arm(r)), err) < 0)
		return -1;
	return finish(r, pd_submit_copy(r->stream, numbers, numbers + FLOATS / 2,
					     FLOATS / 2 * sizeof(float), PD_COPY_WITHIN, arm(r)),
		      err);
}

static int all(struct rehearsal *r, struct pd_error *err)
{
	const struct pd_net_sizes *sizes = r->ops->net.sizes(r->net);
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
	struct pd_update update = {
		.kind = r->what->update, .weights = pass.weights, .next = (void *)pass.weights, .gradients = pass.gradients,
		.velocity = r->what->moments > 0 ? pass.gradients : NULL,
		.second = r->what->moments > 1 ? pass.gradients : NULL,
		.delta = pass.gradients, .corrected = (void *)pass.weights,
		.master = half ? take(r, sizes->full_bytes, err) : NULL,
		.norm = {
			.vector = take(r, ((size_t)layers + 1) * sizeof(double), err),
			.layers = layers, .outcome = &outcome,
			.before = pass.scale, .next = (struct pd_scale *)pass.scale,
		},
		.hyper = pd_optimizer_rows[r->what->update].defaults, .count = 1,
	};
	float *numbers = take(r, 2 * FLOATS * sizeof(float), err);

	if (!numbers)
		return -1;
	for (int i = 0; i < TIMES; i++)
		if (passes(r, pass, err) < 0 || iterations(r, &pass, update, err) < 0 ||
		    updates(r, update, (struct pd_scale *)pass.scale, err) < 0)
			return -1;
	if (sums(r, numbers, err) < 0)
		return -1;
	return r->ops->net.settle ? r->ops->net.settle(r->net, r->what->turns, err) : 0;
}

int pd_rehearse(struct pd_device *device, struct pd_net *net, const struct pd_rehearsal *what,
		struct pd_gate *gate, struct pd_error *err)
{
	struct rehearsal r = { .device = device, .ops = device->ops, .net = net, .what = what,
			       .config = what->config, .gate = gate };
	int status = -1;

	r.stream = r.ops->stream.open(device, err);
	if (r.stream) {
		status = all(&r, err);
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
	struct rehearsal r = { .device = device, .ops = device->ops, .gate = gate,
			       .stream = stream };
	float *numbers = take(&r, 2 * FLOATS * sizeof(float), err);
	int status = numbers ? sums(&r, numbers, err) : -1;

	if (numbers)
		r.ops->memory.free(device, numbers);
	return status;
}
