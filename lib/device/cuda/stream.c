/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stream: the queue's thread puts work on a CUDA stream and goes on; a second thread sleeps
 * until the oldest of it is done and completes its event, with times that the GPU took.
 *
 * Work in flight is in a ring: the queue's thread writes at the tail, the second reads at the
 * head.  The device's lock guards both numbers, so that a stream that is told to wait for an
 * event of another stream's can look for it there, and wait on the GPU instead of here.
 */
#include "device/cuda/cuda.h"

#include "base/clock.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FLIGHTS 256
#define ANCHOR_NS INT64_C(1000000000)

struct flight {
	cudaEvent_t start, end;         /* CUDA's, used again and again */
	struct pd_event *ev;            /* may be NULL */
	struct pd_loss *loss;           /* where the caller wants it, or NULL */
	const struct pd_compiled_layer *loss_layer;     /* NULL: this work made no loss */
	int64_t valid;
	struct pd_outcome *outcome;     /* of an update, where the caller wants it, or NULL */
};

/* What the GPU says of a piece of work, in pinned memory. */
struct said {
	struct pd_kernel_loss loss;
	struct pd_outcome outcome;
};

/* The stream's own device memory: of one piece of work, until the next. */
struct scrap {
	struct pd_kernel_choice choice;
	double room[PD_KERNEL_PIECES];
};

struct pd_cuda_stream {
	struct pd_queue queue;
	struct pd_cuda_stream *next;    /* the device's list */
	cudaStream_t stream;
	pthread_t thread;
	pthread_cond_t moved;           /* head, tail or closing has; the device's lock */
	struct flight flights[FLIGHTS];
	struct said *said;              /* by flight */
	struct scrap *scrap;
	size_t head, tail;              /* both only grow */
	bool closing;
	struct flight *current;         /* what is being put on the CUDA stream, or NULL */
	bool broken;                    /* with the device's lock: why */
	struct pd_error why;
	/* of the second thread: */
	struct pd_cuda_clock clock;
	int64_t last_ns;
};

static struct pd_cuda_device *device_of(const struct pd_cuda_stream *s)
{
	return (struct pd_cuda_device *)s->queue.base.device;
}

/* ---- the queue's thread ---- */

/* The place for one more piece of work; waits while as many are in flight as can be. */
static struct flight *take_flight(struct pd_cuda_stream *s)
{
	struct pd_cuda_device *cuda = device_of(s);
	struct flight *f;

	pthread_mutex_lock(&cuda->lock);
	while (s->tail - s->head == FLIGHTS)
		pthread_cond_wait(&s->moved, &cuda->lock);
	f = &s->flights[s->tail % FLIGHTS];
	pthread_mutex_unlock(&cuda->lock);
	f->ev = NULL;
	f->loss = NULL;
	f->loss_layer = NULL;
	f->outcome = NULL;
	return f;
}

/* What the second thread has found wrong ends the queue's, too. */
static int check_broken(struct pd_cuda_stream *s, struct pd_error *err)
{
	struct pd_cuda_device *cuda = device_of(s);
	bool broken;

	pthread_mutex_lock(&cuda->lock);
	broken = s->broken;
	if (broken)
		*err = s->why;
	pthread_mutex_unlock(&cuda->lock);
	return broken ? -1 : 0;
}

/*
 * Is that the event of work in flight on a stream of this device?  Then the GPU does the
 * waiting.  1 yes, 0 no; called with the lock, without which the CUDA event might be
 * another's before long.
 */
static int wait_there(struct pd_cuda_stream *s, const struct pd_event *ev, struct pd_error *err)
{
	for (struct pd_cuda_stream *other = device_of(s)->streams; other; other = other->next)
		for (size_t i = other->head; i != other->tail; i++) {
			struct flight *f = &other->flights[i % FLIGHTS];

			if (f->ev != ev)
				continue;
			if (other == s)
				return 1;       /* behind it already */
			return pd_cuda_check(cudaStreamWaitEvent(s->stream, f->end, 0),
					     "waiting for an event", err) < 0 ? -1 : 1;
		}
	return 0;
}

static int wait_for(struct pd_cuda_stream *s, const struct pd_event *ev, struct pd_error *err)
{
	struct pd_cuda_device *cuda = device_of(s);
	int verdict;

	pthread_mutex_lock(&cuda->lock);
	verdict = wait_there(s, ev, err);
	pthread_mutex_unlock(&cuda->lock);
	return verdict != 0 ? verdict : pd_queue_await(&s->queue, ev, err);
}

