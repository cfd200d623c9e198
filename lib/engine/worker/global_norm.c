/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All ranks agree on an update: on the norm of all gradients, and on whether all are finite.
 *
 * Every rank computes the sums of squares of its stages' gradients, into a vector with a place for
 * every layer of the model.  The vectors are united in ceil(log2 N) rounds.  In round k, counted
 * from 0, a rank sends all it knows to the rank 2^k above it, and receives what the rank 2^k below
 * it knows, modulo N.  Nothing is added on the way, so a rank may receive a layer's sum twice. 
 * Every rank derives the result from the vector by itself, from the same bits
 * (lib/engine/device/global_norm.h).
 *
 * The host reads nothing.  All transfers are posted at once, each waiting for the events before it,
 * and the work goes on a stream beside the computation.  The operation retires when its inputs are
 * ready; later operations of the list go on, up to the step, which waits for the end.  Only then is
 * the operation reported, with its whole time.
 */
#include "engine/worker/issue.h"

#include "base/mem.h"

#include <limits.h>
#include <stdlib.h>

#define TAG_ROUND 0             /* those of tied_weights.c follow, then the all-reduce's */

struct round {
	double *arrived;
	struct pd_event sent, got, united;
};

struct global_norm {
	char *memory;                   /* the vector, then those that arrive */
	double *vector;
	size_t bytes, count;            /* of one vector; doubles in it */
	int rounds;
	struct round *round;
	struct sum **sums;              /* of the group, per chunk */
	struct fence **ready;		/* when these sums are complete */
	struct pd_event own;            /* this rank's part is in the vector */
	struct fence begun, done;
	int step;                       /* next step for the stream; see issue_step() */
	bool untold;                    /* its record has not been given yet */
	struct pd_record record;
	struct pd_outcome outcome;
};

static int steps(const struct pd_worker *w)
{
	return 2 * w->chunk_count + 1 + worker_tied_steps(w) + 3 * w->global_norm->rounds;
}

int worker_global_norm_new(struct pd_worker *w, struct pd_error *err)
{
	const struct pd_plan *plan = w->config.schedule->plan;
	struct global_norm *a;

	if (!pd_plan_agrees(plan))
		return 0;
	a = w->global_norm = pd_zalloc(sizeof(*a));
	a->count = (size_t)plan->profile->layer_count + 1;
	a->bytes = (size_t)pd_schedule_norm_bytes(plan);
	a->rounds = pd_schedule_norm_rounds(plan);
	a->round = pd_calloc((size_t)a->rounds, sizeof(*a->round));
	a->sums = pd_calloc((size_t)w->chunk_count, sizeof(*a->sums));
	a->ready = pd_calloc((size_t)w->chunk_count, sizeof(*a->ready));
	worker_fence_init(w, &a->begun, 1);
	worker_fence_init(w, &a->done, 1);
	a->step = INT_MAX;              /* there is nothing to do */
	if (worker_take(w, (size_t)(1 + a->rounds) * pd_align(a->bytes), &a->memory, err) < 0)
		return -1;
	a->vector = (double *)a->memory;
	for (int k = 0; k < a->rounds; k++)
		a->round[k].arrived = (double *)(a->memory + (size_t)(k + 1) * pd_align(a->bytes));
	return 0;
}

void worker_global_norm_free(struct pd_worker *w)
{
	struct global_norm *a = w->global_norm;

	if (!a)
		return;
	if (a->memory)
		w->config.device->ops->memory.free(w->config.device, a->memory);
	free(a->round);
	free(a->sums);
	free(a->ready);
	free(a);
}

bool worker_global_norm_pending(const struct pd_worker *w)
{
	return w->global_norm && w->global_norm->step < steps(w);
}

struct fence *worker_global_norm_done(struct pd_worker *w)
{
	return w->global_norm ? &w->global_norm->done : NULL;
}

static int make_squares(struct pd_worker *w, int i)
{
	struct global_norm *a = w->global_norm;
	bool last = i == w->chunk_count - 1;
	struct pd_squares what = {
		.gradients = a->sums[i]->gradients, .scale = a->sums[i]->scale,
		.vector = a->vector, .clear = i == 0,
	};

	return pd_submit_squares(w->reduce, w->chunks[i].net, &what, !last ? NULL
						   : a->rounds > 0 ? &a->own : &a->done.events[0]);
}

/*
 * Issues thing number `step` on the stream.  First come: the wait for the gradients of each chunk;
 * an event that they are ready; the sums for shared parameters; the squares, chunk after chunk. 
 * Then comes for each round: the wait for what arrives and for what was sent, and uniting both.
 */
static int issue_step(struct pd_worker *w)
{
	struct global_norm *a = w->global_norm;
	int n = w->chunk_count, tied = worker_tied_steps(w);
	int rest = a->step - 2 * n - tied - 1, k = rest / 3;
	struct round *round;

	if (a->step < n)
		return pd_submit_wait(w->reduce, &a->ready[a->step]->events[0]);
	if (a->step == n)
		return pd_submit_sum(w->reduce, a->sums[0]->gradients, NULL, 0, 0,
					&a->begun.events[0]);
	if (a->step - n - 1 < tied)
		return worker_tied_issue(w, a->sums, a->step - n - 1);
	if (rest < 0)
		return make_squares(w, a->step - n - tied - 1);
	round = &a->round[k];
	if (rest % 3 < 2)
		return pd_submit_wait(w->reduce, rest % 3 ? &round->sent : &round->got);
	return pd_submit_unite(w->reduce, a->vector, round->arrived, a->count,
				  k == a->rounds - 1 ? &a->done.events[0] : &round->united);
}

