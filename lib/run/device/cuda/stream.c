/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stream: the queue's thread puts work on a CUDA stream and goes on; the device's poller
 * (poller.c) finds out when the oldest work is done, and completes its event.
 *
 * Work in flight is in a ring: the queue's thread writes at the tail, the poller reads at the head.
 * The device's lock guards both numbers, so that a stream that is told to wait for another stream's
 * event can find it there, and wait on the GPU instead of here.
 *
 * Nothing that issues work reads a result before its event is done.  Between two streams of a GPU
 * it is the GPU that waits.  Times of the GPU are taken only where somebody looks at them:
 * pd-profile, and pd-run with a trace (pd_device_config.untimed).
 */
#include "run/device/cuda/stream.h"

#include "base/clock.h"
#include "base/mem.h"
#include "run/device/cuda/graph.h"
#include "run/device/cuda/graph_cache.h"

#include <stdlib.h>
#include <string.h>

/* ---- the queue's thread ---- */

/*
 * Returns the entry for one more piece of work, behind `taken` entries that are not in flight yet.
 * Waits while the ring is full.
 */
static struct pd_cuda_submission *take_submission(struct pd_cuda_stream *s, size_t taken)
{
	struct pd_cuda_device *cuda = pd_cuda_device_of(s);
	struct pd_cuda_submission *f;

	pthread_mutex_lock(&cuda->lock);
	while (s->tail + taken - s->head == PD_CUDA_SUBMISSIONS)
		pthread_cond_wait(&s->moved, &cuda->lock);
	f = &s->submissions[(s->tail + taken) % PD_CUDA_SUBMISSIONS];
	pthread_mutex_unlock(&cuda->lock);
	f->tells = f->end;
	f->recorded = false;
	f->ev = NULL;
	f->net = NULL;
	f->outcome = NULL;
	f->call.check = NULL;
	f->given_ns = pd_now_ns();
	return f;
}

/* Fails if the poller has found an error. */
static int check_broken(struct pd_cuda_stream *s, struct pd_error *err)
{
	struct pd_cuda_device *cuda = pd_cuda_device_of(s);
	bool broken;

	pthread_mutex_lock(&cuda->lock);
	broken = s->broken;
	if (broken)
		*err = s->why;
	pthread_mutex_unlock(&cuda->lock);
	return broken ? -1 : 0;
}

/*
 * If ev belongs to work in flight on a stream of this device, lets the GPU wait for it: 1; else 0.
 * The lock is held, since the CUDA event may soon be used for other work.
 */
static int wait_there(struct pd_cuda_stream *s, const struct pd_event *ev, struct pd_error *err)
{
	const struct pd_cuda_device *cuda = pd_cuda_device_of(s);

	for (struct pd_cuda_stream *other = cuda->streams; other; other = other->next)
		for (size_t i = other->head; i != other->tail; i++) {
			struct pd_cuda_submission *f = &other->submissions[i % PD_CUDA_SUBMISSIONS];

			if (f->ev != ev)
				continue;
			if (other == s)
				return 1;       /* this stream's work is behind it already */
			return pd_cuda_check(cudaStreamWaitEvent(s->stream, f->tells, 0),
					     "waiting for an event", err) < 0 ? -1 : 1;
		}
	return 0;
}

static int look_there(struct pd_cuda_stream *s, const struct pd_event *ev, struct pd_error *err)
{
	struct pd_cuda_device *cuda = pd_cuda_device_of(s);
	int verdict;

	pthread_mutex_lock(&cuda->lock);
	verdict = wait_there(s, ev, err);
	pthread_mutex_unlock(&cuda->lock);
	return verdict;
}

/*
 * Work may be about to be put on a stream (a transfer that the other side has not announced yet).
 * This thread sleeps until then, or until the event is done.  done() wakes it, through the gate,
 * whose lock is taken before the device's.
 */
static int wait_for(struct pd_cuda_stream *s, const struct pd_event *ev, struct pd_error *err)
{
	struct pd_cuda_device *cuda = pd_cuda_device_of(s);
	struct pd_gate *gate = s->queue.gate;
	int verdict = look_there(s, ev, err);

	if (verdict != 0)
		return verdict;
	pthread_mutex_lock(&gate->lock);
	/* set before looking, so that work put in flight afterwards is reported */
	atomic_fetch_add(&cuda->waiting, 1);
	while (!pd_event_done(ev) && (verdict = look_there(s, ev, err)) == 0 &&
	       !(s->queue.closing && atomic_load(&gate->failed)))
		pthread_cond_wait(&gate->cond, &gate->lock);
	atomic_fetch_sub(&cuda->waiting, 1);
	pthread_mutex_unlock(&gate->lock);
	return verdict != 0 ? verdict : pd_queue_await(&s->queue, ev, err);
}

static void tell_waiting(struct pd_gate *gate)
{
	pthread_mutex_lock(&gate->lock);
	pthread_cond_broadcast(&gate->cond);
	pthread_mutex_unlock(&gate->lock);
}

