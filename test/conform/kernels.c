/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA kernels of our own, one by one, against plain C: those whose algorithm depends on the number of
 * channels, on the layout and on the alignment of arrays.  In 16 bits a whole network (layers.c) says
 * less about them, since a number that is rounded to the other side of a relu's edge changes others.
 */
#include "tap.h"

#include "base/half.h"
#include "base/mem.h"
#include "base/rng.h"
#include "run/device/cuda/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const enum pd_dtype types[] = { PD_F32, PD_BF16, PD_F16 };
static const double units_in_last[PD_DTYPES] = {
	[PD_F32] = 2e-5, [PD_BF16] = 1.0 / 128, [PD_F16] = 1.0 / 1024,
};

static void must(cudaError_t status)
{
	if (status == cudaSuccess)
		return;
	diag("%s", cudaGetErrorString(status));
	exit(99);
}

static float random_at(uint32_t stream, int64_t i)
{
	return 2 * pd_unit(pd_random(11, stream, 0, (uint32_t)i).v[0]) - 1;
}

static float rounded(enum pd_dtype dtype, double x)
{
	return dtype == PD_BF16 ? pd_from_bf16(pd_to_bf16((float)x))
	     : dtype == PD_F16 ? pd_from_f16(pd_to_f16((float)x)) : (float)x;
}

/* An array in device memory that begins `shift` elements behind an aligned place. */
struct array {
	enum pd_dtype dtype;
	size_t count, shift;
	char *memory;
};

static struct array array_new(enum pd_dtype dtype, size_t count, size_t shift)
{
	struct array a = { dtype, count, shift, NULL };

	must(cudaMalloc((void **)&a.memory, (count + shift + 1) * pd_dtype_bytes(dtype)));
	return a;
}

static void *at(const struct array *a)
{
	return a->memory + a->shift * pd_dtype_bytes(a->dtype);
}

static void put(const struct array *a, const float *values)
{
	char *raw = pd_calloc(a->count, sizeof(float));

	for (size_t i = 0; i < a->count; i++)
		if (a->dtype == PD_F32)
			((float *)raw)[i] = values[i];
		else
			((uint16_t *)raw)[i] = a->dtype == PD_BF16 ? pd_to_bf16(values[i])
								  : pd_to_f16(values[i]);
	must(cudaMemcpyAsync(at(a), raw, a->count * pd_dtype_bytes(a->dtype),
			     cudaMemcpyHostToDevice, 0));
	must(cudaStreamSynchronize(0));
	free(raw);
}

static float *get(const struct array *a)
{
	float *values = pd_calloc(a->count, sizeof(*values));
	char *raw = pd_calloc(a->count, sizeof(float));

	must(cudaMemcpyAsync(raw, at(a), a->count * pd_dtype_bytes(a->dtype),
			     cudaMemcpyDeviceToHost, 0));
	must(cudaStreamSynchronize(0));
	for (size_t i = 0; i < a->count; i++)
		values[i] = a->dtype == PD_F32 ? ((float *)raw)[i]
			: a->dtype == PD_BF16 ? pd_from_bf16(((uint16_t *)raw)[i])
			: pd_from_f16(((uint16_t *)raw)[i]);
	free(raw);
	return values;
}

static struct array filled(enum pd_dtype dtype, size_t count, size_t shift, uint32_t stream,
			   float *values)
{
	struct array a = array_new(dtype, count, shift);

	for (size_t i = 0; i < count; i++)
		values[i] = rounded(dtype, random_at(stream, (int64_t)i));
	put(&a, values);
	return a;
}

/* ---- batch normalisation ---- */

