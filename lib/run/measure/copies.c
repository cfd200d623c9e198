/* SPDX-License-Identifier: Apache-2.0 */
/* Steps while bytes are copied, as they are while transfers come and leave. */
#include "base/processors.h"
#include "engine/device/submit.h"
#include "run/measure/bench.h"

#define COPY_BYTES ((size_t)16 << 20)
#define MOST_COPIES 128                 /* below what a stream's queue takes */

static int count_of(double step_ns, int64_t copy_ns)
{
	double count = copy_ns > 0 ? 1.5 * step_ns / (double)copy_ns + 1 : MOST_COPIES;

	return count < MOST_COPIES ? (int)count : MOST_COPIES;
}

/* Has threads that are started from now on run on processors that no worker has; false: there is none. */
static bool go_elsewhere(const struct pd_bench *b, cpu_set_t *was)
{
	int taken = b->options->threads * b->options->workers, n = 0;
	cpu_set_t elsewhere, all = b->options->all;

	CPU_ZERO(&elsewhere);
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &all) && n++ >= taken)
			CPU_SET(i, &elsewhere);
	return CPU_COUNT(&elsewhere) > 0 && sched_getaffinity(0, sizeof(*was), was) == 0 &&
	       sched_setaffinity(0, sizeof(elsewhere), &elsewhere) == 0;
}

static int open_copies(struct pd_bench *b, struct pd_error *err)
{
	const struct pd_device_ops *ops = b->device->ops;
	cpu_set_t was;

	if (!ops->separate_memory && !go_elsewhere(b, &was))
		return 0;
	b->copying = ops->stream.open(b->device, err);
	if (!ops->separate_memory)
		sched_setaffinity(0, sizeof(was), &was);
	for (int i = 0; i < 2 && b->copying; i++) {
		b->copied[i] = ops->memory.alloc(b->device, COPY_BYTES, err);
		if (!b->copied[i])
			return -1;
	}
	return b->copying ? 0 : -1;
}

static int copy(struct pd_bench *b, struct pd_event *ev, struct pd_error *err)
{
	pd_event_arm(ev);
	return pd_submit_copy(b->copying, b->copied[1], b->copied[0], COPY_BYTES, PD_COPY_WITHIN,
					   ev) == 0 ? 0 : pd_error_failed(err, "the device refused a copy");
}

int pd_bench_beside_copies(struct pd_bench *b, int64_t step_ns, int64_t *ns_p, struct pd_error *err)
{
	struct pd_event events[BENCH_WHOLE_PARTS] = { 0 }, *last = &events[BENCH_WHOLE_PARTS - 1];
	struct pd_event copies[MOST_COPIES] = { 0 };
	int count;

	*ns_p = 0;
	if (!b->copying && open_copies(b, err) < 0)
		return -1;
	if (!b->copying)
		return 0;
	if (copy(b, &copies[0], err) < 0 || pd_bench_wait(b, &copies[0], err) < 0)
		return -1;
	count = count_of((double)step_ns, copies[0].end_ns - copies[0].start_ns);
	for (int i = 0; i < count; i++)
		if (copy(b, &copies[i], err) < 0)
			return -1;
	if (pd_bench_step(b, 0, BENCH_WHOLE_PARTS, events, err) < 0 ||
	    pd_bench_wait(b, &copies[count - 1], err) < 0)
		return -1;
	if (copies[count - 1].end_ns >= last->end_ns)   /* else they were too few */
		*ns_p = last->end_ns - events[0].start_ns;
	return 0;
}
