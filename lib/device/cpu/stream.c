/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stream is a thread with a bounded queue.  After a failure nothing more is computed:
 * whatever follows would work on rubbish, and its events fail with the same reason.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "device/cpu/cpu.h"

#include <omp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#define QUEUE 256

enum work_kind { WAIT, FORWARD, BACKWARD, UPDATE, SUM, COPY, QUIT };

struct work {
	enum work_kind kind;
	struct pd_event *ev;
	struct pd_cpu_net *net;
	int from, count;
	union {
		struct pd_event *awaited;
		struct pd_pass pass;
		struct pd_update update;
		struct {
			float *dst;
			const float *src[PD_SUM_SOURCES];
			int n;
			size_t count;
		} sum;
		struct {
			void *dst;
			const void *src;
			size_t bytes;
		} copy;
	};
};

struct cpu_stream {
	struct pd_stream base;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t filled;
	struct work queue[QUEUE];
	size_t head, tail;              /* head: next to run; both only grow */
	bool closing;                   /* under the gate's lock, where there is one */
};

/*
 * Numbers near the smallest float cost a hundred times as much; gradients that vanish reach
 * them.  They are taken as zero, as GPUs and PyTorch's loops do.  OpenMP's threads inherit
 * this from the one that starts them.
 */
static void flush_denormals(void)
{
#ifdef __x86_64__
	_mm_setcsr(_mm_getcsr() | 0x8040);
#endif
}

/* Once something has failed, the event may never come: closing the stream ends the wait. */
static int await(const struct cpu_stream *s, const struct pd_event *ev, struct pd_gate *gate,
		 struct pd_error *err)
{
	const struct timespec nap = { .tv_nsec = 20000 };

	if (gate && !pd_event_done(ev)) {
		pthread_mutex_lock(&gate->lock);
		while (!pd_event_done(ev) && !(s->closing && atomic_load(&gate->failed)))
			pthread_cond_wait(&gate->cond, &gate->lock);
		pthread_mutex_unlock(&gate->lock);
	}
	while (!gate && !pd_event_done(ev))
		nanosleep(&nap, NULL);
	if (!pd_event_done(ev) || pd_event_failed(ev))
		return pd_error_failed(err, "the work that a stream waited for failed");
	return 0;
}

static int run(const struct cpu_stream *s, const struct work *w, struct pd_gate *gate,
	       struct pd_error *err)
{
	switch (w->kind) {
	case WAIT:
		return await(s, w->awaited, gate, err);
	case FORWARD:
		return pd_cpu_forward(w->net, &w->pass, w->from, w->count, err);
	case BACKWARD:
		return pd_cpu_backward(w->net, &w->pass, w->from, w->count, err);
	case UPDATE:
		pd_cpu_update(w->net, &w->update, w->from, w->count);
		return 0;
	case SUM:
		pd_cpu_sum(w->sum.dst, w->sum.src, w->sum.n, w->sum.count);
		return 0;
	case COPY:
		memmove(w->copy.dst, w->copy.src, w->copy.bytes);
		return 0;
	case QUIT:
		break;
	}
	return 0;
}

static void *stream_main(void *argument)
{
	struct cpu_stream *s = argument;
	struct pd_cpu_device *cpu = (struct pd_cpu_device *)s->base.device;
	struct pd_error err = { 0 };
	bool broken = false;

	flush_denormals();
	omp_set_num_threads(cpu->threads);
	for (;;) {
		struct work *w;
		struct pd_event *ev;
		int64_t start_ns;

		pthread_mutex_lock(&s->lock);
		while (s->head == s->tail)
			pthread_cond_wait(&s->filled, &s->lock);
		w = &s->queue[s->head % QUEUE];
		pthread_mutex_unlock(&s->lock);
		if (w->kind == QUIT)
			return NULL;
		start_ns = pd_now_ns();
		if (!broken && run(s, w, cpu->gate, &err) < 0)
			broken = true;
		ev = w->ev;
		pthread_mutex_lock(&s->lock);
		s->head++;
		pthread_mutex_unlock(&s->lock);
		/* the caller may reuse the event, or close the stream, from here on */
		if (ev && broken)
			pd_event_fail(ev, &err, cpu->gate);
		else if (ev)
			pd_event_complete(ev, start_ns, pd_now_ns(), cpu->gate);
	}
}

