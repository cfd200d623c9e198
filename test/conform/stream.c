/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, elementwise work, named tensors: what a device does besides layers. */
#include "chain.h"
#include "tap.h"

#include "base/half.h"
#include "base/mem.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void test_order(const struct pd_device_ops *ops, struct chain *c)
{
	struct pd_stream *other = ops->stream.open(c->device, NULL);
	float host[4] = { 1, 2, 3, 4 }, back[4] = { 0 };
	struct pd_event go, copied, done;
	float *device;

	device = ops->memory.alloc(c->device, sizeof(host), NULL);
	pd_event_arm(&go);
	pd_event_arm(&copied);
	pd_event_arm(&done);
	ops->stream.wait(c->stream, &go);
	ops->stream.copy(c->stream, device, host, sizeof(host), PD_COPY_TO_DEVICE, &copied);
	ops->stream.wait(other, &copied);
	ops->stream.copy(other, back, device, sizeof(back), PD_COPY_TO_HOST, &done);
	usleep(20000);
	ok(!pd_event_done(&copied) && !pd_event_done(&done), "%s: a stream waits for an event",
	   ops->name);
	pd_event_complete(&go, 5, 6, &c->gate);
	pd_event_wait(&done, &c->gate);
	pd_event_wait(&copied, &c->gate);       /* the host may hear of it later */
	ok(memcmp(host, back, sizeof(host)) == 0, "%s: and another for its work", ops->name);
	ok(copied.start_ns > 0 && copied.start_ns <= copied.end_ns &&
	   (chain_untimed || copied.end_ns <= done.end_ns), "%s: work is stamped", ops->name);
	ops->stream.close(other);
	ops->memory.free(c->device, device);
}

static void test_full(const struct pd_device_ops *ops, struct chain *c)
{
	char *device = ops->memory.alloc(c->device, 2, NULL), host[2] = { 1, 0 };
	struct pd_event go, done;
	int put = 0, status = 0;

	pd_event_arm(&go);
	ops->stream.wait(c->stream, &go);
	ops->stream.copy(c->stream, device, host, 2, PD_COPY_TO_DEVICE, NULL);
	while (put < 100000 && status == 0) {
		status = ops->stream.copy(c->stream, device + 1, device, 1, PD_COPY_WITHIN, NULL);
		put += status == 0;
	}
	ok(put == 100000 || (status == PD_AGAIN && put >= 100),
	   "%s: a full queue says so (%d fit)", ops->name, put);
	pd_event_complete(&go, 0, 0, &c->gate);
	do {
		pd_event_arm(&done);
		status = ops->stream.copy(c->stream, host, device, 2, PD_COPY_TO_HOST, &done);
	} while (status == PD_AGAIN);
	pd_event_wait(&done, &c->gate);
	ok(status == 0 && host[1] == 1, "%s: and takes more later", ops->name);
	ops->memory.free(c->device, device);
}

/* dst may be any of the sources, or none; sums are taken in order. */
static void test_sum(const struct pd_device_ops *ops, struct chain *c)
{
	enum { N = 5003 };
	float *x[3], *dst, expected[3] = { 1e8f, 1, -1e8f };
	struct pd_event ev;
	bool good = true;

	for (int variant = -2; variant < 3; variant++) {
		float *host = pd_calloc(N, sizeof(float));
		int n = variant == -2 ? 0 : 3;

		for (int k = 0; k < 3; k++) {
			x[k] = (float *)ops->memory.alloc(c->device, N * sizeof(float), NULL);
			for (int i = 0; i < N; i++)
				host[i] = expected[k];
			pd_event_arm(&ev);
			ops->stream.copy(c->stream, x[k], host, N * sizeof(float),
					 PD_COPY_TO_DEVICE, &ev);
			pd_event_wait(&ev, &c->gate);
		}
		dst = variant >= 0 ? x[variant] : ops->memory.alloc(c->device, N * sizeof(float),
								    NULL);
		ops->math.sum(c->stream, dst, (const float *const *)x, n, N, NULL);
		pd_event_arm(&ev);
		ops->stream.copy(c->stream, host, dst, N * sizeof(float), PD_COPY_TO_HOST, &ev);
		pd_event_wait(&ev, &c->gate);
		for (int i = 0; i < N; i++)
			good = good && host[i] == (n ? (1e8f + 1) - 1e8f : 0);
		if (variant < 0)
			ops->memory.free(c->device, dst);
		for (int k = 0; k < 3; k++)
			ops->memory.free(c->device, x[k]);
		free(host);
	}
	ok(good, "%s: sums", ops->name);
}

