/* SPDX-License-Identifier: Apache-2.0 */
/* A stream's second thread: waits for the oldest work, takes its times, completes its event. */
#include "device/cuda/stream.h"

#include "base/clock.h"

#include <inttypes.h>

#define ANCHOR_NS INT64_C(1000000000)

/* What a loss layer, or an update, left in pinned memory, for the caller. */
static int take_said(const struct pd_cuda_stream *s, const struct pd_cuda_flight *f,
		     struct pd_error *err)
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

/* Once a second, when nobody is copying: from now on times count from this work's end. */
static int anchor(struct pd_cuda_stream *s, struct pd_cuda_flight *f, struct pd_error *err)
{
	struct pd_cuda_device *cuda = pd_cuda_device_of(s);
	cudaEvent_t old = s->clock.base;
	int64_t ns;
	int verdict;

	if (pthread_mutex_trylock(&cuda->side_lock) != 0)
		return 0;
	verdict = pd_cuda_look(cuda->side, f->end, &ns, err);
	pthread_mutex_unlock(&cuda->side_lock);
	if (verdict <= 0)
		return verdict;
	/* another stream may be about to wait for this event */
	pthread_mutex_lock(&cuda->lock);
	s->clock = (struct pd_cuda_clock){ f->end, ns };
	f->end = old;
	pthread_mutex_unlock(&cuda->lock);
	return 0;
}

/* No piece of work begins before the one before it ended, or ends later than now. */
static int take_times(struct pd_cuda_stream *s, struct pd_cuda_flight *f, int64_t *start_p,
		      int64_t *end_p, struct pd_error *err)
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

static void finish(struct pd_cuda_stream *s, struct pd_cuda_flight *f)
{
	struct pd_cuda_device *cuda = pd_cuda_device_of(s);
	struct pd_event *ev = f->ev;
	int64_t start_ns, end_ns;
	struct pd_error err;
	bool good = take_times(s, f, &start_ns, &end_ns, &err) == 0 &&
		    take_said(s, f, &err) == 0 &&
		    (!f->call.check || f->call.check(f->call.context, &err) == 0);

	if (!good)
		pd_cuda_stream_fail(s, &err);
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

void *pd_cuda_finish_main(void *argument)
{
	struct pd_cuda_stream *s = argument;
	struct pd_cuda_device *cuda = pd_cuda_device_of(s);

	cudaSetDevice(cuda->number);
	for (;;) {
		struct pd_cuda_flight *f = NULL;

		pthread_mutex_lock(&cuda->lock);
		while (s->head == s->tail && !s->closing)
			pthread_cond_wait(&s->moved, &cuda->lock);
		if (s->head != s->tail)
			f = &s->flights[s->head % PD_CUDA_FLIGHTS];
		pthread_mutex_unlock(&cuda->lock);
		if (!f)
			return NULL;
		finish(s, f);
	}
}
