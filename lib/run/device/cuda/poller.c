/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The poller is a thread of the device.  It asks in turn whether the oldest work of each stream is
 * done, takes its times, and completes its event.  It sleeps while nothing is in flight, and for
 * some ten microseconds at a time while nothing is done.  It cannot wait for one event on the GPU,
 * since that may belong to a transfer that waits for another rank, while work on other streams
 * ends.
 */
#include "run/device/cuda/stream.h"

#include "base/clock.h"
#include "base/mem.h"

#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#define ANCHOR_NS INT64_C(1000000000)
#define AGAIN_NS INT64_C(100000000)     /* time until another try to compare clocks */
#define SPINS 50                        /* rounds without result before it sleeps */
#define SHORT_NAPS 100
#define SHORT_NAP_NS 10000
#define LONG_NAP_NS 50000

/* Gives the result that a loss layer left in pinned memory to the caller. */
static int take_loss(const struct pd_cuda_submission *f, const struct pd_compiled_layer *l,
		     struct pd_error *err)
{
	const struct pd_kernel_loss *loss = &f->made[l->loss];

	if (loss->bad_row >= 0)
		return pd_error_failed(err, "layer \"%s\": sample %" PRId64 " of the microbatch has "
				       "label %" PRId64 ", expected 0 to %" PRId64, l->layer->name,
				       loss->bad_row / pd_shape_rows(l->in_shape[0]),
				       loss->bad_label, pd_shape_width(l->in_shape[0]) - 1);
	if (f->losses)
		f->losses[l->loss] = (struct pd_loss){ .sum = loss->sum, .correct = loss->correct,
						       .samples = f->valid, .rows = loss->rows };
	return 0;
}

/* Gives the results of all loss layers, and of an update, to the caller. */
static int take_said(const struct pd_cuda_stream *s, const struct pd_cuda_submission *f,
		     struct pd_error *err)
{
	const struct pd_compiled *net = f->net;

	if (f->outcome)
		*f->outcome = s->said[f - s->submissions].outcome;
	for (int l = net ? net->first : 0; net && l < net->first + net->count; l++)
		if (pd_layer_is(net->layers[l].layer, PD_KIND_LOSS) && take_loss(f, &net->layers[l], err) < 0)
			return -1;
	return 0;
}

/*
 * Compares the clocks again, once a second, when nobody is copying: times count from this work's
 * end then.
 */
static int anchor(struct pd_cuda_stream *s, struct pd_cuda_submission *f, struct pd_error *err)
{
	struct pd_cuda_device *cuda = pd_cuda_device_of(s);
	cudaEvent_t old = s->clock.base;
	int64_t ns;
	int verdict;

	s->anchored_ns += AGAIN_NS;
	if (pthread_mutex_trylock(&cuda->side_lock) != 0)
		return 0;
	verdict = pd_cuda_look(&cuda->look, f->end, &ns, err);
	pthread_mutex_unlock(&cuda->side_lock);
	if (verdict <= 0)
		return verdict;
	s->anchored_ns = ns;
	/* another stream may be about to wait for this event */
	pthread_mutex_lock(&cuda->lock);
	s->clock = (struct pd_cuda_clock){ f->end, ns };
	f->end = old;
	pthread_mutex_unlock(&cuda->lock);
	return 0;
}

/*
 * Takes the times of a piece of work.  It does not begin before the one before it ended, nor end
 * later than now.  Untimed work began when it was queued and ended now.
 */
static int take_times(struct pd_cuda_stream *s, struct pd_cuda_submission *f, int64_t *start_p,
		      int64_t *end_p, struct pd_error *err)
{
	int64_t now_ns = pd_now_ns();

	*start_p = f->given_ns;
	*end_p = now_ns;
	if (f->start && (pd_cuda_clock_ns(&s->clock, f->start, start_p, err) < 0 ||
			 pd_cuda_clock_ns(&s->clock, f->end, end_p, err) < 0))
		return -1;
	if (*end_p > now_ns)
		*end_p = now_ns;
	if (*start_p < s->last_ns)
		*start_p = s->last_ns;
	if (*end_p < *start_p)
		*end_p = *start_p;
	s->last_ns = *end_p;
	if (!f->start)
		return 0;
	if (s->anchored_ns < s->clock.base_ns)
		s->anchored_ns = s->clock.base_ns;
	return now_ns - s->anchored_ns > ANCHOR_NS ? anchor(s, f, err) : 0;
}