/* Copies to the device and back, waiting. */
static void copy(const struct pd_device_ops *ops, struct chain *c, void *dst, const void *src,
		 size_t bytes, enum pd_copy way)
{
	struct pd_event ev;

	pd_event_arm(&ev);
	ops->stream.copy(c->stream, dst, src, bytes, way, &ev);
	pd_event_wait(&ev, &c->gate);
}

static uint16_t narrow(const struct pd_rounding *r, float x)
{
	x *= r->scale;
	if (r->saturates && isfinite(x) && fabsf(x) > 65504)
		x = copysignf(65504, x);
	return r->dtype == PD_BF16 ? pd_to_bf16(x) : pd_to_f16(x);
}

static float widen(const struct pd_rounding *r, uint16_t x)
{
	return (r->dtype == PD_BF16 ? pd_from_bf16(x) : pd_from_f16(x)) / r->scale;
}

enum { MIXED = 5003, MIXED_SOURCES = 3 };

/* Of magnitudes at which f16 with a scale of 1024 overflows, is normal, is denormal; and infinity. */
static float mixed_number(int k, int i)
{
	return i % 97 == 5 && k == 0 ? INFINITY
		: ldexpf((float)((i * 7919 + k * 104729) % 65537 - 32768), i % 41 - 47);
}

/* The sum of sources of which `narrow_sources` are of 16 bits, against plain C. */
static bool mixed_is_right(const struct pd_device_ops *ops, struct chain *c,
			   const struct pd_rounding *r, uint32_t narrow_sources, bool narrows, int n)
{
	struct pd_mixed_sum sum = { .rounding = *r, .n = n, .narrow = narrows,
				    .narrow_sources = narrow_sources, .count = MIXED };
	void *device[MIXED_SOURCES + 1];
	float host[MIXED], right[MIXED];
	uint16_t half[MIXED];
	bool good = true;

	for (int k = 0; k <= n; k++)
		device[k] = ops->memory.alloc(c->device, MIXED * sizeof(float), NULL);
	for (int k = 0; k < n; k++) {
		bool narrow_source = narrow_sources >> k & 1;

		for (int i = 0; i < MIXED; i++) {
			host[i] = mixed_number(k, i);
			half[i] = narrow(r, host[i]);
			host[i] = narrow_source ? widen(r, half[i]) : host[i];
			right[i] = k == 0 ? host[i] : right[i] + host[i];
		}
		copy(ops, c, device[k], narrow_source ? (void *)half : host,
		     MIXED * (narrow_source ? sizeof(*half) : sizeof(*host)), PD_COPY_TO_DEVICE);
		sum.src[k] = device[k];
	}
	sum.dst = device[n];
	ops->math.mixed_sum(c->stream, &sum, NULL);
	copy(ops, c, narrows ? (void *)half : host, device[n],
	     MIXED * (narrows ? sizeof(*half) : sizeof(*host)), PD_COPY_TO_HOST);
	for (int i = 0; i < MIXED; i++)
		good = good && (narrows ? half[i] == narrow(r, right[i]) : host[i] == right[i]);
	for (int k = 0; k <= n; k++)
		ops->memory.free(c->device, device[k]);
	return good;
}

static void test_mixed_sum(const struct pd_device_ops *ops, struct chain *c)
{
	static const struct pd_rounding roundings[] = {
		{ PD_BF16, 1, false }, { PD_F16, 1, false }, { PD_F16, 1024, true },
	};

	for (size_t r = 0; r < PD_COUNT(roundings); r++) {
		bool good = true;

		for (int n = 1; n <= MIXED_SOURCES; n++)
			for (uint32_t from = 0; from < 1U << n; from++)
				for (int to = 0; to < 2; to++)
					good = good && mixed_is_right(ops, c, &roundings[r], from, to, n);
		ok(good, "%s: sums of f32 and %s, scale %g", ops->name,
		   pd_dtype_name[roundings[r].dtype], (double)roundings[r].scale);
	}
}