static int sum(struct pd_cuda_stream *s, const struct pd_work *w, struct pd_error *err)
{
	cudaError_t status = w->sum.count == 0 ? cudaSuccess : w->sum.n == 0
		? cudaMemsetAsync(w->sum.dst, 0, w->sum.count * sizeof(float), s->stream)
		: pd_kernel_sum(s->stream, w->sum.dst, w->sum.src, w->sum.n, w->sum.count);

	return pd_cuda_check(status, "a sum", err);
}

static int copy(struct pd_cuda_stream *s, const struct pd_work *w, struct pd_error *err)
{
	static const enum cudaMemcpyKind kinds[] = {
		[PD_COPY_TO_DEVICE] = cudaMemcpyHostToDevice,
		[PD_COPY_TO_HOST] = cudaMemcpyDeviceToHost,
		[PD_COPY_WITHIN] = cudaMemcpyDeviceToDevice,
	};

	if (w->copy.bytes == 0)
		return 0;
	return pd_cuda_check(cudaMemcpyAsync(w->copy.dst, w->copy.src, w->copy.bytes,
					     kinds[w->copy.way], s->stream), "a copy", err);
}

static int pass(struct pd_cuda_stream *s, const struct pd_work *w, struct pd_error *err)
{
	struct pd_compiled *net = (struct pd_compiled *)w->net;
	struct pd_cuda_engine *engine = net->engine;
	struct flight *f = s->current;
	int status;

	if (engine->stream != s->stream &&
	    pd_cudnn_check(cudnnSetStream(engine->dnn, s->stream), "a stream", err) < 0)
		return -1;
	engine->stream = s->stream;
	engine->loss = &s->said[f - s->flights].loss;
	engine->loss_layer = NULL;
	status = w->kind == PD_WORK_FORWARD
		? pd_compiled_forward(net, &w->pass, w->from, w->count, err)
		: pd_compiled_backward(net, &w->pass, w->from, w->count, err);
	f->loss = w->pass.loss;
	f->loss_layer = engine->loss_layer;
	f->valid = w->pass.valid;
	return status;
}

static int update(struct pd_cuda_stream *s, const struct pd_work *w, struct pd_error *err)
{
	struct flight *f = s->current;

	if (w->update.agreed.vector)
		f->outcome = w->update.agreed.outcome;
	return pd_cuda_update(s->stream, (struct pd_compiled *)w->net, &w->update, w->from,
			      w->count, &s->scrap->choice, &s->said[f - s->flights].outcome, err);
}

static int begin(struct pd_queue *q, struct pd_error *err)
{
	struct pd_cuda_stream *s = (struct pd_cuda_stream *)q;

	return pd_cuda_check(cudaSetDevice(device_of(s)->number), "its device", err);
}

static int run(struct pd_queue *q, const struct pd_work *w, struct pd_error *err)
{
	struct pd_cuda_stream *s = (struct pd_cuda_stream *)q;

	s->current = NULL;
	if (check_broken(s, err) < 0)
		return -1;
	if (w->kind == PD_WORK_WAIT)
		return wait_for(s, w->awaited, err) < 0 ? -1 : 0;
	s->current = take_flight(s);
	if (pd_cuda_check(cudaEventRecord(s->current->start, s->stream), "an event", err) < 0)
		return -1;
	switch (w->kind) {
	case PD_WORK_FORWARD:
	case PD_WORK_BACKWARD:
		return pass(s, w, err);
	case PD_WORK_UPDATE:
		return update(s, w, err);
	case PD_WORK_SQUARES:
		return pd_cuda_squares(s->stream, (struct pd_compiled *)w->net, &w->squares,
				       s->scrap->room, err);
	case PD_WORK_UNITE:
		return pd_cuda_check(pd_kernel_unite(s->stream, w->unite.vector, w->unite.other,
						     w->unite.count), "uniting vectors", err);
	case PD_WORK_SUM:
		return sum(s, w, err);
	case PD_WORK_COPY:
		return copy(s, w, err);
	default:
		return 0;
	}
}

static void fail(struct pd_cuda_stream *s, const struct pd_error *why)
{
	struct pd_cuda_device *cuda = device_of(s);

	pthread_mutex_lock(&cuda->lock);
	if (!s->broken)
		s->why = *why;
	s->broken = true;
	pthread_mutex_unlock(&cuda->lock);
}

