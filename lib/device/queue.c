/* SPDX-License-Identifier: Apache-2.0 */
#include "device/queue.h"

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
		int count;

		pthread_mutex_lock(&q->lock);
		while (q->head == q->tail)
			pthread_cond_wait(&q->filled, &q->lock);
		w = &q->queue[q->head % PD_QUEUE];
		pthread_mutex_unlock(&q->lock);
		if (w->kind == PD_WORK_QUIT)
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

/* Queues all of the works, or none. */
static int put_all(struct pd_stream *base, const struct pd_work *works, size_t count)
{
	struct pd_queue *q = (struct pd_queue *)base;
	int status = PD_AGAIN;

	pthread_mutex_lock(&q->lock);
	/* one entry is kept free for PD_WORK_QUIT */
	if (q->tail - q->head + count <=
	    (works->kind == PD_WORK_QUIT ? PD_QUEUE : PD_QUEUE - 1)) {
		for (size_t i = 0; i < count; i++)
			q->queue[q->tail++ % PD_QUEUE] = works[i];
		pthread_cond_signal(&q->filled);
		status = 0;
	}
	pthread_mutex_unlock(&q->lock);
	return status;
}

static int put(struct pd_stream *base, const struct pd_work *work)
{
	return put_all(base, work, 1);
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
	put(&q->base, &(struct pd_work){ .kind = PD_WORK_QUIT });
	pthread_join(q->thread, NULL);
	pthread_cond_destroy(&q->filled);
	pthread_mutex_destroy(&q->lock);
}

int pd_queue_wait(struct pd_stream *stream, struct pd_event *ev)
{
	return put(stream, &(struct pd_work){ .kind = PD_WORK_WAIT, .awaited = ev });
}

int pd_queue_forward(struct pd_stream *stream, struct pd_net *net, const struct pd_pass *pass,
			 int from, int count, struct pd_event *ev)
{
	return put(stream, &(struct pd_work){ .kind = PD_WORK_FORWARD, .ev = ev, .pass = *pass,
		   .net = net, .from = from, .count = count });
}

int pd_queue_backward(struct pd_stream *stream, struct pd_net *net, const struct pd_pass *pass,
			  int from, int count, struct pd_event *ev)
{
	return put(stream, &(struct pd_work){ .kind = PD_WORK_BACKWARD, .ev = ev, .pass = *pass,
		   .net = net, .from = from, .count = count });
}

int pd_queue_update(struct pd_stream *stream, struct pd_net *net,
			const struct pd_update *update, int from, int count, struct pd_event *ev)
{
	return put(stream, &(struct pd_work){ .kind = PD_WORK_UPDATE, .ev = ev, .update = *update,
		   .net = net, .from = from, .count = count });
}

int pd_queue_iterate(struct pd_stream *stream, struct pd_net *net,
		     const struct pd_iteration *it, int from, int count, bool join)
{
	struct pd_work works[3];
	size_t n = 0;

	if (it->update)
		works[n++] = (struct pd_work){ .kind = PD_WORK_UPDATE, .ev = it->updated,
					       .update = *it->update };
	works[n++] = (struct pd_work){ .kind = PD_WORK_FORWARD, .ev = it->forwarded,
				       .pass = *it->pass };
	works[n++] = (struct pd_work){ .kind = PD_WORK_BACKWARD, .ev = it->ended,
				       .pass = *it->pass };
	for (size_t i = 0; i < n; i++) {
		works[i].net = net;
		works[i].from = from;
		works[i].count = count;
	}
	works[0].joined = join ? (int)n - 1 : 0;
	return put_all(stream, works, n);
}

int pd_queue_sum(struct pd_stream *stream, float *dst, const float *const *src, int n,
		     size_t count, struct pd_event *ev)
{
	struct pd_work w = { .kind = PD_WORK_SUM, .ev = ev,
			     .sum = { .dst = dst, .n = n, .count = count } };

	if (n > PD_SUM_SOURCES)
		return -1;
	for (int i = 0; i < n; i++)
		w.sum.src[i] = src[i];
	return put(stream, &w);
}

int pd_queue_sum_all(struct pd_stream *stream, float *const *arrays, int n, size_t count,
		     struct pd_event *ev)
{
	struct pd_work w = { .kind = PD_WORK_SUM_ALL, .ev = ev,
			     .sum_all = { .n = n, .count = count } };

	if (n > PD_SUM_SOURCES)
		return -1;
	for (int i = 0; i < n; i++)
		w.sum_all.arrays[i] = arrays[i];
	return put(stream, &w);
}

int pd_queue_mixed_sum(struct pd_stream *stream, const struct pd_mixed_sum *sum, struct pd_event *ev)
{
	return put(stream, &(struct pd_work){ .kind = PD_WORK_MIXED_SUM, .ev = ev, .mixed_sum = *sum });
}

int pd_queue_squares(struct pd_stream *stream, struct pd_net *net, const struct pd_squares *what,
		     struct pd_event *ev)
{
	return put(stream, &(struct pd_work){ .kind = PD_WORK_SQUARES, .ev = ev, .net = net,
		   .squares = *what });
}

int pd_queue_unite(struct pd_stream *stream, double *vector, const double *other, size_t count,
		   struct pd_event *ev)
{
	return put(stream, &(struct pd_work){ .kind = PD_WORK_UNITE, .ev = ev,
		   .unite = { .vector = vector, .other = other, .count = count } });
}

int pd_queue_chunks(struct pd_stream *stream, const struct pd_chunks *what, struct pd_event *ev)
{
	return put(stream, &(struct pd_work){ .kind = PD_WORK_CHUNKS, .ev = ev, .chunks = *what });
}

int pd_queue_copy(struct pd_stream *stream, void *dst, const void *src, size_t bytes,
		      enum pd_copy way, struct pd_event *ev)
{
	return put(stream, &(struct pd_work){ .kind = PD_WORK_COPY, .ev = ev,
		   .copy = { .dst = dst, .src = src, .bytes = bytes, .way = way } });
}

int pd_queue_call(struct pd_stream *stream, const struct pd_call *call, struct pd_event *ev)
{
	return put(stream, &(struct pd_work){ .kind = PD_WORK_CALL, .ev = ev, .call = *call });
}