static void test_named(const struct pd_device_ops *ops, struct chain *c)
{
	struct stage *s = &c->stages[0];
	const struct pd_named *list;
	int n = ops->net.named(s->net, &list), found = -1;
	bool good = true;

	for (int i = 0; i < n; i++) {
		float *host = pd_calloc((size_t)list[i].elements, sizeof(float));
		float *back = pd_calloc((size_t)list[i].elements, sizeof(float));
		char *arena = list[i].part == PD_PART_STATE ? s->state : s->velocity;

		for (int64_t k = 0; k < list[i].elements; k++)
			host[k] = (float)(k + 1) + (float)i / 64;
		ops->net.import(s->net, i, PD_FULL, arena, host);
		ops->net.export(s->net, i, PD_FULL, arena, back);
		good = good && memcmp(host, back, (size_t)list[i].elements * 4) == 0;
		found = strcmp(list[i].name, "n1.running_var") == 0 ? i : found;
		free(host);
		free(back);
	}
	ok(good && n == 17, "%s: %d named tensors, there and back", ops->name, n);
	ok(found >= 0 && list[found].part == PD_PART_STATE && list[found].elements == 20 &&
	   strcmp(list[0].name, "c1.weight") == 0 && list[0].dims == 4,
	   "%s: under their names", ops->name);
}

static void test_init(const struct pd_device_ops *ops, struct chain *c)
{
	int64_t n;
	float *w = chain_export(c, WEIGHTS, &n), *s = chain_export(c, STATE, &n);
	float bound = sqrtf(6.0f / 27), most = 0;
	double sum = 0;

	for (int i = 0; i < 20 * 27; i++) {
		most = fabsf(w[i]) > most ? fabsf(w[i]) : most;
		sum += w[i];
	}
	ok(most <= bound && most > 0.95f * bound && fabs(sum) / (20 * 27) < 0.1 * bound,
	   "%s: weights are uniform up to sqrt(6 / fan-in)", ops->name);
	ok(w[20 * 27] == 0 && w[20 * 27 + 20] == 1 && w[20 * 27 + 40] == 0,
	   "%s: biases zero, scales one", ops->name);
	ok(s[0] == 0 && s[20] == 1, "%s: running mean zero, variance one", ops->name);
	free(w);
	free(s);
}

/* Of a normal distribution two thirds are nearer to 0 than its deviation, and one in 22 twice as
 * far away as that or further. */
static void test_normal_init(const struct pd_device_ops *ops)
{
	struct pd_model *model = model_of("50",
		"{'name': 'it', 'kind': 'linear', 'inputs': ['x'], 'out_features': 81, "
		"'init': {'weight': 'normal(0.02)', 'bias': -2}}, {'name': 'loss', 'kind': "
		"'softmax_cross_entropy', 'inputs': ['it', 'y']}");
	struct chain *c = chain_open(ops, model, NULL, 0, 2, 1, 1);
	double sum = 0, squares = 0, near = 0, far = 0;
	const double count = 50 * 81;
	int64_t n;
	float *w = chain_export(c, WEIGHTS, &n);

	for (int i = 0; i < 50 * 81; i++) {
		double z = (double)w[i] / 0.02;

		sum += z;
		squares += z * z;
		near += fabs(z) < 1;
		far += fabs(z) > 2;
	}
	ok(fabs(sum / count) < 0.05 && fabs(squares / count - 1) < 0.05 &&
	   fabs(near / count - 0.6827) < 0.02 && fabs(far / count - 0.0455) < 0.01,
	   "%s: normal weights, as the model says", ops->name);
	ok(w[50 * 81] == -2 && w[n - 1] == -2, "%s: and biases of one value", ops->name);
	free(w);
	chain_close(c);
	pd_model_free(model);
}

/* Two steps, against the formula, element by element. */
static void test_sgd(const struct pd_device_ops *ops, struct chain *c, float momentum)
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

/*
 * Some steps with a gradient each, against the formula in double.  What float loses is bounded
 * by the step itself, which is as large as the rate.
 */