int worker_global_norm_progress(struct pd_worker *w)
{
	struct global_norm *a = w->global_norm;
	int n = 0;

	while (a && a->step < steps(w)) {
		int verdict = issue_step(w);

		if (verdict == PD_AGAIN)
			break;
		if (verdict < 0)
			return -1;
		a->step++;
		n++;
	}
	return n;
}

static int post_round(struct pd_worker *w, int k, uint64_t tag)
{
	const struct pd_transport_ops *ops = w->config.transport->ops;
	struct global_norm *a = w->global_norm;
	struct round *round = &a->round[k];
	int64_t ranks = w->config.schedule->plan->rank_count, far = INT64_C(1) << k;
	int to = (int)((w->config.rank + far) % ranks);
	int from = (int)((w->config.rank - far + ranks) % ranks);

	pd_event_arm(&round->sent);
	pd_event_arm(&round->got);
	pd_event_arm(&round->united);
	return ops->recv(w->config.transport, from, tag, round->arrived, a->bytes, NULL,
			 &round->got) < 0 ||
	       ops->send(w->config.transport, to, tag, a->vector, a->bytes,
			 k > 0 ? &a->round[k - 1].united : &a->own, &round->sent) < 0 ? -1 : 0;
}

int worker_issue_agree(struct pd_worker *w, struct chunk *first, const struct pd_op *op)
{
	struct global_norm *a = w->global_norm;
	uint64_t number = (uint64_t)op->microbatch *
			  (uint64_t)w->config.schedule->stage_count;
	uint64_t tag = TAG_COLLECTIVE | ((number << TAG_PLACES) & TAG_NUMBER);

	if (!worker_may_arm(w, &a->begun) || !worker_may_arm(w, &a->done))
		return 0;
	/* All-reduces follow each other on the stream, in the same order on every rank. */
	if (!pd_reduction_queue_empty(&w->reductions))
		return 0;
	for (int i = 0; i < w->chunk_count; i++) {
		struct chunk *c = &w->chunks[i];

		a->sums[i] = worker_sum_of(w, c, op);
		a->ready[i] = worker_allreduced(c);
		if (!a->ready[i])
			a->ready[i] = a->sums[i]->buckets[0].ready;
		a->ready[i]->last_use = w->issued;
	}
	pd_event_arm(&a->own);
	pd_event_arm(&a->begun.events[0]);
	pd_event_arm(&a->done.events[0]);
	a->begun.last_use = a->done.last_use = w->issued;
	a->record = (struct pd_record){ .op = *op, .bytes = (int64_t)a->bytes * a->rounds };
	a->untold = true;
	a->step = 0;
	if (worker_tied_post(w, a->sums, tag, &a->begun.events[0]) < 0)
		return -1;
	for (int k = 0; k < a->rounds; k++)
		if (post_round(w, k, tag | (uint64_t)(TAG_ROUND + k)) < 0)
			return -1;
	worker_new_entry(w, op, &a->begun);
	return worker_global_norm_progress(w) < 0 ? -1 : 1;
}

void worker_fill_global_norm(struct pd_worker *w, struct chunk *c, const void *from, void *to,
			     struct pd_global_norm *norm)
{
	const struct pd_optimizer *o = &w->config.optimizer;
	struct global_norm *a = w->global_norm;

	if (!a)
		return;
	*norm = (struct pd_global_norm){
		.vector = a->vector, .layers = (int)a->count - 1, .clip_norm = o->clip_norm,
		.growth = 2, .backoff = 0.5, .least = 1, .interval = o->loss_scale_interval,
		.before = worker_scale(c, from), .next = worker_scale(c, to),
		.outcome = &a->outcome,
	};
}

int worker_copy_now(struct pd_worker *w, void *to, const void *from, size_t bytes,
		    enum pd_copy way, const char *what, struct pd_error *err)
{
	struct pd_event ev;

	pd_event_arm(&ev);
	if (pd_submit_copy(w->compute, to, from, bytes, way, &ev) != 0 ||
	    worker_hand_over(w) != 0)
		return pd_error_failed(err, "%s: the device refused to copy", what);
	pd_event_wait(&ev, w->config.gate);
	return pd_event_failed(&ev) ? pd_gate_failed(w->config.gate, err, "%s", what) : 0;
}

static int copy_scale(struct pd_worker *w, void *to, const void *from, enum pd_copy way,
		      struct pd_error *err)
{
	return worker_copy_now(w, to, from, sizeof(struct pd_scale), way, "the scale of a version",
			       err);
}

int pd_worker_scale_get(struct pd_worker *w, int i, const void *weights, struct pd_scale *scale_p,
			struct pd_error *err)
{
	return copy_scale(w, scale_p, worker_scale(&w->chunks[i], weights), PD_COPY_TO_HOST, err);
}

int pd_worker_scale_put(struct pd_worker *w, int i, void *weights, const struct pd_scale *scale,
			struct pd_error *err)
{
	return copy_scale(w, worker_scale(&w->chunks[i], weights), scale, PD_COPY_TO_DEVICE, err);
}

bool worker_global_norm_told(struct pd_worker *w, struct pd_record *record_p,
			     struct pd_outcome *outcome_p)
{
	struct global_norm *a = w->global_norm;

	if (!a || !a->untold)
		return false;
	a->untold = false;
	a->record.start_ns = a->begun.events[0].start_ns;
	a->record.end_ns = a->done.events[0].end_ns;
	*record_p = a->record;
	*outcome_p = a->outcome;
	return true;
}