static int sum(struct pd_cuda_stream *s, const struct pd_work *w, struct pd_error *err)
{
	cudaError_t status = w->sum.count == 0 ? cudaSuccess : w->sum.n == 0
		? cudaMemsetAsync(w->sum.dst, 0, w->sum.count * sizeof(float), s->stream)
		: pd_kernel_sum(s->stream, PD_F32, w->sum.dst, (const void *const *)w->sum.src,
				w->sum.n, w->sum.count, false);

	return pd_cuda_check(status, "a sum", err);
}

static int mixed_sum(struct pd_cuda_stream *s, const struct pd_work *w, struct pd_error *err)
{
	return pd_cuda_check(pd_kernel_mixed_sum(s->stream, &w->mixed_sum), "a sum of 16 bits", err);
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

/* Puts a forward or backward, or an iteration, on the CUDA stream. */
static int passes(struct pd_cuda_stream *s, const struct pd_work *w, struct pd_error *err)
{
	struct pd_compiled *net = (struct pd_compiled *)w->net;
	struct pd_cuda_engine *engine = net->engine;
	struct pd_cuda_job job = { .net = net, .count = 1 + w->joined };
	struct pd_cuda_submission *submissions[PD_CUDA_JOB] = { s->current }, *f;
	int status;

	for (int i = 0; i < job.count; i++) {
		if (i > 0)
			submissions[i] = take_submission(s, (size_t)i);
		job.works[i] = pd_queue_item(&s->queue, i);
		job.ends[i] = submissions[i]->end;
	}
	f = submissions[pd_cuda_job_forward(&job)];
	if (engine->stream_serial != s->serial &&
	    pd_cudnn_check(cudnnSetStream(engine->dnn, s->stream), "a stream", err) < 0)
		return -1;
	engine->stream = s->stream;
	engine->stream_serial = s->serial;
	engine->whole = w->from == net->first && w->count == net->count;
	engine->loss = engine->losses + (f - s->submissions) * net->sizes.loss_count;
	engine->loses = false;
	status = pd_cuda_graphs_run(&job, err);
	for (int i = 0; i < job.count; i++) {
		submissions[i]->tells = job.ends[i];
		submissions[i]->recorded = i < job.count - 1;
	}
	f->net = engine->loses ? net : NULL;
	f->made = engine->loss;
	f->losses = job.works[job.count - 1]->pass.losses;
	f->valid = job.works[job.count - 1]->pass.valid;
	return status;
}

static int update(struct pd_cuda_stream *s, const struct pd_work *w, struct pd_error *err)
{
	struct pd_cuda_submission *f = s->current;

	if (w->update.norm.vector)
		f->outcome = w->update.norm.outcome;
	return pd_cuda_update(s->stream, (struct pd_compiled *)w->net, &w->update, w->from,
			      w->count, w->update.norm.vector ? &s->scrap->choice : NULL,
			      &s->scrap->norms, &s->said[f - s->submissions].outcome, err);
}

static int begin(struct pd_queue *q, struct pd_error *err)
{
	struct pd_cuda_stream *s = (struct pd_cuda_stream *)q;

	return pd_cuda_check(cudaSetDevice(pd_cuda_device_of(s)->number), "its device", err);
}

static int run(struct pd_queue *q, const struct pd_work *w, struct pd_error *err)
{
	struct pd_cuda_stream *s = (struct pd_cuda_stream *)q;

	s->current = NULL;
	if (check_broken(s, err) < 0)
		return -1;
	if (w->kind == PD_WORK_WAIT)
		return wait_for(s, w->awaited, err) < 0 ? -1 : 0;
	s->current = take_submission(s, 0);
	if (s->current->start &&
	    pd_cuda_check(cudaEventRecord(s->current->start, s->stream), "an event", err) < 0)
		return -1;
	if (w->joined > 0)
		return passes(s, w, err);
	switch (w->kind) {
	case PD_WORK_FORWARD:
	case PD_WORK_BACKWARD:
		return passes(s, w, err);
	case PD_WORK_UPDATE:
		return update(s, w, err);
	case PD_WORK_SQUARES:
		return pd_cuda_squares(s->stream, (struct pd_compiled *)w->net, &w->squares,
				       s->scrap->norms.pieces, err);
	case PD_WORK_UNITE:
		return pd_cuda_check(pd_kernel_unite(s->stream, w->unite.vector, w->unite.other,
						     w->unite.count), "uniting vectors", err);
	case PD_WORK_CHUNKS:
		return pd_cuda_check(pd_kernel_chunks(s->stream, &w->chunks), "chunks", err);
	case PD_WORK_SUM:
		return sum(s, w, err);
	case PD_WORK_MIXED_SUM:
		return mixed_sum(s, w, err);
	case PD_WORK_COPY:
		return copy(s, w, err);
	case PD_WORK_CALL:
		s->current->call = w->call;
		return w->call.post(w->call.context, s->stream, err);
	case PD_WORK_WAIT:
		return 0;
	default:
		pd_bug("a GPU's stream was given work %d", (int)w->kind);
	}
}

void pd_cuda_stream_fail(struct pd_cuda_stream *s, const struct pd_error *why)
{
	struct pd_cuda_device *cuda = pd_cuda_device_of(s);

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
	struct pd_cuda_device *cuda = pd_cuda_device_of(s);
	struct pd_cuda_submission *f = s->current;
	struct pd_error err;

	if (!why && !f)         /* a wait: only the work behind it matters */
		return;
	if (!why && !f->recorded &&
	    pd_cuda_check(cudaEventRecord(f->end, s->stream), "an event", &err) < 0) {
		pd_cuda_stream_fail(s, &err);
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
	pthread_cond_signal(&cuda->work);
	pthread_mutex_unlock(&cuda->lock);
	/* the next joined work has this entry, if there is one */
	s->current = &s->submissions[s->tail % PD_CUDA_SUBMISSIONS];
	if (ev && atomic_load(&cuda->waiting) > 0)
		tell_waiting(q->gate);
}

/* Where somebody asks how long each work takes, none are joined. */
static int joint(const struct pd_queue *q, const struct pd_work *works, int n)
{
	return ((struct pd_cuda_device *)q->base.device)->untimed ? pd_graph_joint(works, n) : 1;
}

static const struct pd_queue_ops queue_ops = { .joint = joint, .begin = begin, .run = run, .done = done };

/* ---- opening and closing ---- */

static void release(struct pd_cuda_stream *s)
{
	for (int i = 0; i < PD_CUDA_SUBMISSIONS; i++) {
		if (s->submissions[i].start)
			cudaEventDestroy(s->submissions[i].start);
		if (s->submissions[i].end)
			cudaEventDestroy(s->submissions[i].end);
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

/* Records an event now, on the clock that the device's counts from. */
static int open_clock(struct pd_cuda_stream *s, struct pd_error *err)
{
	if (pd_cuda_check(cudaEventCreate(&s->clock.base), "an event", err) < 0 ||
	    pd_cuda_check(cudaEventRecord(s->clock.base, s->stream), "an event", err) < 0 ||
	    pd_cuda_check(cudaEventSynchronize(s->clock.base), "an event", err) < 0)
		return -1;
	return pd_cuda_clock_ns(&pd_cuda_device_of(s)->origin, s->clock.base, &s->clock.base_ns,
				err);
}

static int open_events(struct pd_cuda_stream *s, struct pd_error *err)
{
	bool untimed = pd_cuda_device_of(s)->untimed;
	unsigned how = untimed ? cudaEventDisableTiming : cudaEventDefault;

	for (int i = 0; i < PD_CUDA_SUBMISSIONS; i++) {
		struct pd_cuda_submission *f = &s->submissions[i];

		if (pd_cuda_check(cudaEventCreateWithFlags(&f->end, how), "an event", err) < 0 ||
		    (!untimed &&
		     pd_cuda_check(cudaEventCreate(&f->start), "an event", err) < 0))
			return -1;
	}
	return untimed ? 0 : open_clock(s, err);
}

static int open_cuda(struct pd_cuda_stream *s, struct pd_error *err)
{
	if (pd_cuda_check(cudaSetDevice(pd_cuda_device_of(s)->number), "its device", err) < 0 ||
	    pd_cuda_check(cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking),
			  "a stream", err) < 0 ||
	    pd_cuda_check(cudaHostAlloc((void **)&s->said, PD_CUDA_SUBMISSIONS * sizeof(*s->said),
					cudaHostAllocMapped), "pinned memory", err) < 0 ||
	    pd_cuda_check(cudaMalloc((void **)&s->scrap, sizeof(*s->scrap)), "memory", err) < 0)
		return -1;
	return open_events(s, err);
}

/* Waits until the events of all queued work are completed. */
static void await_end(struct pd_cuda_stream *s)
{
	struct pd_cuda_device *cuda = pd_cuda_device_of(s);

	pthread_mutex_lock(&cuda->lock);
	while (s->head != s->tail || cuda->completing == s)
		pthread_cond_wait(&s->moved, &cuda->lock);
	pthread_mutex_unlock(&cuda->lock);
}

static void enlist(struct pd_cuda_stream *s, bool in)
{
	struct pd_cuda_device *cuda = pd_cuda_device_of(s);
	struct pd_cuda_stream **at = &cuda->streams;

	pthread_mutex_lock(&cuda->lock);
	while (!in && *at != s)
		at = &(*at)->next;
	if (in)
		s->next = *at;
	*at = in ? s : s->next;
	if (cuda->served == s)
		cuda->served = NULL;
	pthread_mutex_unlock(&cuda->lock);
}

struct pd_stream *pd_cuda_stream_open(struct pd_device *device, struct pd_error *err)
{
	static _Atomic uint64_t serials;
	struct pd_cuda_stream *s = pd_zalloc(sizeof(*s));

	s->queue.base.device = device;
	s->serial = atomic_fetch_add(&serials, 1) + 1;
	pthread_cond_init(&s->moved, NULL);
	if (open_cuda(s, err) < 0 ||
	    pd_queue_open(&s->queue, device, pd_cuda_device_of(s)->gate, &queue_ops, err) < 0) {
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
	cudaSetDevice(pd_cuda_device_of(s)->number);
	pd_queue_close(&s->queue);
	await_end(s);
	enlist(s, false);
	release(s);
}