static void test_adam(const struct pd_device_ops *ops, struct chain *c, enum pd_update_kind kind)
{
	struct pd_update how = { .kind = kind, .rate = 0.01, .weight_decay = 0.1, .beta1 = 0.8,
				 .beta2 = 0.99, .eps = 1e-5 };
	int64_t n;
	float *start = chain_export(c, WEIGHTS, &n), *got;
	double *w = pd_calloc((size_t)n, sizeof(*w)), *m = pd_calloc((size_t)n, sizeof(*m));
	double *s = pd_calloc((size_t)n, sizeof(*s)), off = 0, moved = 0;

	for (int64_t i = 0; i < n; i++)
		w[i] = start[i];
	for (how.count = 1; how.count <= 4; how.count++) {
		float *g;

		chain_forward(c);
		chain_backward(c);
		g = chain_export(c, GRADIENTS, &n);
		chain_step(c, &how);
		for (int64_t i = 0; i < n; i++) {
			double d = g[i] + (kind == PD_ADAM ? 0.1 * w[i] : 0);

			m[i] = 0.8 * m[i] + 0.2 * d;
			s[i] = 0.99 * s[i] + 0.01 * d * d;
			w[i] -= kind == PD_ADAMW ? 0.01 * 0.1 * w[i] : 0;
			w[i] -= 0.01 * m[i] / (1 - pow(0.8, (double)how.count)) /
				(sqrt(s[i] / (1 - pow(0.99, (double)how.count))) + 1e-5);
		}
		free(g);
	}
	got = chain_export(c, WEIGHTS, &n);
	for (int64_t i = 0; i < n; i++) {
		off = fmax(off, fabs(w[i] - (double)got[i]));
		moved = fmax(moved, fabs(w[i] - (double)start[i]));
	}
	if (!ok(off < 1e-6 && moved > 0.03, "%s: %s against the formula", ops->name,
		kind == PD_ADAM ? "Adam" : "AdamW"))
		diag("off by %g, moved by %g", off, moved);
	free(start);
	free(got);
	free(w);
	free(m);
	free(s);
}

/* Compares two updates by SGD or LARS, without decay of tensors of one axis, with the formulas. */
static void test_by_tensor(const struct pd_device_ops *ops, struct chain *c, enum pd_update_kind kind)
{
	const struct pd_update how = { .kind = kind, .rate = 0.1, .momentum = 0.9, .weight_decay = 0.1,
				       .spares_vectors = true, .trust = 0.05 };
	const struct pd_named *list;
	int count = ops->net.named(c->stages[0].net, &list), vectors = 0;
	int64_t n, at = 0;
	float *w = chain_export(c, WEIGHTS, &n), *got, *g;
	double off = 0, *v = pd_calloc((size_t)n, sizeof(*v));

	chain_forward(c);
	chain_backward(c);
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
			if (kind == PD_LARS && !vector && ww > 0 && gg > 0)
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
	if (!ok(off < 1e-6 && at == n && vectors > 0, "%s: %s, without decay of biases", ops->name,
		kind == PD_LARS ? "LARS" : "SGD"))
		diag("off by %g, %d tensors of one axis", off, vectors);
	free(w);
	free(g);
	free(got);
	free(v);
}

/* What export gives of two arenas: the same, and every number finite. */
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

/* Gradients of all sizes, early and late, in place and out of place. */
static void test_adam_extremes(const struct pd_device_ops *ops, struct chain *c,
			       enum pd_update_kind kind)
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

	ops->stream.copy(c->stream, v, s->velocity, bytes, PD_COPY_WITHIN, NULL);
	ops->stream.copy(c->stream, second, s->second, bytes, PD_COPY_WITHIN, NULL);
	for (size_t k = 0; k < PD_COUNT(counts); k++) {
		struct pd_update update = {
			.kind = kind, .weights = s->weights, .next = next, .velocity = v,
			.second = second, .gradients = s->gradients, .rate = 0.5,
			.weight_decay = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8,
			.count = counts[k],
		};
		struct pd_event ev;

		for (size_t i = 0; i < count; i++)
			g[i] = sizes[(i + k) % PD_COUNT(sizes)];
		pd_event_arm(&ev);
		ops->stream.copy(c->stream, s->gradients, g, bytes, PD_COPY_TO_DEVICE, NULL);
		ops->net.update(c->stream, s->net, &update, s->first, s->count, NULL);
		update.next = s->weights;
		update.velocity = s->velocity;
		update.second = s->second;
		ops->net.update(c->stream, s->net, &update, s->first, s->count, &ev);
		pd_event_wait(&ev, &c->gate);
		good = good && same_and_finite(ops, s, next, s->weights) &&
		       same_and_finite(ops, s, v, s->velocity) &&
		       same_and_finite(ops, s, second, s->second);
	}
	ok(good, "%s: %s of gradients of all sizes is finite, the same in place", ops->name,
	   kind == PD_ADAM ? "Adam" : "AdamW");
	ops->memory.free(c->device, next);
	ops->memory.free(c->device, v);
	ops->memory.free(c->device, second);
	free(g);
}

