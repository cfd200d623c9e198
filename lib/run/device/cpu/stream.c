/* SPDX-License-Identifier: Apache-2.0 */
/* A CPU stream's thread does the work itself. */
#include "base/clock.h"
#include "base/mem.h"
#include "run/device/cpu/cpu.h"
#include "run/device/queue.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

/*
 * Arithmetic with denormal numbers takes a hundred times as long, and vanishing gradients become
 * denormal.  They are flushed to zero, as on GPUs and in PyTorch's loops.  OpenMP's threads inherit
 * this setting from the thread that starts them.
 */
static void flush_denormals(void)
{
#ifdef __x86_64__
	_mm_setcsr(_mm_getcsr() | 0x8040);
#endif
}

static int begin(struct pd_queue *q, struct pd_error *err)
{
	flush_denormals();
	omp_set_num_threads(((struct pd_cpu_device *)q->base.device)->threads);
	return 0;
}

static int run(struct pd_queue *q, const struct pd_work *w, struct pd_error *err)
{
	struct pd_compiled *net = (struct pd_compiled *)w->net;

	switch (w->kind) {
	case PD_WORK_WAIT:
		return pd_queue_await(q, w->awaited, err);
	case PD_WORK_FORWARD:
		return pd_compiled_forward(net, &w->pass, w->from, w->count, err);
	case PD_WORK_BACKWARD:
		return pd_compiled_backward(net, &w->pass, w->from, w->count, err);
	case PD_WORK_UPDATE:
		pd_cpu_update(net, &w->update, w->from, w->count);
		return 0;
	case PD_WORK_SUM:
		pd_cpu_sum(w->sum.dst, w->sum.src, w->sum.n, w->sum.count);
		return 0;
	case PD_WORK_SUM_ALL:
		pd_cpu_sum_all(w->sum_all.arrays, w->sum_all.n, w->sum_all.count);
		return 0;
	case PD_WORK_MIXED_SUM:
		pd_cpu_mixed_sum(&w->mixed_sum);
		return 0;
	case PD_WORK_SQUARES:
		pd_cpu_squares(net, &w->squares);
		return 0;
	case PD_WORK_UNITE:
		pd_cpu_unite(w->unite.vector, w->unite.other, w->unite.count);
		return 0;
	case PD_WORK_CHUNKS:
		pd_cpu_chunks(&w->chunks);
		return 0;
	case PD_WORK_COPY:
		if (w->copy.bytes > 0)
			memmove(w->copy.dst, w->copy.src, w->copy.bytes);
		return 0;
	case PD_WORK_CALL:
		return w->call.post(w->call.context, NULL, err) < 0 ||
		       w->call.check(w->call.context, err) < 0 ? -1 : 0;
	case PD_WORK_KINDS:
		break;
	}
	return 0;
}

static void done(struct pd_queue *q, struct pd_event *ev, int64_t start_ns,
		 const struct pd_error *why)
{
	if (ev && why)
		pd_event_fail(ev, why, q->gate);
	else if (ev)
		pd_event_complete(ev, start_ns, pd_now_ns(), q->gate);
}

static const struct pd_queue_ops queue_ops = { .begin = begin, .run = run, .done = done };

struct pd_stream *pd_cpu_stream_open(struct pd_device *device, struct pd_error *err)
{
	struct pd_queue *q = pd_zalloc(sizeof(*q));

	if (pd_queue_open(q, device, ((struct pd_cpu_device *)device)->gate, &queue_ops, err) == 0)
		return &q->base;
	free(q);
	return NULL;
}

void pd_cpu_stream_close(struct pd_stream *stream)
{
	if (!stream)
		return;
	pd_queue_close((struct pd_queue *)stream);
	free(stream);
}
