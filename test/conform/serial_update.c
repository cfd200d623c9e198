/* SPDX-License-Identifier: Apache-2.0 */
/* Updates of the weights (serial.c states them), and the sums of gradients before them. */
#include "serial.h"

#include "base/half.h"
#include "base/mem.h"
#include "engine/device/submit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Returns the learning rate after minibatch m, counted from the beginning, as in pd-run's manual. */
static double rate_after(const struct trainer *t, int64_t m)
{
	int64_t before = asked.lr_warmup;
	double part = m > before ? (double)(m - before) / (double)(asked.minibatches - before) : 0;
	double now = asked.rate;

	if (asked.lr_schedule == 1)
		now *= pow(asked.lr_gamma, (double)(m / (asked.lr_step * t->epoch)));
	if (asked.lr_schedule == 2)
		now *= pow(1 - part, asked.lr_power);
	if (asked.lr_schedule == 3)
		now *= (1 + cos(M_PI * part)) / 2;
	return m + 1 < asked.lr_warmup ? now * ((double)(m + 1) / (double)asked.lr_warmup) : now;
}

static float decay_of(const struct tensor *v)
{
	return asked.decay == 1 && v->named->dims == 1 ? 0 : (float)asked.weight_decay;
}

/* Returns the Euclidean norm. */
static double norm_of(const float *x, size_t count)
{
	double sum = 0;

	for (size_t i = 0; i < count; i++)
		sum += (double)x[i] * (double)x[i];
	return sqrt(sum);
}

/* Computes v = momentum v + rate trust |w| / (g + decay |w|) (sum + decay w);  w' = w - v, with g = |sum|. */
__attribute__((optimize("fp-contract=off")))
static void lars(struct tensor *v, const float *old, float *new, double now, double g)
{
	double w = norm_of(old, v->elements);
	float step;

	if (v->named->dims > 1 && w > 0 && g + asked.weight_decay * w > 0)
		now *= asked.trust * w / (g + asked.weight_decay * w);
	step = (float)now;
	for (size_t i = 0; i < v->elements; i++) {
		v->velocity[i] = (float)asked.momentum * v->velocity[i] +
				 step * (v->sum[i] + decay_of(v) * old[i]);
		new[i] = old[i] - v->velocity[i];
	}
}

/*
 * Computes g = sum + decay w;  v = momentum v + g;  w' = w - rate v, if `masked` only within the mask;
 * nesterov w' = w - rate (g + momentum v).
 */
__attribute__((optimize("fp-contract=off")))
static void sgd(struct tensor *v, const float *old, float *new, float step, bool masked)
{
	for (size_t i = 0; i < v->elements; i++) {
		float g = v->sum[i] + decay_of(v) * old[i];

		new[i] = old[i];
		if (masked && v->mask[i] == 0)
			continue;
		v->velocity[i] = (float)asked.momentum * v->velocity[i] + g;
		new[i] = old[i] - step * (asked.optimizer == NESTEROV ? g + (float)asked.momentum * v->velocity[i]
							       : v->velocity[i]);
	}
}

/* Computes w' = (1 - now decay) w - now sign(beta1 v + (1 - beta1) sum), then v = beta2 v + (1 - beta2) sum. */
__attribute__((optimize("fp-contract=off")))
static void lion(struct tensor *v, const float *old, float *new, double now)
{
	float keep = decay_of(v) > 0 ? (float)(1 - now * asked.weight_decay) : 1;

	for (size_t i = 0; i < v->elements; i++) {
		float way = (float)asked.beta1 * v->velocity[i] + (float)(1 - asked.beta1) * v->sum[i];

		new[i] = keep * old[i] - (float)now * (float)((way > 0) - (way < 0));
		v->velocity[i] = (float)asked.beta2 * v->velocity[i] + (float)(1 - asked.beta2) * v->sum[i];
	}
}

/*
 * Updates by Adam, with v and s the moments after n updates and their bias corrected:
 *     w' = w - now v / (1 - beta1^n) / (sqrt(s / (1 - beta2^n)) + epsilon)
 * The decay is added to the gradient; with adamw it is subtracted from w.
 */
__attribute__((optimize("fp-contract=off")))
static void adam(struct tensor *v, const float *old, float *new, double now)
{
	bool apart = asked.optimizer == ADAMW;
	double n = (double)v->updates;
	float step = (float)(now / (1 - pow(asked.beta1, n))), root = (float)sqrt(1 - pow(asked.beta2, n));
	float keep = apart && decay_of(v) > 0 ? (float)(1 - now * asked.weight_decay) : 1;

	for (size_t i = 0; i < v->elements; i++) {
		float g = v->sum[i] + (apart ? 0 : decay_of(v)) * old[i];

		v->velocity[i] = (float)asked.beta1 * v->velocity[i] + (float)(1 - asked.beta1) * g;
		v->second[i] = (float)asked.beta2 * v->second[i] + (float)(1 - asked.beta2) * (g * g);
		new[i] = keep * old[i] - step * (v->velocity[i] / (sqrtf(v->second[i]) / root +
								   (float)asked.epsilon));
	}
}

