/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Issues updates.  The gradients of a group are added up as its backwards make them, summed with
 * those of the other replicas, and applied to the weights.  Each is already divided by the samples
 * of a minibatch (struct pd_net_config.microbatches), so that nothing is left to divide.
 */
#include "engine/worker/issue.h"

#include <math.h>

/* Returns the replica's microbatches before number n of the phase. */
static int64_t before(const struct pd_worker *w, const struct chunk *c, int64_t n)
{
	return n > w->replica ? (n - w->replica - 1) / c->stage->replicas + 1 : 0;
}

/* Returns the replica's microbatches in the group of an operation. */
static int64_t group_share(const struct pd_worker *w, const struct chunk *c,
			   const struct pd_op *op)
{
	int64_t group = w->config.schedule->group[c->index];
	int64_t begin = (op->microbatch - w->phase.first) / group * group, end = begin + group;

	if (end > w->phase.last - w->phase.first)
		end = w->phase.last - w->phase.first;
	return before(w, c, end) - before(w, c, begin);
}

/* Tells whether a backward adds the last gradients to others of its group. */
static bool completes(const struct pd_worker *w, const struct chunk *c, const struct pd_op *op,
		      const struct sum *sum)
{
	return sum->backwards > 0 && sum->backwards + 1 == group_share(w, c, op);
}

bool worker_may_add(struct pd_worker *w, struct chunk *c, const struct pd_op *op)
{
	const struct sum *sum = worker_sum_of(w, c, op);
	const struct bucket_sum *part = &sum->buckets[op->bucket > 0 ? op->bucket - 1 : 0];

	return (!completes(w, c, op, sum) || worker_may_arm(w, &part->summed)) &&
	       (!op->more || worker_may_arm(w, &part->made));
}

/*
 * Adds gradients.  The first microbatch of a group leaves its gradients in place, and every other
 * one is added to them: g0 + g1 + g2 ..., the same order for every schedule of the generator.
 */
int worker_add_gradients(struct pd_worker *w, struct chunk *c, const struct pd_op *op,
			 struct fence *made)
{
	struct sum *sum = worker_sum_of(w, c, op);
	int first = op->bucket > 0 ? op->bucket - 1 : 0;
	int last = op->bucket > 0 ? op->bucket - 1 : c->bucket_count - 1;
	size_t begin = c->buckets[first].begin;
	size_t end = c->buckets[last].begin + c->buckets[last].floats;
	float *gradients = (float *)sum->gradients + begin;
	const float *parts[] = { gradients, (float *)c->fresh + begin };
	int64_t before = sum->backwards;
	struct pd_event *ev = NULL;

	if (completes(w, c, op, sum)) {
		made = &sum->buckets[first].summed;
		worker_arm(w, made);
		ev = &made->events[0];
	}
	sum->backwards += !op->more;
	for (int i = first; i <= last; i++)
		sum->buckets[i].ready = made;
	return before == 0 ? 0 : pd_submit_sum(w->compute, gradients, parts, 2,
								 end - begin, ev);
}

/*
 * Returns the tags of a sum: one of a bucket, or behind these the norms'.  Stages with other numbers of
 * buckets may be on the same ranks.
 */
static uint64_t tag_of(const struct pd_worker *w, const struct pd_op *op, int which)
{
	uint64_t number = ((uint64_t)op->microbatch * (uint64_t)w->config.schedule->stage_count +
			   (uint64_t)op->stage) * w->sums_most + (uint64_t)which;

	return TAG_COLLECTIVE | TAG_ALLREDUCE | ((number << TAG_PLACES) & TAG_NUMBER);
}

/*
 * Returns the minibatch by which a sum knows how many chunks travel.  In virtual time these are as
 * many as behind the warm-up.
 */
static int64_t minibatch_of(const struct pd_worker *w, const struct pd_op *op)
{
	return w->config.gate ? op->microbatch / w->config.schedule->plan->microbatches : INT64_MAX;
}

/* The norms are complete when the last bucket's sum is. */
int worker_issue_norms(struct pd_worker *w, struct chunk *c, const struct pd_op *op)
{
	if (!worker_may_arm(w, &c->norms))
		return 0;
	worker_arm(w, &c->norms);
	worker_new_entry(w, op, &c->norms);
	return c->norm_sum->ops->start(c->norm_sum, worker_norms(c),
				       tag_of(w, op, c->bucket_count),
				       worker_event_of(w, worker_allreduced(c)),
				       &c->norms.events[0]) == 0 &&
	       pd_reduction_queue_add(&w->reductions, c->norm_sum, false) == 0 ? 1 : -1;
}