static int put(struct pd_stream *base, const struct work *work)
{
	struct cpu_stream *s = (struct cpu_stream *)base;
	int status = PD_AGAIN;

	pthread_mutex_lock(&s->lock);
	/* one place is kept for QUIT */
	if (s->tail - s->head < (work->kind == QUIT ? QUEUE : QUEUE - 1)) {
		s->queue[s->tail++ % QUEUE] = *work;
		pthread_cond_signal(&s->filled);
		status = 0;
	}
	pthread_mutex_unlock(&s->lock);
	return status;
}

struct pd_stream *pd_cpu_stream_open(struct pd_device *device, struct pd_error *err)
{
	struct cpu_stream *s = pd_zalloc(sizeof(*s));
	int status;

	s->base.device = device;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->filled, NULL);
	status = pthread_create(&s->thread, NULL, stream_main, s);
	if (status == 0)
		return &s->base;
	pd_error_failed(err, "a stream's thread: %s", strerror(status));
	pthread_cond_destroy(&s->filled);
	pthread_mutex_destroy(&s->lock);
	free(s);
	return NULL;
}

void pd_cpu_stream_close(struct pd_stream *base)
{
	struct cpu_stream *s = (struct cpu_stream *)base;
	struct pd_gate *gate;

	if (!s)
		return;
	gate = ((struct pd_cpu_device *)base->device)->gate;
	if (gate) {
		pthread_mutex_lock(&gate->lock);
		s->closing = true;
		pthread_cond_broadcast(&gate->cond);
		pthread_mutex_unlock(&gate->lock);
	}
	put(base, &(struct work){ .kind = QUIT });
	pthread_join(s->thread, NULL);
	pthread_cond_destroy(&s->filled);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

int pd_cpu_queue_wait(struct pd_stream *stream, struct pd_event *ev)
{
	return put(stream, &(struct work){ .kind = WAIT, .awaited = ev });
}

int pd_cpu_queue_forward(struct pd_stream *stream, struct pd_net *net, const struct pd_pass *pass,
			 int from, int count, struct pd_event *ev)
{
	return put(stream, &(struct work){ .kind = FORWARD, .ev = ev, .pass = *pass,
		   .net = (struct pd_cpu_net *)net, .from = from, .count = count });
}

int pd_cpu_queue_backward(struct pd_stream *stream, struct pd_net *net, const struct pd_pass *pass,
			  int from, int count, struct pd_event *ev)
{
	return put(stream, &(struct work){ .kind = BACKWARD, .ev = ev, .pass = *pass,
		   .net = (struct pd_cpu_net *)net, .from = from, .count = count });
}

int pd_cpu_queue_update(struct pd_stream *stream, struct pd_net *net,
			const struct pd_update *update, int from, int count, struct pd_event *ev)
{
	return put(stream, &(struct work){ .kind = UPDATE, .ev = ev, .update = *update,
		   .net = (struct pd_cpu_net *)net, .from = from, .count = count });
}

int pd_cpu_queue_sum(struct pd_stream *stream, float *dst, const float *const *src, int n,
		     size_t count, struct pd_event *ev)
{
	struct work w = { .kind = SUM, .ev = ev, .sum = { .dst = dst, .n = n, .count = count } };

	if (n > PD_SUM_SOURCES)
		return -1;
	for (int i = 0; i < n; i++)
		w.sum.src[i] = src[i];
	return put(stream, &w);
}

int pd_cpu_queue_copy(struct pd_stream *stream, void *dst, const void *src, size_t bytes,
		      enum pd_copy way, struct pd_event *ev)
{
	return put(stream, &(struct work){ .kind = COPY, .ev = ev,
		   .copy = { .dst = dst, .src = src, .bytes = bytes } });
}
