/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of updates by every optimizer against the formulas. */
#include "engine/device/submit.h"
#include "stream.h"
#include "tap.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

/* Compares two steps with the formula, element by element. */
void test_sgd(const struct pd_device_ops *ops, struct chain *c, float momentum)
{
	const float rate = 0.1f, decay = 0.01f;
	int64_t n;
	float *w, *g, *v, *got;
	double off = 0;

	chain_forward(c);
	chain_backward(c);
	w = chain_export(c, WEIGHTS, &n);
	g = chain_export(c, GRADIENTS, &n);
	v = pd_calloc((size_t)n, sizeof(*v));
	chain_update(c, rate, momentum, decay);
	chain_update(c, rate, momentum, decay);
	got = chain_export(c, WEIGHTS, &n);
	for (int64_t i = 0; i < n; i++) {
		for (int step = 0; step < 2; step++) {
			v[i] = momentum * v[i] + (g[i] + decay * w[i]);
			w[i] -= rate * v[i];
		}
		off = fmax(off, fabs((double)w[i] - (double)got[i]));
	}
	if (!ok(off < 1e-6 && n > 1000, "%s: SGD with momentum %g", ops->name, (double)momentum))
		diag("off by %g", off);
	free(w);
	free(g);
	free(v);
	free(got);
}

/* Returns how far an optimizer moves a weight, by the formulas of the manual, in double. */
static double move_of(const struct pd_update *u, double w, double g, double *v, double *s)
{
	const struct pd_hyper *h = &u->hyper;
	double n = (double)u->count, decayed = g + u->weight_decay * w, way;

	switch (u->kind) {
	case PD_SGD:
		return u->rate * (*v = h->momentum * *v + decayed);
	case PD_NESTEROV:
		*v = h->momentum * *v + decayed;
		return u->rate * (decayed + h->momentum * *v);
	case PD_LION:
		way = h->beta1 * *v + (1 - h->beta1) * g;
		*v = h->beta2 * *v + (1 - h->beta2) * g;
		return u->rate * ((way > 0) - (way < 0) + u->weight_decay * w);
	default:
		g = u->kind == PD_ADAM ? decayed : g;
		*v = h->beta1 * *v + (1 - h->beta1) * g;
		*s = h->beta2 * *s + (1 - h->beta2) * g * g;
		return (u->kind == PD_ADAMW ? u->rate * u->weight_decay * w : 0) +
		       u->rate * *v / (1 - pow(h->beta1, n)) / (sqrt(*s / (1 - pow(h->beta2, n))) + h->eps);
	}
}

/* Compares some steps, each with its own gradient, with the formula. */
void test_formula(const struct pd_device_ops *ops, struct chain *c, enum pd_optimizer_kind kind)
{
	struct pd_update how = { .kind = kind, .rate = 0.01, .weight_decay = 0.1,
				 .hyper = { .momentum = 0.8, .beta1 = 0.8, .beta2 = 0.99, .eps = 1e-5 } };
	int64_t n;
	float *start = chain_export(c, WEIGHTS, &n), *got;
	double *w = pd_calloc((size_t)n, sizeof(*w)), *v = pd_calloc((size_t)n, sizeof(*v));
	double *s = pd_calloc((size_t)n, sizeof(*s)), off = 0, moved = 0;

	for (int64_t i = 0; i < n; i++)
		w[i] = start[i];
	for (how.count = 1; how.count <= 4; how.count++) {
		float *g;

		chain_forward(c);
		chain_backward(c);
		g = chain_export(c, GRADIENTS, &n);
		chain_step(c, &how);
		for (int64_t i = 0; i < n; i++)
			w[i] -= move_of(&how, w[i], g[i], &v[i], &s[i]);
		free(g);
	}
	got = chain_export(c, WEIGHTS, &n);
	for (int64_t i = 0; i < n; i++) {
		off = fmax(off, fabs(w[i] - (double)got[i]));
		moved = fmax(moved, fabs(w[i] - (double)start[i]));
	}
	if (!ok(off < 1e-6 && moved > 3e-3, "%s: %s against the formula", ops->name, pd_optimizer_kind_name[kind]))
		diag("off by %g, moved by %g", off, moved);
	free(start);
	free(got);
	free(w);
	free(v);
	free(s);
}

/* Sets all gradients to 0. */
static void be_still(struct chain *c)
{
	size_t bytes = c->stages[0].sizes->full_bytes;
	char *zeros = pd_calloc(bytes, 1);

	chain_copy(c, c->stages[0].gradients, zeros, bytes, PD_COPY_TO_DEVICE);
	free(zeros);
}

/*
 * Compares two updates by SGD or LARS, without decay of tensors of one axis, with the formulas.  still: all
 * gradients are 0.
 */
