/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests what a thread of our CUDA kernels computes (lib/run/device/cuda/arith.h), compiled for the
 * processor: windows of pooling against their definition, masks, losses and updates against
 * the CPU device's and plain loops.
 */
#include "tap.h"

#include "base/mem.h"
#include "run/device/cpu/cpu.h"
#include "run/device/cuda/arith.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SEED 77
#define FACTOR 0.37

static float random_at(uint32_t stream, int64_t i)
{
	return 2 * pd_unit(pd_random(SEED, stream, 0, (uint32_t)i).v[0]) - 1;
}

/* Tells whether input i belongs to output o's window exactly if o belongs to i's outputs. */
static bool agree(const struct pd_pool_shape *s)
{
	for (int i = 0; i < s->in[0]; i++) {
		struct pd_axis_range outputs = pd_pool_outputs(s, 0, i);

		for (int o = 0; o < s->out[0]; o++) {
			struct pd_axis_range window = pd_pool_window(s, 0, o);
			bool seen = i >= window.begin && i < window.end;

			if (seen != (o >= outputs.begin && o < outputs.end)) {
				diag("in %d, out %d: input %d and output %d", s->in[0], s->out[0],
				     i, o);
				return false;
			}
		}
		if (outputs.begin < 0 || outputs.end > s->out[0])
			return false;
	}
	return true;
}

static void test_windows(void)
{
	bool good = true;
	int count = 0;

	for (int in = 1; in < 14; in++)
		for (int kernel = 1; kernel <= in; kernel++)
			for (int stride = 1; stride < 5; stride++)
				for (int padding = 0; padding <= kernel / 2; padding++) {
					struct pd_pool_shape s = {
						.in = { in, 1 }, .kernel = { kernel, 1 },
						.stride = { stride, 1 }, .padding = { padding, 0 },
					};

					s.out[0] = (in + 2 * padding - kernel) / stride + 1;
					good = agree(&s) && good;
					count++;
				}
	ok(good, "windows and outputs agree (%d shapes)", count);
	good = true;
	for (int in = 1; in < 30; in++)
		for (int out = 1; out < 30; out++) {
			struct pd_pool_shape s = { .in = { in, 1 }, .out = { out, 1 },
						   .adaptive = true };

			good = agree(&s) && good;
			for (int o = 0; o < out; o++) {
				struct pd_axis_range w = pd_pool_window(&s, 0, o);

				good = good && w.begin == (int)floor((double)o * in / out) &&
				       w.end == (int)ceil((double)(o + 1) * in / out);
			}
		}
	ok(good, "adaptive windows too, and are what they should be");
}

/*
 * Tells whether pooling of one plane, of channels that may come last, is right: forward, and backward,
 * which gathers, against sums that are added to the inputs.
 */
static bool pools(const struct pd_pool_shape *s)
{
	int step = s->step, ins = s->in[0] * s->in[1] * step, outs = s->out[0] * s->out[1] * step;
	float *x = pd_calloc((size_t)ins, sizeof(*x)), *dy = pd_calloc((size_t)outs, sizeof(*dy));
	double *most = pd_calloc((size_t)ins, sizeof(*most));
	double *mean = pd_calloc((size_t)ins, sizeof(*mean));
	int32_t *chosen = pd_calloc((size_t)outs, sizeof(*chosen));
	bool good = true;
	float made;

	for (int i = 0; i < ins; i++)
		x[i] = floorf(4 * random_at(1, i));     /* with ties */
	for (int o = 0; o < outs; o++)
		dy[o] = random_at(2, o);
	for (int r = 0; r < s->out[0]; r++)
		for (int c = 0; c < s->out[1]; c++) {
			struct pd_axis_range y = pd_pool_window(s, 0, r),
				w = pd_pool_window(s, 1, c);
			int o = (r * s->out[1] + c) * step, best = -1;
			double sum = 0, n = s->include_padding && !s->adaptive
				? s->kernel[0] * s->kernel[1]
				: (y.end - y.begin) * (w.end - w.begin);

			for (int i = y.begin; i < y.end; i++)
				for (int j = w.begin; j < w.end; j++) {
					int at = (i * s->in[1] + j) * step;

					best = best < 0 || x[at] > x[best] ? at : best;
					sum += x[at];
					mean[at] += dy[o] / n;
				}
			most[best] += dy[o];
			pd_pool_largest(s, x, r, c, &made, &chosen[o]);
			good = good && chosen[o] * step == best && made == x[best] &&
			       fabs(pd_pool_mean(s, x, r, c) - sum / n) < 1e-5;
		}
	for (int r = 0; r < s->in[0]; r++)
		for (int c = 0; c < s->in[1]; c++) {
			int i = (r * s->in[1] + c) * step;

			pd_pool_chosen(s, dy, chosen, r, c, &made);
			good = good && fabs(made - most[i]) < 1e-5 &&
			       fabs(pd_pool_share(s, dy, r, c) - mean[i]) < 1e-5;
		}
	free(x);
	free(dy);
	free(most);
	free(mean);
	free(chosen);
	return good;
}