__attribute__((optimize("fp-contract=off")))
static void correct(struct tensor *v, const float *old, const float *new, double late)
{
	double c = pow(asked.discrepancy, 1 / late);

	for (size_t i = 0; i < v->elements; i++) {
		v->delta[i] = (float)c * v->delta[i] + (float)(1 - c) * (new[i] - old[i]);
		v->seen[i] = new[i] - (float)late * v->delta[i];
	}
}

/* Updates a tensor by its sum times a factor after microbatch b, counted from the beginning. */
static void update(const struct trainer *t, struct tensor *v, int64_t b, double next_scale, double factor)
{
	const float *old = v->versions[v->count - 1];
	float *new = pd_calloc(v->elements, sizeof(float));

	int64_t late = serial_lateness(t->plan, serial_stage_of(t->plan, v));
	int64_t m = b / t->plan->microbatches;
	double now = rate_after(t, m), norm = norm_of(v->sum, v->elements) * factor;

	for (size_t k = 0; k < v->elements; k++)
		v->sum[k] = (float)(factor * (double)v->sum[k]);
	if (late > 0 && m < asked.lr_reschedule)
		now /= pow((double)late, 1 - (double)m / (double)asked.lr_reschedule);
	v->updates++;
	if (asked.optimizer == LARS)
		lars(v, old, new, now, norm);
	else if (asked.optimizer == LION)
		lion(v, old, new, now);
	else if (asked.optimizer == ADAM || asked.optimizer == ADAMW)
		adam(v, old, new, now);
	else
		sgd(v, old, new, (float)now,
		    serial_is_sparse(t->plan, pd_plan_stage_of_layer(t->plan, v->named->layer)));
	if (serial_corrects(t, v))
		correct(v, old, new, (double)late);
	serial_add_version(v, new, next_scale);
}

/* Returns the sum of the squares of all of a group's gradients, added up layer after layer. */
static double all_squares(struct trainer *t)
{
	int layers = t->model->layer_count;
	double *vector = pd_calloc((size_t)layers + 1, sizeof(*vector)), sum = 0;
	struct pd_squares what = {
		.gradients = t->gradients, .vector = (double *)t->vector, .clear = true,
	};
	struct pd_event ev;

	for (int i = 0; i < t->count; i++)
		if (t->tensors[i].named->part == PD_PART_PARAMETER)
			t->ops->net.import(t->net, i, PD_FULL, t->gradients, t->tensors[i].sum);
	pd_submit_squares(t->stream, t->net, &what, NULL);
	pd_event_arm(&ev);
	pd_submit_copy(t->stream, vector, t->vector, (size_t)layers * sizeof(*vector), PD_COPY_TO_HOST, &ev);
	pd_event_wait(&ev, &t->gate);
	for (int l = 0; l < layers; l++)
		sum += vector[l] >= 0 || isnan(vector[l]) ? vector[l] : 0;
	free(vector);
	return sum;
}

static double scale_after(struct trainer *t, double used, double now, bool finite)
{
	if (asked.loss_scale_interval == 0)
		return now;
	t->good = finite ? t->good + 1 : 0;
	if (!finite)
		return fmin(now, fmax(used / 2, 1));
	if (t->good < asked.loss_scale_interval)
		return now;
	t->good = 0;
	return 2 * now;
}

/* Adds a gradient to the sum, or copies the first one. */
static void add(float *sum, const float *gradient, size_t elements, bool first)
{
	for (size_t i = 0; i < elements; i++)
		sum[i] = first ? gradient[i] : sum[i] + gradient[i];
}

/* Sums the gradients of all layers that share this parameter, from the last to the first. */
static void sum_copies(struct trainer *t, struct tensor *owner)
{
	struct tensor *copies[16];
	int n = 0;

	for (int i = t->count - 1; i >= 0; i--)
		if (strcmp(t->tensors[i].named->name, owner->named->name) == 0)
			copies[n++] = &t->tensors[i];
	for (int k = 1; k < n; k++)
		add(copies[0]->sum, copies[k]->sum, owner->elements, false);
	for (int k = 1; k < n; k++)
		memcpy(copies[k]->sum, copies[0]->sum, owner->elements * sizeof(float));
}

/* Updates all tensors together at the end of the group of microbatch b. */
static void update_all(struct trainer *t, int64_t b)
{
	const struct tensor *any = serial_parameter(t);
	double used = any->scales[serial_version(t, any, b, true)];
	double now = any->scales[any->count - 1], squares, norm, factor, next;
	bool finite;

	for (int i = 0; i < t->count && asked.mutation != UNTIED; i++)
		if (t->tensors[i].named->part == PD_PART_PARAMETER && !t->tensors[i].named->copy)
			sum_copies(t, &t->tensors[i]);
	squares = all_squares(t);
	norm = sqrt(squares) / used;
	factor = asked.mutation == UNSCALE ? 1 : 1 / used;
	finite = isfinite(squares) || asked.mutation == SKIP;
	next = scale_after(t, asked.mutation == SCALE ? now / 2 : used, now, finite);
	if (asked.clip_norm > 0 && asked.clip_norm / (norm + 1e-6) < 1 && asked.mutation != CLIP)
		factor = asked.clip_norm / (norm + 1e-6) / used;
	t->skipped += !finite;
	for (int i = 0; i < t->count; i++) {
		struct tensor *v = &t->tensors[i];

		if (v->named->part != PD_PART_PARAMETER)
			continue;
		if (finite) {
			update(t, v, t->first + b, next, factor);
		} else {
			float *same = pd_calloc(v->elements, sizeof(float));

			memcpy(same, v->versions[v->count - 1], v->elements * sizeof(float));
			serial_add_version(v, same, next);
		}
	}
}