static const struct shape {
	int64_t samples, area, channels;
	bool last;
	size_t shift;                   /* elements behind an address that is aligned to 16 bytes */
} shapes[] = {
	{ 1, 1, 1, true, 0 }, { 3, 35, 8, true, 0 }, { 2, 99, 16, true, 0 },
	{ 5, 100, 20, true, 0 }, { 7, 64, 13, true, 0 }, { 2, 50, 264, true, 0 },
	{ 8, 2000, 32, true, 0 }, { 3, 900, 24, true, 1 }, { 4, 1100, 8, true, 0 },
	{ 3, 49, 5, false, 0 }, { 3, 64, 5, false, 0 }, { 6, 3136, 4, false, 0 },
	{ 20, 1000, 3, false, 0 }, { 2, 64, 7, false, 1 }, { 5, 36, 9, false, 0 },
};

struct norm_case {
	const struct shape *s;
	enum pd_dtype dtype;
	struct pd_kernel_norm n;
	bool before;
	size_t count;
	float *x, *dy, *more, *scale, *bias, *late;     /* late: the scale that backward reads */
	float *y, *dx, *kept, *d_scale, *d_bias, *running, *evaluated;  /* the device's results */
};

static int64_t channel_of(const struct norm_case *c, size_t i)
{
	return (int64_t)(c->s->last ? i % (size_t)c->s->channels
				    : i / (size_t)c->s->area % (size_t)c->s->channels);
}

static void norm_run(struct norm_case *c)
{
	size_t channels = (size_t)c->s->channels, shift = c->s->shift;
	size_t room_count = pd_kernel_norm_scratch(c->n.rows, c->n.channels);
	struct array x = filled(c->dtype, c->count, shift, 1, c->x);
	struct array dy = filled(c->dtype, c->count, shift, 2, c->dy);
	struct array more = filled(c->dtype, c->count, shift, 3, c->more);
	struct array scale = filled(c->dtype, channels, 0, 4, c->scale);
	struct array bias = filled(c->dtype, channels, 0, 5, c->bias);
	struct array late = filled(c->dtype, channels, 0, 6, c->late);
	struct array y = array_new(c->dtype, c->count, shift);
	struct array kept = array_new(PD_F32, 4 * c->n.half, 0);
	struct array running = array_new(PD_F32, 2 * c->n.half, 0);
	struct array gradients = array_new(PD_F32, 2 * c->n.half, 0);
	struct array room = array_new(PD_F32, room_count, 0);
	float *ones = pd_calloc(2 * c->n.half, sizeof(*ones));
	struct array *all[] = { &x, &dy, &more, &scale, &bias, &late, &y, &kept, &running,
				&gradients, &room };

	for (size_t i = 0; i < channels; i++)
		ones[c->n.half + i] = 1;
	put(&running, ones);
	must(pd_kernel_norm(0, c->dtype, &c->n, at(&y), at(&x), at(&scale), at(&bias), at(&kept),
			    at(&running), at(&room)));
	c->y = get(&y);
	c->kept = get(&kept);
	c->running = get(&running);
	must(pd_kernel_norm_evaluate(0, c->dtype, &c->n, at(&y), at(&x), at(&scale), at(&bias),
				     at(&running)));
	c->evaluated = get(&y);
	/* With `before` dx is written over the gradient that it is added to, as in a network. */
	must(pd_kernel_norm_back(0, c->dtype, &c->n, c->before ? at(&more) : at(&y),
				 c->before ? at(&more) : NULL, at(&x), at(&dy), at(&late),
				 at(&kept), at(&gradients), (float *)at(&gradients) + c->n.half,
				 at(&room)));
	c->dx = get(c->before ? &more : &y);
	c->d_scale = get(&gradients);
	c->d_bias = c->d_scale + c->n.half;
	for (size_t i = 0; i < PD_COUNT(all); i++)
		cudaFree(all[i]->memory);
	free(ones);
}