void test_by_tensor(const struct pd_device_ops *ops, struct chain *c, enum pd_optimizer_kind kind, bool still)
{
	const struct pd_update how = { .kind = kind, .rate = 0.1, .hyper.momentum = 0.9, .weight_decay = 0.1,
				       .spares_vectors = true, .hyper.trust = 0.05 };
	const struct pd_named *list;
	int count = ops->net.named(c->stages[0].net, &list), vectors = 0;
	int64_t n, at = 0;
	float *w = chain_export(c, WEIGHTS, &n), *got, *g;
	double off = 0, *v = pd_calloc((size_t)n, sizeof(*v));

	chain_forward(c);
	chain_backward(c);
	if (still)
		be_still(c);
	g = chain_export(c, GRADIENTS, &n);
	chain_step(c, &how);
	chain_step(c, &how);
	got = chain_export(c, WEIGHTS, &n);
	for (int k = 0; k < count; k++) {
		bool vector = list[k].dims == 1;
		double decay = vector ? 0 : 0.1;

		if (list[k].part != PD_PART_PARAMETER)
			continue;
		vectors += vector;
		for (int step = 0; step < 2; step++) {
			double ww = 0, gg = 0, local = 1;

			for (int64_t i = at; i < at + list[k].elements; i++) {
				ww += (double)w[i] * w[i];
				gg += (double)g[i] * g[i];
			}
			if (kind == PD_LARS && !vector && ww > 0)
				local = 0.05 * sqrt(ww) / (sqrt(gg) + decay * sqrt(ww));
			for (int64_t i = at; i < at + list[k].elements; i++) {
				double d = g[i] + decay * w[i];

				v[i] = 0.9 * v[i] + (kind == PD_LARS ? 0.1 * local * d : d);
				w[i] = (float)(w[i] - (kind == PD_LARS ? v[i] : 0.1 * v[i]));
			}
		}
		for (int64_t i = at; i < at + list[k].elements; i++)
			off = fmax(off, fabs((double)w[i] - (double)got[i]));
		at += list[k].elements;
	}
	if (!ok(off < 1e-6 && at == n && vectors > 0, "%s: %s, without decay of biases%s", ops->name,
		kind == PD_LARS ? "LARS" : "SGD", still ? ", with gradients of 0" : ""))
		diag("off by %g, %d tensors of one axis", off, vectors);
	free(w);
	free(g);
	free(got);
	free(v);
}

/* Tells whether the parameters exported from two arenas are the same and all finite. */
static bool same_and_finite(const struct pd_device_ops *ops, const struct stage *s, const char *a,
			    const char *b)
{
	const struct pd_named *list;
	int n = ops->net.named(s->net, &list);
	bool good = true;

	for (int i = 0; i < n; i++) {
		int64_t count = list[i].elements;
		float *x = pd_calloc((size_t)count, sizeof(*x));
		float *y = pd_calloc((size_t)count, sizeof(*y));

		if (list[i].part == PD_PART_PARAMETER) {
			ops->net.export(s->net, i, PD_FULL, a, x);
			ops->net.export(s->net, i, PD_FULL, b, y);
		}
		for (int64_t k = 0; k < count; k++)
			good = good && isfinite(x[k]) && x[k] == y[k];
		free(x);
		free(y);
	}
	return good;
}

/* Tests updates with gradients of all sizes, early and late, in place and out of place. */
void test_extremes(const struct pd_device_ops *ops, struct chain *c,
			       enum pd_optimizer_kind kind)
{
	static const float sizes[] = { 0, 1e-38f, 1e-20f, 1e-8f, -1, 1e8f, -1e18f };
	static const int64_t counts[] = { 1, 2, 1000, INT64_C(1) << 40 };
	struct stage *s = &c->stages[0];
	size_t bytes = s->sizes->weights_bytes, count = bytes / sizeof(float);
	char *next = ops->memory.alloc(c->device, bytes, NULL), *v = ops->memory.alloc(c->device,
										       bytes, NULL);
	char *second = ops->memory.alloc(c->device, bytes, NULL);
	float *g = pd_calloc(count, sizeof(*g));
	bool good = true;

	pd_submit_copy(c->stream, v, s->velocity, bytes, PD_COPY_WITHIN, NULL);
	pd_submit_copy(c->stream, second, s->second, bytes, PD_COPY_WITHIN, NULL);
	for (size_t k = 0; k < PD_COUNT(counts); k++) {
		struct pd_update update = {
			.kind = kind, .weights = s->weights, .next = next, .velocity = v,
			.second = second, .gradients = s->gradients, .rate = 0.5,
			.weight_decay = 0.01, .hyper.beta1 = 0.9, .hyper.beta2 = 0.999, .hyper.eps = 1e-8,
			.count = counts[k],
		};
		struct pd_event ev;

		for (size_t i = 0; i < count; i++)
			g[i] = sizes[(i + k) % PD_COUNT(sizes)];
		pd_event_arm(&ev);
		pd_submit_copy(c->stream, s->gradients, g, bytes, PD_COPY_TO_DEVICE, NULL);
		pd_submit_update(c->stream, s->net, &update, s->first, s->count, NULL);
		update.next = s->weights;
		update.velocity = s->velocity;
		update.second = s->second;
		pd_submit_update(c->stream, s->net, &update, s->first, s->count, &ev);
		pd_event_wait(&ev, &c->gate);
		good = good && same_and_finite(ops, s, next, s->weights) &&
		       same_and_finite(ops, s, v, s->velocity) &&
		       same_and_finite(ops, s, second, s->second);
	}
	ok(good, "%s: %s of gradients of all sizes is finite, the same in place", ops->name,
	   pd_optimizer_kind_name[kind]);
	ops->memory.free(c->device, next);
	ops->memory.free(c->device, v);
	ops->memory.free(c->device, second);
	free(g);
}

