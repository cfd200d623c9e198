/* SPDX-License-Identifier: Apache-2.0 */
#include "run/device/queue.h"

#include "base/clock.h"

#include <string.h>
#include <time.h>

/* After a failure the event may never come; closing the stream ends the wait. */
int pd_queue_await(struct pd_queue *q, const struct pd_event *ev, struct pd_error *err)
{
	const struct timespec nap = { .tv_nsec = 20000 };
	struct pd_gate *gate = q->gate;

	if (gate && !pd_event_done(ev)) {
		pthread_mutex_lock(&gate->lock);
		while (!pd_event_done(ev) && !(q->closing && atomic_load(&gate->failed)))
			pthread_cond_wait(&gate->cond, &gate->lock);
		pthread_mutex_unlock(&gate->lock);
	}
	while (!gate && !pd_event_done(ev))
		nanosleep(&nap, NULL);
	if (!pd_event_done(ev) || pd_event_failed(ev))
		return pd_error_failed(err, "the work that a stream waited for failed");
	return 0;
}

const struct pd_work *pd_queue_item(const struct pd_queue *q, int i)
{
	return &q->queue[(q->head + (size_t)i) % PD_QUEUE];
}

static void *queue_main(void *argument)
{
	struct pd_queue *q = argument;
	struct pd_error err = { 0 };
	bool broken = q->ops->begin(q, &err) < 0;

	for (;;) {
		struct pd_work *w;
		int64_t start_ns;
		bool none;
		int count;

		pthread_mutex_lock(&q->lock);
		while (q->head == q->tail && !q->quits)
			pthread_cond_wait(&q->filled, &q->lock);
		none = q->head == q->tail;
		w = &q->queue[q->head % PD_QUEUE];
		pthread_mutex_unlock(&q->lock);
		if (none)
			break;
		start_ns = pd_now_ns();
		if (!broken && q->ops->run(q, w, &err) < 0)
			broken = true;
		count = 1 + w->joined;
		for (int i = 0; i < count; i++) {
			struct pd_event *ev = pd_queue_item(q, 0)->ev;

			pthread_mutex_lock(&q->lock);
			q->head++;
			pthread_mutex_unlock(&q->lock);
			/* from here on the caller may reuse the event or close the stream */
			q->ops->done(q, ev, start_ns, broken ? &err : NULL);
		}
	}
	if (q->ops->end)
		q->ops->end(q);
	return NULL;
}

int pd_queue_submit(struct pd_stream *base, const struct pd_work *works, int n)
{
	struct pd_queue *q = (struct pd_queue *)base;
	int status = PD_AGAIN;

	pthread_mutex_lock(&q->lock);
	if (q->tail - q->head + (size_t)n <= PD_QUEUE) {
		for (int i = 0, next = 0; i < n; i++) {
			struct pd_work *w = &q->queue[q->tail++ % PD_QUEUE];

			*w = works[i];
			if (i == next)
				next += q->ops->joint ? q->ops->joint(q, &works[i], n - i) : 1;
			w->joined = next - i - 1;
		}
		pthread_cond_signal(&q->filled);
		status = 0;
	}
	pthread_mutex_unlock(&q->lock);
	return status;
}

int pd_queue_open(struct pd_queue *q, struct pd_device *device, struct pd_gate *gate,
		  const struct pd_queue_ops *ops, struct pd_error *err)
{
	int status;

	q->base.device = device;
	q->ops = ops;
	q->gate = gate;
	pthread_mutex_init(&q->lock, NULL);
	pthread_cond_init(&q->filled, NULL);
	status = pthread_create(&q->thread, NULL, queue_main, q);
	if (status == 0)
		return 0;
	pthread_cond_destroy(&q->filled);
	pthread_mutex_destroy(&q->lock);
	return pd_error_failed(err, "a stream's thread: %s", strerror(status));
}

void pd_queue_close(struct pd_queue *q)
{
	struct pd_gate *gate = q->gate;

	if (gate) {
		pthread_mutex_lock(&gate->lock);
		q->closing = true;
		pthread_cond_broadcast(&gate->cond);
		pthread_mutex_unlock(&gate->lock);
	}
	pthread_mutex_lock(&q->lock);
	q->quits = true;
	pthread_cond_signal(&q->filled);
	pthread_mutex_unlock(&q->lock);
	pthread_join(q->thread, NULL);
	pthread_cond_destroy(&q->filled);
	pthread_mutex_destroy(&q->lock);
}