/* Completes the oldest work of a stream. status: CUDA's for that work. */
static void finish(struct pd_cuda_stream *s, cudaError_t status)
{
	struct pd_cuda_device *cuda = pd_cuda_device_of(s);
	struct pd_cuda_submission *f = &s->submissions[s->head % PD_CUDA_SUBMISSIONS];
	struct pd_event *ev = f->ev;
	int64_t start_ns, end_ns;
	struct pd_error err;
	bool good = pd_cuda_check(status, "its work", &err) == 0 &&
		    take_times(s, f, &start_ns, &end_ns, &err) == 0 &&
		    take_said(s, f, &err) == 0 &&
		    (!f->call.check || f->call.check(f->call.context, &err) == 0);

	if (!good)
		pd_cuda_stream_fail(s, &err);
	pthread_mutex_lock(&cuda->lock);
	s->head++;
	cuda->completing = s;
	pthread_cond_broadcast(&s->moved);
	pthread_mutex_unlock(&cuda->lock);
	/* from here on the caller may reuse the event */
	if (ev && good)
		pd_event_complete(ev, start_ns, end_ns, cuda->gate);
	else if (ev)
		pd_event_fail(ev, &err, cuda->gate);
}

/*
 * Streams with work in flight, and what tells that the oldest of it is done.  They stay in the
 * device's list meanwhile, since only the poller completes work.
 */
struct asked {
	struct pd_cuda_stream *stream;
	cudaEvent_t tells;
};

struct round {
	struct asked *list;
	size_t n, room;
};

static void round_add(struct round *r, struct pd_cuda_stream *s)
{
	if (s->head == s->tail)
		return;
	r->list = pd_grow(r->list, &r->room, r->n + 1, sizeof(*r->list));
	r->list[r->n++] = (struct asked){ s, s->submissions[s->head % PD_CUDA_SUBMISSIONS].tells };
}

/* Lists the streams with work in flight, that served last as the last one.  The lock is held. */
static void round_begin(struct round *r, const struct pd_cuda_device *cuda)
{
	struct pd_cuda_stream *first = cuda->served ? cuda->served->next : NULL, *s;

	r->n = 0;
	for (s = first; s; s = s->next)
		round_add(r, s);
	for (s = cuda->streams; s != first; s = s->next)
		round_add(r, s);
}

/* Returns the first whose oldest work is done or has failed (*status_p), without lock; or NULL. */
static struct pd_cuda_stream *round_ask(const struct round *r, cudaError_t *status_p)
{
	for (size_t i = 0; i < r->n; i++) {
		*status_p = cudaEventQuery(r->list[i].tells);
		if (*status_p != cudaErrorNotReady)
			return r->list[i].stream;
		cudaGetLastError();
	}
	return NULL;
}

static void nap(int rounds)
{
	const struct timespec ns = {
		.tv_nsec = rounds < SPINS + SHORT_NAPS ? SHORT_NAP_NS : LONG_NAP_NS,
	};

	if (rounds < SPINS)
		sched_yield();
	else
		nanosleep(&ns, NULL);
}

static void *poller_main(void *argument)
{
	struct pd_cuda_device *cuda = argument;
	struct round round = { .n = 0 };
	int rounds = 0;

	cudaSetDevice(cuda->number);
	/* makes short naps as short as they are meant */
	prctl(PR_SET_TIMERSLACK, 1000);
	pthread_mutex_lock(&cuda->lock);
	for (;;) {
		struct pd_cuda_stream *s;
		cudaError_t status;

		round_begin(&round, cuda);
		if (round.n == 0 && cuda->closing)
			break;
		if (round.n == 0) {
			pthread_cond_wait(&cuda->work, &cuda->lock);
			rounds = 0;
			continue;
		}
		pthread_mutex_unlock(&cuda->lock);
		s = round_ask(&round, &status);
		if (s)
			finish(s, status);
		else
			nap(rounds);
		pthread_mutex_lock(&cuda->lock);
		rounds = s ? 0 : rounds < SPINS + SHORT_NAPS ? rounds + 1 : rounds;
		if (!s)
			continue;
		cuda->served = s;
		cuda->completing = NULL;
		pthread_cond_broadcast(&s->moved);
	}
	pthread_mutex_unlock(&cuda->lock);
	free(round.list);
	return NULL;
}

int pd_cuda_poller_open(struct pd_cuda_device *cuda, struct pd_error *err)
{
	int status = pthread_create(&cuda->poller, NULL, poller_main, cuda);

	cuda->has_poller = status == 0;
	return status == 0 ? 0 : pd_error_failed(err, "the device's thread: %s", strerror(status));
}

void pd_cuda_poller_close(struct pd_cuda_device *cuda)
{
	if (!cuda->has_poller)
		return;
	pthread_mutex_lock(&cuda->lock);
	cuda->closing = true;
	pthread_cond_signal(&cuda->work);
	pthread_mutex_unlock(&cuda->lock);
	pthread_join(cuda->poller, NULL);
}