static void test_pools(void)
{
	static const struct pd_pool_shape shapes[] = {
		{ .in = { 8, 8 }, .out = { 4, 4 }, .kernel = { 2, 2 }, .stride = { 2, 2 } },
		{ .in = { 7, 9 }, .out = { 4, 10 }, .kernel = { 3, 2 }, .stride = { 2, 1 },
		  .padding = { 1, 1 } },
		{ .in = { 7, 9 }, .out = { 4, 5 }, .kernel = { 3, 3 }, .stride = { 2, 2 },
		  .padding = { 1, 1 }, .include_padding = true },
		{ .in = { 6, 5 }, .out = { 4, 4 }, .kernel = { 3, 2 }, .stride = { 1, 1 } },
		{ .in = { 7, 7 }, .out = { 1, 1 }, .adaptive = true },
		{ .in = { 5, 7 }, .out = { 4, 3 }, .adaptive = true },
		{ .in = { 2, 3 }, .out = { 5, 4 }, .adaptive = true },
	};

	for (size_t i = 0; i < 2 * PD_COUNT(shapes); i++) {
		struct pd_pool_shape s = shapes[i / 2];

		s.step = i % 2 ? 5 : 1;
		ok(pools(&s), "pooling of %d x %d to %d x %d%s%s", s.in[0], s.in[1], s.out[0],
		   s.out[1], s.adaptive ? ", adaptive" : "",
		   s.step > 1 ? ", one channel of several that come last" : "");
	}
}

/* Tests that masks of dropout are those that lib/run/device/cpu/dropout.c draws. */
static void test_dropout(void)
{
	static const int64_t sizes[] = { 1, 3, 4, 5, 8, 9, 15, 16, 17, 1000 };
	uint64_t stream = PD_RNG_DROPOUT + 5;
	bool good = true;

	for (size_t k = 0; k < PD_COUNT(sizes); k++)
		for (uint32_t sample = 0; sample < 50; sample++)
			for (int64_t byte = 0; byte < (sizes[k] + 7) / 8; byte++) {
				unsigned char bits = pd_dropout_byte(SEED, stream, sample, byte,
								     sizes[k], 0.3f);

				for (int64_t i = 8 * byte; i < 8 * byte + 8; i++) {
					struct pd_random4 r = pd_random(SEED, stream, sample,
									(uint32_t)(i / 4));
					bool keep = i < sizes[k] && pd_unit(r.v[i % 4]) >= 0.3f;

					good = good && keep == (bits >> (i % 8) & 1);
				}
			}
	ok(good, "the mask of dropout is the CPU's");
}

/* The threads of an emulated block. */
enum { THREADS = 8 };

static struct pd_softmax_best denominator(const float *x, int64_t classes, float *sum_p)
{
	struct pd_softmax_best best[THREADS];

	for (int t = 0; t < THREADS; t++)
		best[t] = pd_softmax_largest(x, classes, t, THREADS);
	for (int half = THREADS / 2; half > 0; half /= 2)
		for (int t = 0; t < half; t++)
			best[t] = pd_softmax_larger(best[t], best[t + half], classes);
	*sum_p = 0;
	for (int t = 0; t < THREADS; t++)
		*sum_p += pd_softmax_sum(x, classes, t, THREADS, best[0].value);
	return best[0];
}

static void test_ties(void)
{
	const float x[] = { 1, 4, 2, 3, 0, 4, 4, 1, 2, 4, 3 };
	float sum;

	for (int classes = 1; classes <= (int)PD_COUNT(x); classes++)
		if (denominator(x, classes, &sum).at != (classes > 1)) {
			ok(false, "the first of %d that are largest", classes);
			return;
		}
	ok(true, "the first that is largest, with fewer classes than threads too");
}

