/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of what a device does besides layers: streams, elementwise work, named tensors. */
#include "engine/device/submit.h"
#include "stream.h"
#include "tap.h"

#include "base/mem.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void test_order(const struct pd_device_ops *ops, struct chain *c)
{
	struct pd_stream *other = ops->stream.open(c->device, NULL);
	float host[4] = { 1, 2, 3, 4 }, back[4] = { 0 };
	struct pd_event go, copied, done;
	float *device;

	device = ops->memory.alloc(c->device, sizeof(host), NULL);
	pd_event_arm(&go);
	pd_event_arm(&copied);
	pd_event_arm(&done);
	pd_submit_wait(c->stream, &go);
	pd_submit_copy(c->stream, device, host, sizeof(host), PD_COPY_TO_DEVICE, &copied);
	pd_submit_wait(other, &copied);
	pd_submit_copy(other, back, device, sizeof(back), PD_COPY_TO_HOST, &done);
	usleep(20000);
	ok(!pd_event_done(&copied) && !pd_event_done(&done), "%s: a stream waits for an event",
	   ops->name);
	pd_event_complete(&go, 5, 6, &c->gate);
	pd_event_wait(&done, &c->gate);
	pd_event_wait(&copied, &c->gate);       /* the host may learn of it after `done` */
	ok(memcmp(host, back, sizeof(host)) == 0, "%s: and another for its work", ops->name);
	ok(copied.start_ns > 0 && copied.start_ns <= copied.end_ns &&
	   (chain_untimed || copied.end_ns <= done.end_ns), "%s: work is stamped", ops->name);
	ops->stream.close(other);
	ops->memory.free(c->device, device);
}

static void test_full(const struct pd_device_ops *ops, struct chain *c)
{
	char *device = ops->memory.alloc(c->device, 2, NULL), host[2] = { 1, 0 };
	struct pd_event go, done;
	int put = 0, status = 0;

	pd_event_arm(&go);
	pd_submit_wait(c->stream, &go);
	pd_submit_copy(c->stream, device, host, 2, PD_COPY_TO_DEVICE, NULL);
	while (put < 100000 && status == 0) {
		status = pd_submit_copy(c->stream, device + 1, device, 1, PD_COPY_WITHIN, NULL);
		put += status == 0;
	}
	ok(put == 100000 || (status == PD_AGAIN && put >= 100),
	   "%s: a full queue says so (%d fit)", ops->name, put);
	pd_event_complete(&go, 0, 0, &c->gate);
	do {
		pd_event_arm(&done);
		status = pd_submit_copy(c->stream, host, device, 2, PD_COPY_TO_HOST, &done);
	} while (status == PD_AGAIN);
	pd_event_wait(&done, &c->gate);
	ok(status == 0 && host[1] == 1, "%s: and takes more later", ops->name);
	ops->memory.free(c->device, device);
}

struct called {
	int posted, checked;
	bool refuses;
};

static int post_it(void *context, void *native, struct pd_error *err)
{
	struct called *called = context;

	called->posted++;
	return 0;
}

static int check_it(void *context, struct pd_error *err)
{
	struct called *called = context;

	called->checked = called->posted;
	return called->refuses ? pd_error_failed(err, "it did not go well") : 0;
}

/* Tests calls of other libraries' work that take their turn in a stream. */
static void test_call(const struct pd_device_ops *ops, struct chain *c)
{
	struct pd_stream *other = ops->stream.open(c->device, NULL);
	struct called called = { 0 };
	const struct pd_call call = { .post = post_it, .check = check_it, .context = &called };
	struct pd_event go, done, bad;

	pd_event_arm(&go);
	pd_event_arm(&done);
	pd_submit_wait(other, &go);
	pd_submit_call(other, &call, NULL);
	pd_submit_call(other, &call, &done);
	usleep(20000);
	ok(!pd_event_done(&done), "%s: a call waits for its turn", ops->name);
	pd_event_complete(&go, 5, 6, &c->gate);
	pd_event_wait(&done, &c->gate);
	ok(called.posted == 2 && called.checked == 2 && !pd_event_failed(&done) &&
	   done.start_ns <= done.end_ns, "%s: and is made and checked", ops->name);
	called.refuses = true;
	pd_event_arm(&bad);
	pd_submit_call(other, &call, &bad);
	pd_event_wait(&bad, &c->gate);
	ok(pd_event_failed(&bad) && strstr(c->gate.err.text, "did not go well"),
	   "%s: one that went wrong fails", ops->name);
	ops->stream.close(other);
}

/* Only the emulated GPU (contrib/emulate-cuda.sh) defines this. */
extern void emulated_hold(void *native) __attribute__((weak));

static int note_native(void *context, void *native, struct pd_error *err)
{
	*(void **)context = native;
	return 0;
}

static int nothing_wrong(void *context, struct pd_error *err)
{
	return 0;
}

/* Tests that work which waits on the GPU, as a transfer may, holds up no event of another stream. */
static void test_held(const struct pd_device_ops *ops, struct chain *c)
{
	struct pd_stream *waits = ops->stream.open(c->device, NULL);
	void *native = NULL;
	const struct pd_call call = { .post = note_native, .check = nothing_wrong,
				      .context = &native };
	char *device = ops->memory.alloc(c->device, 2, NULL);
	struct pd_event first, second, other;

	if (!emulated_hold || strcmp(ops->name, "cuda") != 0) {
		skip("this device has no stream that can be held", "one stream waits");
	} else {
		pd_event_arm(&first);
		pd_submit_call(waits, &call, &first);
		pd_event_wait(&first, &c->gate);
		emulated_hold(native);
		pd_event_arm(&second);
		pd_submit_copy(waits, device, device + 1, 1, PD_COPY_WITHIN, &second);
		for (int i = 0; i < 300; i++) {
			pd_event_arm(&other);
			pd_submit_copy(c->stream, device, device + 1, 1, PD_COPY_WITHIN, &other);
			pd_event_wait(&other, &c->gate);
		}
		ok(!pd_event_done(&second), "%s: one stream waits, another goes on", ops->name);
		emulated_hold(NULL);
		pd_event_wait(&second, &c->gate);
		ok(!pd_event_failed(&second), "%s: and the first in the end, too", ops->name);
	}
	ops->stream.close(waits);
	ops->memory.free(c->device, device);
}