static bool near(const struct norm_case *c, const char *what, size_t i, double got,
		 double expected, double tolerance)
{
	if (fabs(got - expected) <= tolerance)
		return true;
	diag("%s, %s, number %zu of %d x %d, %d channels%s%s: %.9g, expected %.9g",
	     pd_dtype_name[c->dtype], what, i, (int)c->s->samples, (int)c->s->area,
	     (int)c->s->channels, c->n.relu ? ", relu" : "", c->before ? ", before" : "", got,
	     expected);
	return false;
}

static double relu_of(const struct norm_case *c, double v)
{
	return c->n.relu && v < 0 ? 0 : v;
}

/* Tells whether norm_run()'s results for channel k are right. */
static bool norm_channel(const struct norm_case *c, int64_t k)
{
	size_t half = c->n.half;
	double count = (double)c->n.rows, mean = 0, variance = 0, first = 0, second = 0, most = 0;
	double unit = units_in_last[c->dtype], inverse;
	bool good = true;

	for (size_t i = 0; i < c->count; i++)
		mean += channel_of(c, i) == k ? c->x[i] / count : 0;
	for (size_t i = 0; i < c->count; i++)
		variance += channel_of(c, i) == k ? pow(c->x[i] - mean, 2) / count : 0;
	inverse = 1 / sqrt(variance + c->n.eps);
	good &= near(c, "mean", (size_t)k, c->kept[k], mean, 1e-6);
	good &= near(c, "inverse", (size_t)k, c->kept[half + k], inverse, 1e-5 * inverse);
	good &= near(c, "running mean", (size_t)k, c->running[k], c->n.momentum * mean, 1e-6);
	for (size_t i = 0; i < c->count; i++) {
		double hat = (c->x[i] - mean) * inverse, v = hat * c->scale[k] + c->bias[k];
		double moved = (c->x[i] - c->running[k]) / sqrt(c->running[half + k] + c->n.eps);
		double g = c->n.relu && !(c->y[i] > 0) ? 0 : c->dy[i];

		if (channel_of(c, i) != k)
			continue;
		good = good && near(c, "y", i, c->y[i], relu_of(c, v), unit * (1 + fabs(v)));
		v = moved * c->scale[k] + c->bias[k];
		good = good && near(c, "evaluation", i, c->evaluated[i], relu_of(c, v),
				    unit * (1 + fabs(v)));
		first += g;
		second += g * hat;
		most += fabs(g) * (1 + fabs(hat));
	}
	good &= near(c, "bias' gradient", (size_t)k, c->d_bias[k], first, 1e-5 * (1 + most));
	good &= near(c, "scale's gradient", (size_t)k, c->d_scale[k], second, 1e-5 * (1 + most));
	for (size_t i = 0; i < c->count && good; i++) {
		double hat = (c->x[i] - mean) * inverse;
		double g = c->n.relu && !(c->y[i] > 0) ? 0 : c->dy[i];
		double d = c->late[k] * inverse * (g - first / count - hat * second / count);
		double before = c->before ? c->more[i] : 0;

		if (channel_of(c, i) == k)
			good = near(c, "dx", i, c->dx[i], before + d,
				    unit * (fabs(before) + fabs(d)) + 1e-5 * inverse);
	}
	return good;
}

static void norm_release(struct norm_case *c)
{
	float *all[] = { c->x, c->dy, c->more, c->scale, c->bias, c->late, c->y, c->dx, c->kept,
			 c->d_scale, c->running, c->evaluated };

	for (size_t i = 0; i < PD_COUNT(all); i++)
		free(all[i]);
}

static struct norm_case norm_new(const struct shape *s, enum pd_dtype dtype, bool relu,
				 bool before)
{
	size_t channels = (size_t)s->channels, count = (size_t)(s->samples * s->area) * channels;
	struct norm_case c = {
		.s = s, .dtype = dtype, .before = before, .count = count,
		.n = { .rows = s->samples * s->area, .channels = s->channels,
		       .area = s->last ? 1 : s->area, .half = pd_align(4 * channels) / 4,
		       .eps = 1e-3f, .momentum = 0.1f, .relu = relu },
		.x = pd_calloc(count, sizeof(float)), .dy = pd_calloc(count, sizeof(float)),
		.more = pd_calloc(count, sizeof(float)),
		.scale = pd_calloc(channels, sizeof(float)),
		.bias = pd_calloc(channels, sizeof(float)),
		.late = pd_calloc(channels, sizeof(float)),
	};

	return c;
}