static void done(struct pd_queue *q, struct pd_event *ev, int64_t start_ns,
		 const struct pd_error *why)
{
	struct pd_cuda_stream *s = (struct pd_cuda_stream *)q;
	struct pd_cuda_device *cuda = device_of(s);
	struct flight *f = s->current;
	struct pd_error err;

	if (!why && !f)         /* a wait: nothing follows from it but what is behind */
		return;
	if (!why && pd_cuda_check(cudaEventRecord(f->end, s->stream), "an event", &err) < 0) {
		fail(s, &err);
		why = &err;
	}
	if (why) {
		if (ev)
			pd_event_fail(ev, why, q->gate);
		return;
	}
	f->ev = ev;
	pthread_mutex_lock(&cuda->lock);
	s->tail++;
	pthread_cond_broadcast(&s->moved);
	pthread_mutex_unlock(&cuda->lock);
}

static const struct pd_queue_ops queue_ops = { .begin = begin, .run = run, .done = done };

/* ---- the second thread ---- */

/* What a loss layer, or an update, left in pinned memory, for the caller. */
static int take_said(const struct pd_cuda_stream *s, const struct flight *f, struct pd_error *err)
{
	const struct pd_kernel_loss *loss = &s->said[f - s->flights].loss;
	const struct pd_compiled_layer *l = f->loss_layer;

	if (f->outcome)
		*f->outcome = s->said[f - s->flights].outcome;
	if (!l)
		return 0;
	if (loss->bad_sample >= 0)
		return pd_error_failed(err, "layer \"%s\": sample %" PRId64 " of the minibatch has "
				       "label %" PRId64 ", expected 0 to %" PRId64, l->layer->name,
				       loss->bad_sample, loss->bad_label,
				       l->in_shape[0]->size[0] - 1);
	if (f->loss)
		*f->loss = (struct pd_loss){ .sum = loss->sum, .correct = loss->correct,
					     .samples = f->valid };
	return 0;
}

/* Once a second: from now on times count from this work's end. */
static int anchor(struct pd_cuda_stream *s, struct flight *f, struct pd_error *err)
{
	struct pd_cuda_device *cuda = device_of(s);
	cudaEvent_t old = s->clock.base;
	int64_t ns;
	int verdict;

	pthread_mutex_lock(&cuda->lock);
	verdict = pd_cuda_look(cuda->side, f->end, &ns, err);
	if (verdict > 0) {
		s->clock = (struct pd_cuda_clock){ f->end, ns };
		f->end = old;
	}
	pthread_mutex_unlock(&cuda->lock);
	return verdict < 0 ? -1 : 0;
}

/* No piece of work begins before the one before it ended, or ends later than now. */
static int take_times(struct pd_cuda_stream *s, struct flight *f, int64_t *start_p, int64_t *end_p,
		      struct pd_error *err)
{
	int64_t now_ns;

	if (pd_cuda_check(cudaEventSynchronize(f->end), "its work", err) < 0)
		return -1;
	now_ns = pd_now_ns();
	if (pd_cuda_clock_ns(&s->clock, f->start, start_p, err) < 0 ||
	    pd_cuda_clock_ns(&s->clock, f->end, end_p, err) < 0)
		return -1;
	if (*end_p > now_ns)
		*end_p = now_ns;
	if (*start_p < s->last_ns)
		*start_p = s->last_ns;
	if (*end_p < *start_p)
		*end_p = *start_p;
	s->last_ns = *end_p;
	return now_ns - s->clock.base_ns > ANCHOR_NS ? anchor(s, f, err) : 0;
}

static void finish(struct pd_cuda_stream *s, struct flight *f)
{
	struct pd_cuda_device *cuda = device_of(s);
	struct pd_event *ev = f->ev;
	int64_t start_ns, end_ns;
	struct pd_error err;
	bool good = take_times(s, f, &start_ns, &end_ns, &err) == 0 && take_said(s, f, &err) == 0;

	if (!good)
		fail(s, &err);
	pthread_mutex_lock(&cuda->lock);
	s->head++;
	pthread_cond_broadcast(&s->moved);
	pthread_mutex_unlock(&cuda->lock);
	/* the caller may reuse the event from here on */
	if (ev && good)
		pd_event_complete(ev, start_ns, end_ns, s->queue.gate);
	else if (ev)
		pd_event_fail(ev, &err, s->queue.gate);
}

static void *finish_main(void *argument)
{
	struct pd_cuda_stream *s = argument;
	struct pd_cuda_device *cuda = device_of(s);

	cudaSetDevice(cuda->number);
	for (;;) {
		struct flight *f = NULL;

		pthread_mutex_lock(&cuda->lock);
		while (s->head == s->tail && !s->closing)
			pthread_cond_wait(&s->moved, &cuda->lock);
		if (s->head != s->tail)
			f = &s->flights[s->head % FLIGHTS];
		pthread_mutex_unlock(&cuda->lock);
		if (!f)
			return NULL;
		finish(s, f);
	}
}