static int count_threads(void)
{
	DIR *tasks = opendir("/proc/self/task");
	int count = 0;

	while (tasks && readdir(tasks))
		count++;
	if (tasks)
		closedir(tasks);
	return count;
}

/* Tests that a device has one thread for each stream. */
static void test_threads(const struct pd_device_ops *ops, struct chain *c)
{
	struct pd_stream *streams[8];
	int before = count_threads();

	for (size_t i = 0; i < PD_COUNT(streams); i++)
		streams[i] = ops->stream.open(c->device, NULL);
	is_int(count_threads() - before, (int)PD_COUNT(streams), "%s: threads of %zu streams",
	       ops->name, PD_COUNT(streams));
	for (size_t i = 0; i < PD_COUNT(streams); i++)
		ops->stream.close(streams[i]);
}

/* Tests failures; no test comes after it, since the stream is of no more use. */
static void test_failure(const struct pd_device_ops *ops, struct chain *c)
{
	int64_t n = c->batch * pd_shape_elements(&c->model->inputs[0].shape);
	float *x = pd_calloc((size_t)n, sizeof(*x));
	int32_t y[3] = { 0, 10, 1 };
	struct pd_event ev, never;
	struct pd_stream *other;

	chain_load(c, x, y);
	ok(!chain_forward(c) && strstr(c->gate.err.text, "label 10"),
	   "%s: a label that is none fails the event: %s", ops->name, c->gate.err.text);
	pd_event_arm(&ev);
	pd_submit_copy(c->stream, x, x, 4, PD_COPY_WITHIN, &ev);
	pd_event_wait(&ev, &c->gate);
	ok(pd_event_failed(&ev), "%s: and all that follows", ops->name);
	pd_event_arm(&never);
	pd_event_arm(&ev);
	other = ops->stream.open(c->device, NULL);
	pd_submit_wait(other, &never);
	pd_submit_copy(other, x, x, 4, PD_COPY_WITHIN, &ev);
	ops->stream.close(other);
	ok(pd_event_failed(&ev), "%s: closing a stream then does not wait for what never comes",
	   ops->name);
	free(x);
}

static void test_device(const struct pd_device_ops *ops)
{
	struct pd_model *model = branching_model();
	struct chain *c = chain_open(ops, model, NULL, 0, 3, 17, 2);
	float *x = pd_calloc(3 * 3 * 64, sizeof(*x));
	int32_t y[3] = { 1, 2, 3 };

	for (int i = 0; i < 3 * 3 * 64; i++)
		x[i] = sinf((float)i);
	chain_load(c, x, y);
	test_init(ops, c);
	test_normal_init(ops);
	test_order(ops, c);
	test_full(ops, c);
	test_mixed_sum(ops, c);
	test_sum(ops, c);
	test_named(ops, c);
	chain_close(c);
	c = chain_open(ops, model, NULL, 0, 3, 17, 2);
	chain_load(c, x, y);
	test_sgd(ops, c, 0.9f);
	test_sgd(ops, c, 0);
	test_sgd_range(ops, c);
	test_squares(ops, c);
	test_agreed(ops, c, false);
	test_agreed(ops, c, true);
	chain_close(c);
	for (int lars = 0; lars <= 2; lars++) {
		c = chain_open(ops, model, NULL, 0, 3, 17, 2);
		chain_load(c, x, y);
		test_by_tensor(ops, c, lars ? PD_LARS : PD_SGD, lars == 2);
		chain_close(c);
	}
	for (int kind = 0; kind < PD_OPTIMIZER_KINDS; kind++) {
		if (pd_optimizer_is((enum pd_optimizer_kind)kind, PD_OPTIMIZER_NORMS))
			continue;       /* they are test_by_tensor's */
		c = chain_open(ops, model, NULL, 0, 3, 17, 2);
		chain_load(c, x, y);
		test_formula(ops, c, (enum pd_optimizer_kind)kind);
		test_extremes(ops, c, (enum pd_optimizer_kind)kind);
		chain_close(c);
	}
	c = chain_open(ops, model, NULL, 0, 3, 17, 2);
	test_held(ops, c);
	test_threads(ops, c);
	test_call(ops, c);
	chain_close(c);
	chain_untimed = true;
	c = chain_open(ops, model, NULL, 0, 3, 17, 2);
	test_order(ops, c);
	test_held(ops, c);
	test_call(ops, c);
	chain_close(c);
	chain_untimed = false;
	c = chain_open(ops, model, NULL, 0, 3, 17, 2);
	chain_load(c, x, y);
	test_failure(ops, c);
	chain_close(c);
	free(x);
	pd_model_free(model);
}

int main(void)
{
	alarm(600);     /* ends waits that would never end; compute-sanitizer is slow */
	for (int i = 0; pd_devices[i]; i++)
		if (chain_usable(pd_devices[i]))
			test_device(pd_devices[i]);
	return done_testing();
}