static bool same_bits(const struct norm_case *a, const struct norm_case *b)
{
	size_t bytes = a->count * sizeof(float), channels = (size_t)a->n.channels * sizeof(float);

	return memcmp(a->y, b->y, bytes) == 0 && memcmp(a->dx, b->dx, bytes) == 0 &&
	       memcmp(a->d_scale, b->d_scale, channels) == 0 &&
	       memcmp(a->d_bias, b->d_bias, channels) == 0;
}

static void test_norm(enum pd_dtype dtype)
{
	for (int way = 0; way < 4; way++) {
		bool relu = way & 1, before = way & 2, good = true, same = true;

		for (size_t i = 0; i < PD_COUNT(shapes); i++) {
			struct norm_case c = norm_new(&shapes[i], dtype, relu, before);
			struct norm_case again = norm_new(&shapes[i], dtype, relu, before);

			norm_run(&c);
			norm_run(&again);
			same = same && same_bits(&c, &again);
			for (int64_t k = 0; k < c.n.channels; k += c.n.channels > 40 ? 7 : 1)
				good = norm_channel(&c, k) && good;
			norm_release(&c);
			norm_release(&again);
		}
		ok(good, "%s: batch norm%s%s", pd_dtype_name[dtype], relu ? ", relu" : "",
		   before ? ", added to a gradient" : "");
		ok(same, "and the same bits again");
	}
}

static void test_columns(enum pd_dtype dtype)
{
	bool good = true;

	for (size_t s = 0; s < PD_COUNT(shapes); s++) {
		int64_t rows = shapes[s].samples * shapes[s].area, channels = shapes[s].channels;
		size_t count = (size_t)(rows * channels);
		float *values = pd_calloc(count, sizeof(*values)), *got;
		struct array dy = filled(dtype, count, shapes[s].shift, 7, values);
		struct array sums = array_new(PD_F32, (size_t)channels, 0);
		struct array room = array_new(PD_F32, pd_kernel_norm_scratch(rows, channels), 0);

		must(pd_kernel_columns(0, dtype, at(&sums), at(&room), at(&dy), rows, channels));
		got = get(&sums);
		for (int64_t c = 0; c < channels; c++) {
			double sum = 0;

			for (int64_t r = 0; r < rows; r++)
				sum += values[r * channels + c];
			good = good && fabs(sum - got[c]) <= 1e-6 * (double)(rows + 1);
		}
		cudaFree(dy.memory);
		cudaFree(sums.memory);
		cudaFree(room.memory);
		free(values);
		free(got);
	}
	ok(good, "%s: sums of columns", pd_dtype_name[dtype]);
}

/* ---- element by element ---- */

static void test_sum_relu(enum pd_dtype dtype)
{
	bool good = true;

	for (size_t count = 1; count < 1200; count = count * 3 + 2)
		for (size_t shift = 0; shift < 2; shift++) {
			float *a = pd_calloc(count, sizeof(*a)), *b = pd_calloc(count, sizeof(*b));
			float *y = pd_calloc(count, sizeof(*y)), *got;
			struct array first = filled(dtype, count, 0, 1, a);
			struct array second = filled(dtype, count, shift, 2, b);
			struct array out = filled(dtype, count, 0, 3, y);

			must(pd_kernel_sum_relu(0, dtype, at(&first), at(&first), at(&second),
						at(&out), count));
			got = get(&first);
			for (size_t i = 0; i < count; i++)
				good = good && got[i] == (y[i] > 0
					? rounded(dtype, a[i] + b[i]) : 0);
			cudaFree(first.memory);
			cudaFree(second.memory);
			cudaFree(out.memory);
			free(a);
			free(b);
			free(y);
			free(got);
		}
	ok(good, "%s: a sum that does a relu's backward", pd_dtype_name[dtype]);
}