void serial_round(const struct pd_plan *plan, float *x, size_t elements)
{
	bool adapts = plan->profile->dtype == PD_F16 || asked.loss_scale_interval > 0;
	double loss_scale = asked.loss_scale > 0 ? asked.loss_scale : 1;
	float scale = adapts ? 1 : (float)exp2(10 - round(log2(loss_scale))), most = 65504 / scale;

	for (size_t i = 0; i < elements && plan->gradient_dtype == PD_BF16; i++)
		x[i] = pd_from_bf16(pd_to_bf16(x[i]));
	for (size_t i = 0; i < elements && plan->gradient_dtype == PD_F16; i++) {
		if (!adapts && isfinite(x[i]) && fabsf(x[i]) > most)
			x[i] = copysignf(most, x[i]);
		x[i] = pd_from_f16(pd_to_f16(x[i] * scale)) / scale;
	}
}

void serial_round_sum(const struct pd_plan *plan, float *x, size_t elements)
{
	if (plan->reducer != PD_REDUCER_doubling)
		serial_round(plan, x, elements);
}

/* Adds the replicas' sums in their order; replicas without a microbatch have zeros. */
static void add_replicas(const struct trainer *t, struct tensor *v, int64_t replicas)
{
	for (int64_t k = 0; k < replicas; k++) {
		if (replicas > 1 && asked.mutation != ROUND)
			serial_round(t->plan, v->parts[k], v->elements);
		add(v->sum, v->parts[k], v->elements, k == 0);
		memset(v->parts[k], 0, v->elements * sizeof(float));
	}
	if (replicas > 1)
		serial_round_sum(t->plan, v->sum, v->elements);
}

/* Adds a tensor's gradient of microbatch b, and updates the tensor if its group is complete; returns true
 * if it is complete, but the tensor is updated together with others.  `last` is as in serial_learn(). */
static bool learn(struct trainer *t, struct tensor *v, int number, int64_t b, int64_t last)
{
	const struct pd_stage *stage = serial_stage_of(t->plan, v);
	int64_t replicas = stage->replicas, member = b % replicas;
	int64_t in_group = b % serial_group(t->plan, stage);

	if (v->named->part != PD_PART_PARAMETER) {
		/* Each microbatch changes the state of its own lanes. */
		if (member == 0 || t->model->layers[v->named->layer].lanes > 0)
			t->ops->net.export(t->net, number, PD_FULL, t->state, v->state);
		return false;
	}
	t->ops->net.export(t->net, number, PD_FULL, t->gradients, v->gradient);
	if (asked.mutation == SUM)            /* one sum for all replicas */
		add(v->parts[0], v->gradient, v->elements, in_group == 0);
	else
		add(v->parts[member], v->gradient, v->elements, in_group < replicas);
	if (in_group < serial_group(t->plan, stage) - 1 && b < last)
		return false;
	if (serial_is_sparse(t->plan, pd_plan_stage_of_layer(t->plan, v->named->layer)))
		return true;
	add_replicas(t, v, replicas);
	if (asked.clip_norm > 0 || asked.loss_scale > 0 || serial_has_tied_weights(t))
		return true;
	update(t, v, t->first + b, 1, 1);
	return false;
}

/* Updates a stage with sparse sums. */
static void update_sparse(struct trainer *t, int s, int64_t b)
{
	serial_sparse_sum(t, s, b);
	for (int i = 0; i < t->count; i++) {
		struct tensor *v = &t->tensors[i];

		if (v->named->part == PD_PART_PARAMETER &&
		    pd_plan_stage_of_layer(t->plan, v->named->layer) == s)
			update(t, v, t->first + b, 1, 1);
	}
}

void serial_learn(struct trainer *t, int64_t b, int64_t last)
{
	bool *complete = pd_calloc((size_t)t->plan->stage_count, sizeof(*complete));
	bool together = false;

	for (int i = 0; i < t->count; i++) {
		int s = pd_plan_stage_of_layer(t->plan, t->tensors[i].named->layer);
		bool done = learn(t, &t->tensors[i], i, b, last);

		complete[s] |= done && serial_is_sparse(t->plan, s);
		together |= done && !serial_is_sparse(t->plan, s);
	}
	for (int s = 0; s < t->plan->stage_count; s++)
		if (complete[s])
			update_sparse(t, s, b);
	if (together)
		update_all(t, b);
	free(complete);
}