/* Some layers only, out of place: the rest of `next` is not touched. */
static void test_sgd_range(const struct pd_device_ops *ops, struct chain *c)
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
	ops->net.update(c->stream, s->net, &update, c2, 1, &ev);
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

static void get(const struct pd_device_ops *ops, struct chain *c, void *host, const void *device,
		size_t bytes)
{
	struct pd_event ev;

	pd_event_arm(&ev);
	ops->stream.copy(c->stream, host, device, bytes, PD_COPY_TO_HOST, &ev);
	pd_event_wait(&ev, &c->gate);
}

static char *put(const struct pd_device_ops *ops, struct chain *c, const void *host, size_t bytes)
{
	char *device = ops->memory.alloc(c->device, bytes, NULL);

	ops->stream.copy(c->stream, device, host, bytes, PD_COPY_TO_DEVICE, NULL);
	get(ops, c, NULL, NULL, 0);     /* it is there: the host's may go */
	return device;
}

/* The vector that ranks agree on: sums of squares by layer, the scale last; united. */
static void test_squares(const struct pd_device_ops *ops, struct chain *c)
{
	struct stage *s = &c->stages[0];
	int layers = c->model->layer_count;
	size_t bytes = sizeof(double) * (size_t)(layers + 1);
	struct pd_scale scale = { .loss_scale = 4 };
	double *sums = pd_calloc((size_t)layers + 1, sizeof(*sums)), off = 0;
	double *got = pd_calloc((size_t)layers + 1, sizeof(*got));
	char *vector = put(ops, c, sums, bytes), *other, *at = put(ops, c, &scale, sizeof(scale));
	struct pd_squares what = { .gradients = s->gradients, .clear = true,
				   .vector = (double *)vector,
				   .scale = (const struct pd_scale *)at };
	const struct pd_named *list;
	int n = ops->net.named(s->net, &list);
	int64_t count, k = 0;
	float *g;

	chain_forward(c);
	chain_backward(c);
	g = chain_export(c, GRADIENTS, &count);
	for (int i = 0; i < n; i++)
		for (int64_t e = 0; list[i].part == PD_PART_PARAMETER && e < list[i].elements; e++, k++)
			sums[list[i].layer] += (double)g[k] * (double)g[k];
	ops->math.squares(c->stream, s->net, &what, NULL);
	get(ops, c, got, vector, bytes);
	for (int l = 0; l < layers; l++)
		off = fmax(off, sums[l] > 0 ? fabs(got[l] / sums[l] - 1)
					    : fabs(got[l] - PD_ABSENT));
	if (!ok(off < 1e-12 && got[layers] == 4, "%s: sums of squares by layer", ops->name))
		diag("off by %g, scale %g", off, got[layers]);
	for (int l = 0; l <= layers; l++)
		sums[l] = 100 + l;
	other = put(ops, c, sums, bytes);
	ops->math.unite(c->stream, (double *)vector, (const double *)other, (size_t)layers + 1,
			NULL);
	get(ops, c, sums, vector, bytes);
	off = 0;
	for (int l = 0; l <= layers; l++)
		off = fmax(off, fabs(sums[l] - (got[l] == PD_ABSENT ? 100 + l : got[l])));
	ok(off == 0, "%s: and united", ops->name);
	ops->memory.free(c->device, vector);
	ops->memory.free(c->device, other);
	ops->memory.free(c->device, at);
	free(g);
	free(sums);
	free(got);
}