/* ---- opening and closing ---- */

static void release(struct pd_cuda_stream *s)
{
	for (int i = 0; i < FLIGHTS; i++) {
		if (s->flights[i].start)
			cudaEventDestroy(s->flights[i].start);
		if (s->flights[i].end)
			cudaEventDestroy(s->flights[i].end);
	}
	if (s->clock.base)
		cudaEventDestroy(s->clock.base);
	if (s->said)
		cudaFreeHost(s->said);
	if (s->scrap)
		cudaFree(s->scrap);
	if (s->stream)
		cudaStreamDestroy(s->stream);
	pthread_cond_destroy(&s->moved);
	free(s);
}

/* An event now, on the clock that the device's counts from. */
static int open_clock(struct pd_cuda_stream *s, struct pd_error *err)
{
	if (pd_cuda_check(cudaEventCreateWithFlags(&s->clock.base, cudaEventBlockingSync),
			  "an event", err) < 0 ||
	    pd_cuda_check(cudaEventRecord(s->clock.base, s->stream), "an event", err) < 0 ||
	    pd_cuda_check(cudaEventSynchronize(s->clock.base), "an event", err) < 0)
		return -1;
	return pd_cuda_clock_ns(&device_of(s)->origin, s->clock.base, &s->clock.base_ns, err);
}

static int open_cuda(struct pd_cuda_stream *s, struct pd_error *err)
{
	if (pd_cuda_check(cudaSetDevice(device_of(s)->number), "its device", err) < 0 ||
	    pd_cuda_check(cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking),
			  "a stream", err) < 0 ||
	    pd_cuda_check(cudaHostAlloc((void **)&s->said, FLIGHTS * sizeof(*s->said),
					cudaHostAllocMapped), "pinned memory", err) < 0 ||
	    pd_cuda_check(cudaMalloc((void **)&s->scrap, sizeof(*s->scrap)), "memory", err) < 0)
		return -1;
	for (int i = 0; i < FLIGHTS; i++)
		if (pd_cuda_check(cudaEventCreate(&s->flights[i].start), "an event", err) < 0 ||
		    pd_cuda_check(cudaEventCreateWithFlags(&s->flights[i].end,
							   cudaEventBlockingSync),
				  "an event", err) < 0)
			return -1;
	return open_clock(s, err);
}

static void stop_second(struct pd_cuda_stream *s)
{
	struct pd_cuda_device *cuda = device_of(s);

	pthread_mutex_lock(&cuda->lock);
	s->closing = true;
	pthread_cond_broadcast(&s->moved);
	pthread_mutex_unlock(&cuda->lock);
	pthread_join(s->thread, NULL);
}

static void enlist(struct pd_cuda_stream *s, bool in)
{
	struct pd_cuda_device *cuda = device_of(s);
	struct pd_cuda_stream **at = &cuda->streams;

	pthread_mutex_lock(&cuda->lock);
	while (!in && *at != s)
		at = &(*at)->next;
	if (in)
		s->next = *at;
	*at = in ? s : s->next;
	pthread_mutex_unlock(&cuda->lock);
}

struct pd_stream *pd_cuda_stream_open(struct pd_device *device, struct pd_error *err)
{
	struct pd_cuda_stream *s = pd_zalloc(sizeof(*s));
	int status;

	s->queue.base.device = device;
	pthread_cond_init(&s->moved, NULL);
	if (open_cuda(s, err) < 0) {
		release(s);
		return NULL;
	}
	status = pthread_create(&s->thread, NULL, finish_main, s);
	if (status != 0) {
		pd_error_failed(err, "a stream's thread: %s", strerror(status));
		release(s);
		return NULL;
	}
	if (pd_queue_open(&s->queue, device, device_of(s)->gate, &queue_ops, err) < 0) {
		stop_second(s);
		release(s);
		return NULL;
	}
	enlist(s, true);
	return &s->queue.base;
}

void pd_cuda_stream_close(struct pd_stream *stream)
{
	struct pd_cuda_stream *s = (struct pd_cuda_stream *)stream;

	if (!s)
		return;
	cudaSetDevice(device_of(s)->number);
	pd_queue_close(&s->queue);
	stop_second(s);
	enlist(s, false);
	release(s);
}