/* Widens n arrays of many lengths with one kernel; clears *good_p if a number is wrong. */
static void widen_many(enum pd_dtype dtype, int n, size_t shift, bool *good_p)
{
	struct array from[PD_KERNEL_WIDENED], to[PD_KERNEL_WIDENED];
	float *values[PD_KERNEL_WIDENED], *got;
	struct pd_kernel_widen w = { .n = n };

	for (int k = 0; k < n; k++) {
		size_t count = (size_t)(k % 7 == 5 ? 0 : k % 5 == 0 ? 1 + 8192 * (k % 4) + k : k * k);

		values[k] = pd_calloc(count + 1, sizeof(*values[k]));
		from[k] = filled(dtype, count, shift, 4 + (uint32_t)k, values[k]);
		/* The element behind the array must stay as it is. */
		to[k] = array_new(PD_F32, count + 1, 0);
		values[k][count] = 7;
		must(cudaMemcpyAsync((float *)at(&to[k]) + count, &values[k][count], sizeof(float),
				     cudaMemcpyHostToDevice, 0));
		w.arrays[k] = (struct pd_kernel_widened){ at(&to[k]), at(&from[k]), count };
	}
	must(cudaStreamSynchronize(0));
	must(pd_kernel_widen(0, dtype, &w));
	for (int k = 0; k < n; k++) {
		got = get(&to[k]);
		*good_p = *good_p && memcmp(got, values[k], to[k].count * sizeof(*got)) == 0;
		cudaFree(from[k].memory);
		cudaFree(to[k].memory);
		free(values[k]);
		free(got);
	}
}

static void test_widen(enum pd_dtype dtype)
{
	static const int numbers[] = { 1, 2, 3, 31, PD_KERNEL_WIDENED };
	bool good = true;

	for (size_t i = 0; i < PD_COUNT(numbers); i++)
		for (size_t shift = 0; shift < 2; shift++)
			widen_many(dtype, numbers[i], shift, &good);
	ok(good, "%s: widened", pd_dtype_name[dtype]);
}

/* ---- the loss ---- */

#define BATCH 7
#define MINIBATCH 21                    /* samples over which the mean is taken */
#define VALID 6                         /* samples of the batch that count; the third has no label */
#define GAP 3                           /* elements between rows, in every second case */

struct loss_case {
	enum pd_dtype dtype;
	int64_t classes, apart;
	float *x, *out, *dx;
	struct pd_kernel_loss loss;
};

static void loss_run(struct loss_case *c, const int32_t *label)
{
	size_t count = (size_t)(BATCH * c->apart);
	struct array x = filled(c->dtype, count, 0, 8, c->x);
	float *before = pd_calloc(count, sizeof(*before));
	struct array dx = filled(c->dtype, count, 0, 9, before), out = array_new(PD_F32, BATCH, 0);
	struct array labels = array_new(PD_F32, BATCH, 0);
	struct array verdict = array_new(PD_F32, BATCH + 1, 0);
	const struct pd_kernel_logits s = {
		.batch = BATCH, .rows = 1, .classes = c->classes, .apart = c->apart,
		.microbatches = MINIBATCH / BATCH, .ignored = -100,
	};
	struct pd_pass_numbers *numbers, value = { .valid = VALID };

	/* If several logits are the largest, the first counts as the prediction. */
	for (int64_t i = 0; i < c->classes; i++)
		if (i % 5 == 3)
			c->x[i] = 2;
	put(&x, c->x);
	must(cudaMalloc((void **)&numbers, sizeof(*numbers)));
	must(cudaHostAlloc((void **)&value.loss, sizeof(*value.loss), 0));
	must(cudaMemcpyAsync(at(&labels), label, BATCH * sizeof(*label), cudaMemcpyHostToDevice, 0));
	must(pd_kernel_set_numbers(0, numbers, &value));
	must(pd_kernel_loss(0, c->dtype, &s, numbers, 0, at(&out), at(&verdict), at(&x),
			    at(&labels)));
	must(pd_kernel_loss_back(0, c->dtype, &s, numbers, at(&dx), at(&x), at(&labels),
				 at(&verdict), NULL));
	c->out = get(&out);
	c->dx = get(&dx);
	c->loss = *value.loss;
	free(before);
	cudaFreeHost(value.loss);
	cudaFree(numbers);
	cudaFree(x.memory);
	cudaFree(dx.memory);
	cudaFree(out.memory);
	cudaFree(labels.memory);
	cudaFree(verdict.memory);
}