int worker_issue_allreduce(struct pd_worker *w, struct chunk *c, const struct pd_op *op)
{
	struct bucket *bucket = &c->buckets[op->bucket > 0 ? op->bucket - 1 : 0];
	struct sum *sums = worker_sum_of(w, c, op);
	struct bucket_sum *sum = &sums->buckets[bucket - c->buckets];
	float *gradients = (float *)sums->gradients + bucket->begin;

	if (!worker_may_arm(w, &bucket->allreduce) || worker_global_norm_pending(w) ||
	    (!sum->ready && !worker_may_arm(w, &sum->summed)))
		return 0;
	if (!sum->ready) {      /* the replica has no microbatch in the last group: it adds zeros */
		worker_arm(w, &sum->summed);
		sum->ready = &sum->summed;
		if (pd_submit_sum(w->compute, gradients, NULL, 0, bucket->floats,
						    &sum->summed.events[0]) != 0)
			return -1;
	}
	if (c->residual) {
		gradients = sums->gradients;
		if (pd_sparse_at(bucket->reduction, minibatch_of(w, op), NULL) < 0)
			return -1;
	}
	worker_arm(w, &bucket->allreduce);
	worker_new_entry(w, op, &bucket->allreduce);
	return bucket->reduction->ops->start(bucket->reduction, gradients,
					     tag_of(w, op, (int)(bucket - c->buckets)),
					     worker_event_of(w, sum->ready),
					     &bucket->allreduce.events[0]) == 0 &&
	       pd_reduction_queue_add(&w->reductions, bucket->reduction, op->more) == 0 ? 1 : -1;
}

int worker_issue_step(struct pd_worker *w, struct chunk *c, const struct pd_op *op)
{
	const struct pd_optimizer *o = &w->config.optimizer;
	struct sum *sum = worker_sum_of(w, c, op);
	int64_t microbatches = w->config.schedule->plan->microbatches;
	int64_t done = op->version / microbatches;
	struct fence *fence = &c->step[1 - c->step_turn];
	struct fence *before = w->global_norm ? worker_global_norm_done(w) : worker_allreduced(c);
	struct pd_update update = {
		.kind = o->kind, .gradients = sum->gradients, .velocity = c->velocity,
		.second = c->second, .master = c->master, .rate = pd_optimizer_rate(o, done) /
			pd_optimizer_divisor(o, c->delay, done),
		.hyper = o->hyper, .weight_decay = o->weight_decay, .spares_vectors = o->spares_vectors,
		.count = pd_optimizer_count(o, w->config.schedule->group[c->index] / microbatches,
					    done),
	};
	const void *from;
	void *to;

	update.places = worker_places(w, c);
	update.chunk = w->config.schedule->plan->chunk;
	/* It comes when the one before has ended, not sooner, so that it can join what follows. */
	if (!worker_may_arm(w, fence) || !worker_ended(w, &c->step[c->step_turn]))
		return 0;
	if (before && worker_after(w, w->compute, before) < 0)
		return -1;
	pd_weights_step(&c->weights, op->version, op->keep, &from, &to);
	update.weights = from;
	update.next = to;
	worker_fill_global_norm(w, c, from, to, &update.norm);
	if (c->delta) {
		update.delta = c->delta;
		update.corrected = c->corrected;
		update.delay = (double)c->delay;
		update.keep = pow(o->discrepancy, 1 / update.delay);
	}
	for (int i = 0; i < c->bucket_count; i++)
		sum->buckets[i].ready = NULL;
	sum->scale = NULL;
	sum->group += c->sum_count;
	sum->backwards = 0;
	c->step_turn = 1 - c->step_turn;
	worker_arm(w, fence);
	worker_new_entry(w, op, fence);
	return pd_submit_update(w->compute, c->net, &update, c->stage->first_layer, c->stage->layer_count,
				&fence->events[0]) == 0 ? 1 : -1;
}

int64_t pd_worker_norm_count(const struct pd_worker *w, int i)
{
	return worker_sparse_chunks(w, &w->chunks[i]);
}

int pd_worker_norms_get(struct pd_worker *w, int i, float *norms, struct pd_error *err)
{
	return worker_copy_now(w, norms, worker_norms(&w->chunks[i]),
			       (size_t)pd_worker_norm_count(w, i) * sizeof(float), PD_COPY_TO_HOST,
			       "the norms of chunks", err);
}

int pd_worker_norms_put(struct pd_worker *w, int i, const float *norms, struct pd_error *err)
{
	return worker_copy_now(w, worker_norms(&w->chunks[i]), norms,
			       (size_t)pd_worker_norm_count(w, i) * sizeof(float), PD_COPY_TO_DEVICE,
			       "the norms of chunks", err);
}