/* Tests an update of one layer out of place, which must not touch the rest of `next`. */
void test_sgd_range(const struct pd_device_ops *ops, struct chain *c)
{
	struct stage *s = &c->stages[0];
	float *next = ops->memory.alloc(c->device, s->sizes->weights_bytes, NULL);
	struct pd_update update = { .weights = s->weights, .next = next,
				    .gradients = s->gradients, .rate = 0.5f };
	const struct pd_named *list;
	int n = ops->net.named(s->net, &list), c2 = pd_model_find(c->model, "c2");
	bool good = true;
	struct pd_event ev;

	pd_event_arm(&ev);
	pd_submit_update(c->stream, s->net, &update, c2, 1, &ev);
	pd_event_wait(&ev, &c->gate);
	for (int i = 0; i < n; i++) {
		float *host = pd_calloc((size_t)list[i].elements, sizeof(float));
		bool any = false;

		if (list[i].part == PD_PART_PARAMETER)
			ops->net.export(s->net, i, PD_FULL, next, host);
		for (int64_t k = 0; k < list[i].elements; k++)
			any |= host[k] != 0;
		good = good && any == (list[i].layer == c2);
		free(host);
	}
	ok(good, "%s: SGD of one layer, out of place", ops->name);
	ops->memory.free(c->device, next);
}

/* Tests an update that ranks agree on: its gradients are clipped, or it is skipped. */
void test_agreed(const struct pd_device_ops *ops, struct chain *c, bool skip)
{
	struct stage *s = &c->stages[0];
	int layers = c->model->layer_count;
	double *sums = pd_calloc((size_t)layers + 1, sizeof(*sums)), off = 0;
	struct pd_scale before = { .loss_scale = 2, .good = 1 }, after;
	char *vector, *at = chain_put(c, &before, sizeof(before));
	struct pd_outcome outcome = { 0 };
	struct pd_update update = {
		.weights = s->weights, .next = s->weights, .gradients = s->gradients, .rate = 0.5,
		.norm = { .layers = layers, .clip_norm = 3, .growth = 2, .backoff = 0.5,
			  .least = 1, .interval = 2, .before = (const struct pd_scale *)at,
			  .next = (struct pd_scale *)at, .outcome = &outcome },
	};
	float *w = chain_export(c, WEIGHTS, &(int64_t){ 0 }), *g, *got;
	struct pd_event ev;
	int64_t n;

	for (int l = 0; l < layers; l++)
		sums[l] = l == 1 ? 12 * 12 * 4 : skip && l == 2 ? INFINITY : PD_ABSENT;
	sums[layers] = 2;
	vector = chain_put(c, sums, sizeof(*sums) * (size_t)(layers + 1));
	update.norm.vector = (const double *)vector;
	pd_event_arm(&ev);
	pd_submit_update(c->stream, s->net, &update, s->first, s->count, &ev);
	pd_event_wait(&ev, &c->gate);
	g = chain_export(c, GRADIENTS, &n);
	got = chain_export(c, WEIGHTS, &n);
	for (int64_t i = 0; i < n; i++) {
		float factor = (float)(3 / (12 + 1e-6) / 2);
		float expected = skip ? w[i] : w[i] - 0.5f * (factor * g[i]);

		off = fmax(off, fabs((double)expected - (double)got[i]));
	}
	chain_copy(c, &after, at, sizeof(after), PD_COPY_TO_HOST);
	if (!ok(off < 1e-7 && outcome.skip == skip && (skip || outcome.norm == 12) &&
		outcome.next_loss_scale == (skip ? 1 : 4) && after.skipped == skip &&
		after.loss_scale == outcome.next_loss_scale && after.good == 0,
		"%s: an update that is %s, and the scale after it", ops->name,
		skip ? "skipped" : "clipped"))
		diag("off by %g, norm %g, scale %g", off, outcome.norm, after.loss_scale);
	ops->memory.free(c->device, vector);
	ops->memory.free(c->device, at);
	free(sums);
	free(w);
	free(g);
	free(got);
}