/* Tells whether the device's results for sample n are right; counts a correct prediction in *correct_p. */
static bool loss_sample(const struct loss_case *c, int64_t n, int32_t label, int *correct_p)
{
	const float *x = c->x + n * c->apart, *dx = c->dx + n * c->apart;
	bool counts = n < VALID && label >= 0, good = true;
	double sum = 0;
	int64_t best = 0;

	for (int64_t i = 1; i < c->classes; i++)
		best = x[i] > x[best] ? i : best;
	for (int64_t i = 0; i < c->classes; i++)
		sum += exp((double)x[i] - x[best]);
	*correct_p += counts && best == label;
	good = fabs(c->out[n] - (counts ? log(sum) - ((double)x[label] - x[best]) : 0)) < 1e-5;
	for (int64_t i = 0; i < c->classes; i++) {
		double d = counts ? (exp((double)x[i] - x[best]) / sum - (i == label)) / MINIBATCH : 0;

		good = good && fabs(dx[i] - d) <= units_in_last[c->dtype] * fabs(d) + 1e-7;
	}
	for (int64_t i = c->classes; i < c->apart; i++)
		good = good && dx[i] == 0;
	if (!good)
		diag("%s, %d classes, sample %d", pd_dtype_name[c->dtype], (int)c->classes, (int)n);
	return good;
}

static void test_loss(enum pd_dtype dtype)
{
	static const int64_t classes[] = { 1, 2, 10, 127, 128, 129, 1000, 1003 };
	bool good = true;

	for (size_t i = 0; i < PD_COUNT(classes); i++) {
		int64_t apart = classes[i] + (i % 2 == 0 ? GAP : 0);
		struct loss_case c = { .dtype = dtype, .classes = classes[i], .apart = apart,
				       .x = pd_calloc((size_t)(BATCH * apart), sizeof(float)) };
		int32_t label[BATCH];
		int correct = 0;

		for (int n = 0; n < BATCH; n++)
			label[n] = n == 2 ? -1 : n == 0 && classes[i] > 3
				? 3 : (int32_t)(n * 31 % classes[i]);
		loss_run(&c, label);
		for (int64_t n = 0; n < BATCH; n++)
			good = loss_sample(&c, n, label[n], &correct) && good;
		good = good && c.loss.correct == correct && c.loss.bad_row == 2 &&
		       c.loss.bad_label == -1;
		free(c.x);
		free(c.out);
		free(c.dx);
	}
	ok(good, "%s: softmax cross-entropy, and what has no label", pd_dtype_name[dtype]);
}

int main(void)
{
	int devices = 0;

	if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
		absent("no GPU", "kernels");
		return done_testing();
	}
	for (size_t t = 0; t < PD_COUNT(types); t++) {
		test_norm(types[t]);
		test_columns(types[t]);
		test_sum_relu(types[t]);
		test_widen(types[t]);
		test_loss(types[t]);
	}
	return done_testing();
}