/* Agreed updates: one whose gradients are clipped, and one that is skipped. */
static void test_agreed(const struct pd_device_ops *ops, struct chain *c, bool skip)
{
	struct stage *s = &c->stages[0];
	int layers = c->model->layer_count;
	double *sums = pd_calloc((size_t)layers + 1, sizeof(*sums)), off = 0;
	struct pd_scale before = { .loss_scale = 2, .good = 1 }, after;
	char *vector, *at = put(ops, c, &before, sizeof(before));
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
	vector = put(ops, c, sums, sizeof(*sums) * (size_t)(layers + 1));
	update.norm.vector = (const double *)vector;
	pd_event_arm(&ev);
	ops->net.update(c->stream, s->net, &update, s->first, s->count, &ev);
	pd_event_wait(&ev, &c->gate);
	g = chain_export(c, GRADIENTS, &n);
	got = chain_export(c, WEIGHTS, &n);
	for (int64_t i = 0; i < n; i++) {
		float factor = (float)(3 / (12 + 1e-6) / 2);
		float expected = skip ? w[i] : w[i] - 0.5f * (factor * g[i]);

		off = fmax(off, fabs((double)expected - (double)got[i]));
	}
	get(ops, c, &after, at, sizeof(after));
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

struct called {
	int posted, checked;
	bool refuses;
};

static int post_it(void *context, void *native, struct pd_error *err)
{
	struct called *called = context;

	called->posted++;
	return 0;
}

static int check_it(void *context, struct pd_error *err)
{
	struct called *called = context;

	called->checked = called->posted;
	return called->refuses ? pd_error_failed(err, "it did not go well") : 0;
}

/* Work of somebody else's, between work of the device's. */
static void test_call(const struct pd_device_ops *ops, struct chain *c)
{
	struct pd_stream *other = ops->stream.open(c->device, NULL);
	struct called called = { 0 };
	const struct pd_call call = { .post = post_it, .check = check_it, .context = &called };
	struct pd_event go, done, bad;

	pd_event_arm(&go);
	pd_event_arm(&done);
	ops->stream.wait(other, &go);
	ops->stream.call(other, &call, NULL);
	ops->stream.call(other, &call, &done);
	usleep(20000);
	ok(!pd_event_done(&done), "%s: a call waits for its turn", ops->name);
	pd_event_complete(&go, 5, 6, &c->gate);
	pd_event_wait(&done, &c->gate);
	ok(called.posted == 2 && called.checked == 2 && !pd_event_failed(&done) &&
	   done.start_ns <= done.end_ns, "%s: and is made and checked", ops->name);
	called.refuses = true;
	pd_event_arm(&bad);
	ops->stream.call(other, &call, &bad);
	pd_event_wait(&bad, &c->gate);
	ok(pd_event_failed(&bad) && strstr(c->gate.err.text, "did not go well"),
	   "%s: one that went wrong fails", ops->name);
	ops->stream.close(other);
}

/* Of the emulated GPU alone (contrib/emulate-cuda.sh). */
extern void emulated_hold(void *native) __attribute__((weak));

static int note_native(void *context, void *native, struct pd_error *err)
{
	*(void **)context = native;
	return 0;
}

static int nothing_wrong(void *context, struct pd_error *err)
{
	return 0;
}

/* Work that waits on the GPU, as a transfer may, holds up no event of another stream. */
static void test_held(const struct pd_device_ops *ops, struct chain *c)
{
	struct pd_stream *waits = ops->stream.open(c->device, NULL);
	void *native = NULL;
	const struct pd_call call = { .post = note_native, .check = nothing_wrong,
				      .context = &native };
	char *device = ops->memory.alloc(c->device, 2, NULL);
	struct pd_event first, second, other;

	if (!emulated_hold || strcmp(ops->name, "cuda") != 0) {
		skip("this device has no stream that can be held", "one stream waits");
	} else {
		pd_event_arm(&first);
		ops->stream.call(waits, &call, &first);
		pd_event_wait(&first, &c->gate);
		emulated_hold(native);
		pd_event_arm(&second);
		ops->stream.copy(waits, device, device + 1, 1, PD_COPY_WITHIN, &second);
		for (int i = 0; i < 300; i++) {
			pd_event_arm(&other);
			ops->stream.copy(c->stream, device, device + 1, 1, PD_COPY_WITHIN, &other);
			pd_event_wait(&other, &c->gate);
		}
		ok(!pd_event_done(&second), "%s: one stream waits, another goes on", ops->name);
		emulated_hold(NULL);
		pd_event_wait(&second, &c->gate);
		ok(!pd_event_failed(&second), "%s: and the first in the end, too", ops->name);
	}
	ops->stream.close(waits);
	ops->memory.free(c->device, device);
}

static int count_threads(void)
{
	DIR *tasks = opendir("/proc/self/task");
	int count = 0;

	while (tasks && readdir(tasks))
		count++;
	if (tasks)
		closedir(tasks);
	return count;
}

/* A thread for each stream, however the device finds out what is done. */
static void test_threads(const struct pd_device_ops *ops, struct chain *c)
{
	struct pd_stream *streams[8];
	int before = count_threads();

	for (size_t i = 0; i < PD_COUNT(streams); i++)
		streams[i] = ops->stream.open(c->device, NULL);
	is_int(count_threads() - before, (int)PD_COUNT(streams), "%s: threads of %zu streams",
	       ops->name, PD_COUNT(streams));
	for (size_t i = 0; i < PD_COUNT(streams); i++)
		ops->stream.close(streams[i]);
}

/* Last: after it the stream is of no more use. */
static void test_failure(const struct pd_device_ops *ops, struct chain *c)
{
	int64_t n = c->batch * pd_shape_elements(&c->model->inputs[0].shape);
	float *x = pd_calloc((size_t)n, sizeof(*x));
	int32_t y[3] = { 0, 10, 1 };
	struct pd_event ev, never;
	struct pd_stream *other;

	chain_load(c, x, y);
	ok(!chain_forward(c) && strstr(c->gate.err.text, "label 10"),
	   "%s: a label that is none fails the event: %s", ops->name, c->gate.err.text);
	pd_event_arm(&ev);
	ops->stream.copy(c->stream, x, x, 4, PD_COPY_WITHIN, &ev);
	pd_event_wait(&ev, &c->gate);
	ok(pd_event_failed(&ev), "%s: and all that follows", ops->name);
	pd_event_arm(&never);
	pd_event_arm(&ev);
	other = ops->stream.open(c->device, NULL);
	ops->stream.wait(other, &never);
	ops->stream.copy(other, x, x, 4, PD_COPY_WITHIN, &ev);
	ops->stream.close(other);
	ok(pd_event_failed(&ev), "%s: closing a stream then does not wait for what never comes",
	   ops->name);
	free(x);
}

static void test_device(const struct pd_device_ops *ops)
{
	struct pd_model *model = branching_model();
	struct chain *c = chain_open(ops, model, NULL, 0, 3, 17, 2);
	float *x = pd_calloc(3 * 3 * 64, sizeof(*x));
	int32_t y[3] = { 1, 2, 3 };

	for (int i = 0; i < 3 * 3 * 64; i++)
		x[i] = sinf((float)i);
	chain_load(c, x, y);
	test_init(ops, c);
	test_normal_init(ops);
	test_order(ops, c);
	test_full(ops, c);
	test_mixed_sum(ops, c);
	test_sum(ops, c);
	test_named(ops, c);
	chain_close(c);
	c = chain_open(ops, model, NULL, 0, 3, 17, 2);
	chain_load(c, x, y);
	test_sgd(ops, c, 0.9f);
	test_sgd(ops, c, 0);
	test_sgd_range(ops, c);
	if (ops->math.squares) {
		test_squares(ops, c);
		test_agreed(ops, c, false);
		test_agreed(ops, c, true);
	}
	chain_close(c);
	for (int lars = 0; lars <= 1; lars++) {
		c = chain_open(ops, model, NULL, 0, 3, 17, 2);
		chain_load(c, x, y);
		test_by_tensor(ops, c, lars ? PD_LARS : PD_SGD);
		chain_close(c);
	}
	for (enum pd_update_kind kind = PD_ADAM; kind <= PD_ADAMW; kind++) {
		c = chain_open(ops, model, NULL, 0, 3, 17, 2);
		chain_load(c, x, y);
		test_adam(ops, c, kind);
		test_adam_extremes(ops, c, kind);
		chain_close(c);
	}
	c = chain_open(ops, model, NULL, 0, 3, 17, 2);
	test_held(ops, c);
	test_threads(ops, c);
	test_call(ops, c);
	chain_close(c);
	chain_untimed = true;
	c = chain_open(ops, model, NULL, 0, 3, 17, 2);
	test_order(ops, c);
	test_held(ops, c);
	test_call(ops, c);
	chain_close(c);
	chain_untimed = false;
	c = chain_open(ops, model, NULL, 0, 3, 17, 2);
	chain_load(c, x, y);
	test_failure(ops, c);
	chain_close(c);
	free(x);
	pd_model_free(model);
}

int main(void)
{
	alarm(600);     /* a wait that never ends is a failure, too; compute-sanitizer is slow */
	for (int i = 0; pd_devices[i]; i++)
		if (chain_usable(pd_devices[i]))
			test_device(pd_devices[i]);
	return done_testing();
}