static void test_softmax(void)
{
	enum { CLASSES = 37 };
	float x[CLASSES], dx[CLASSES];
	double off = 0;
	bool good = true;

	for (int64_t n = 0; n < 20; n++) {
		double sum = 0, most = -INFINITY;
		int64_t label = n * 5 % CLASSES;
		struct pd_softmax_best best;
		float loss, denominated;

		for (int i = 0; i < CLASSES; i++) {
			x[i] = 20 * random_at(9, n * CLASSES + i);
			most = fmax(most, x[i]);
		}
		for (int i = 0; i < CLASSES; i++)
			sum += exp(x[i] - most);
		best = denominator(x, CLASSES, &denominated);
		loss = pd_softmax_loss(x, CLASSES, label, best.value, denominated, 0, 0);
		for (int t = 0; t < THREADS; t++)
			pd_softmax_gradient(dx, x, CLASSES, t, THREADS, label, best.value,
					    denominated, 0, 1 / 8.0f);
		off = fmax(off, fabs(loss - (log(sum) - (x[label] - most))));
		good = good && x[best.at] == (float)most;
		for (int i = 0; i < CLASSES; i++)
			off = fmax(off, fabs(dx[i] - (exp(x[i] - most) / sum - (i == label)) / 8));
	}
	if (!ok(good && off < 1e-5, "softmax cross-entropy and its gradient"))
		diag("off by %g", off);
}

enum { N = 4099 };

struct arenas {
	float weights[N], next[N], velocity[N], second[N], gradients[N];
};

static void fill(struct arenas *a)
{
	memset(a, 0, sizeof(*a));
	for (int i = 0; i < N; i++) {
		a->weights[i] = random_at(3, i);
		a->velocity[i] = random_at(4, i);
		a->second[i] = fabsf(random_at(5, i)) * (i % 3 ? 1 : 1e-12f);
		a->gradients[i] = random_at(6, i) * (i % 5 ? 1 : 1e-9f);
	}
}

static struct pd_update update_of(struct arenas *a, enum pd_optimizer_kind kind)
{
	return (struct pd_update){
		.kind = kind, .weights = a->weights, .next = a->next, .velocity = a->velocity,
		.second = a->second, .gradients = a->gradients, .rate = 0.013, .hyper.momentum = 0.9,
		.weight_decay = 5e-4, .hyper.beta1 = 0.9, .hyper.beta2 = 0.999, .hyper.eps = 1e-8, .count = 3,
	};
}

/* Moves all elements of the arenas as a kernel does. */
static void move(const struct pd_update *u, struct arenas *a)
{
	const struct pd_factors f = pd_factors_of(u);

	for (size_t i = 0; i < N; i++) {
		float w = a->weights[i], g = pd_scaled(a->gradients[i], FACTOR);
		float *v = &a->velocity[i], *s = &a->second[i];

#define MOVE_1(name) pd_move_##name(w, g, v, &f)
#define MOVE_2(name) pd_move_##name(w, g, v, s, &f)
#define OPTIMIZER(symbol, name, moments, ...) if (u->velocity && u->kind == PD_##symbol) \
		a->next[i] = MOVE_##moments(name);
#include "engine/device/optimizer.def"
#undef OPTIMIZER
		if (!u->velocity)
			a->next[i] = pd_move_plain(w, g, &f);
	}
}

/* Tests that a kernel's element has the same bits as the CPU's loops. */
static void test_updates(void)
{
	static struct arenas cpu, gpu;
	static float scaled[N];

	fill(&cpu);
	for (size_t i = 0; i < N; i++)
		scaled[i] = (float)(FACTOR * (double)cpu.gradients[i]);
	for (int kind = 0; kind < PD_OPTIMIZER_KINDS; kind++)
		for (int moments = 0; moments < 2; moments++) {
			struct pd_update u = update_of(&cpu, (enum pd_optimizer_kind)kind);
			struct pd_factors f = pd_factors_of(&u);

			fill(&cpu);
			fill(&gpu);
			u.velocity = moments ? u.velocity : NULL;
			pd_cpu_move(&u, &f, scaled, 0, N);
			move(&u, &gpu);
			ok(memcmp(&cpu, &gpu, sizeof(cpu)) == 0, "%s, %s: the CPU's bits",
			   pd_optimizer_kind_name[kind], moments ? "with moments" : "without");
		}
}

/* Tests the correction against pd_update's formula, as lib/run/device/cpu/update.c has it. */
static void test_correction(void)
{
	float delta[3] = { 0.5f, -2, 0 }, next[3] = { 1, 2, -3 }, corrected[3];
	const float old[3] = { 0.9f, 2.5f, -3 };
	bool good = true;

	for (size_t i = 0; i < 3; i++) {
		float expected = 0.75f * delta[i] + 0.25f * (next[i] - old[i]);

		corrected[i] = pd_corrected(delta, old[i], next[i], i, 0.75f, 0.25f, 3);
		good = good && delta[i] == expected && corrected[i] == next[i] - 3 * expected;
	}
	ok(good, "what backward reads instead of weights that are not stashed");
}

int main(void)
{
	test_correction();
	test_windows();
	test_pools();
	test_dropout();
	test_ties();
	test_softmax();
	test_updates();
	return done_testing();
}
