/* SPDX-License-Identifier: Apache-2.0 */
/*
 * softmax_cross_entropy.  Of a row with logits x of C classes and label y, and label smoothing e, the
 * loss is
 *     log(sum exp(x - max)) + max - (1 - e) x[y] - e / C sum x
 * and its gradient (softmax(x) - (1 - e) onehot(y) - e / C) / (M K), where M is the number of
 * microbatches in a minibatch (pd(7)), and K that of rows of this one whose label is not ignored.  A
 * sample is a row, or has several.
 * For backward the loss is multiplied by pass->scale.
 * Samples from pass->valid on are padding: no loss, no gradient.  The slot keeps each row's maximum,
 * and 1 over its sum.  Sums are taken in lanes (floats.h); rows are independent of each other, so that
 * threads change no bits.  Logits of 16 bits are widened a piece at a time, and nothing is rounded but what comes out.
 */
#include "base/mem.h"
#include "run/device/cpu/cpu.h"
#include "run/device/cpu/exp.h"
#include "run/device/cpu/floats.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define PIECE 1024                      /* a multiple of PD_FLOAT_LANES */

static int64_t classes_of(const struct pd_compiled_layer *l)
{
	return pd_shape_width(l->in_shape[0]);
}

/* Returns the bytes of one number for each row of a batch. */
static size_t of_rows(const struct pd_compiled_layer *l)
{
	return pd_align(sizeof(float) * (size_t)pd_cpu_rows(l->net, l->in_shape[0]));
}

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	l->out = pd_cpu_plain(l->net, &l->layer->output);
	if (!l->inside)
		return 0;
	l->extra_bytes = 2 * of_rows(l);
	if (l->net->dtype != PD_F32)
		l->forward_bytes = of_rows(l);
	return 0;
}

static float *maxima(const struct pd_compiled_layer *l)
{
	return l->extra;
}

static float *inverses(const struct pd_compiled_layer *l)
{
	return (float *)((char *)l->extra + of_rows(l));
}

/* ---- a piece of a row ---- */

/* Elements `at` and later of row r in f32, at most PIECE of them in 16 bits: how many. */
static int64_t piece_of(const struct pd_compiled_layer *l, int64_t r, int64_t at,
			float room[PIECE], const float **piece_p)
{
	int64_t classes = classes_of(l), rest = classes - at, n = rest < PIECE ? rest : PIECE;

	*piece_p = pd_cpu_wide(l->net->dtype, l->src[0], r * classes + at, n, room);
	return l->net->dtype == PD_F32 ? rest : n;
}

PD_VECTOR static void raise_lanes(float *restrict lanes, const float *restrict x, int64_t count)
{
	int64_t i = 0;

	for (; i + PD_FLOAT_LANES <= count; i += PD_FLOAT_LANES)
		for (int k = 0; k < PD_FLOAT_LANES; k++)
			lanes[k] = x[i + k] > lanes[k] ? x[i + k] : lanes[k];
	for (int k = 0; i + k < count; k++)
		lanes[k] = x[i + k] > lanes[k] ? x[i + k] : lanes[k];
}

PD_VECTOR static void add_exp(float *restrict lanes, const float *restrict x, float max,
			      int64_t count)
{
	int64_t i = 0;

	for (; i + PD_FLOAT_LANES <= count; i += PD_FLOAT_LANES)
		for (int k = 0; k < PD_FLOAT_LANES; k++)
			lanes[k] += pd_exp(x[i + k] - max);
	for (int k = 0; i + k < count; k++)
		lanes[k] += pd_exp(x[i + k] - max);
}

/* dx may be x. */
PD_VECTOR static void gradient(float *dx, const float *x, float max, float factor, float less,
			       int64_t count)
{
#pragma omp simd
	for (int64_t i = 0; i < count; i++)
		dx[i] = pd_exp(x[i] - max) * factor - less;
}

/* ---- a row ---- */

static float greatest(const float lanes[PD_FLOAT_LANES])
{
	float most = lanes[0];

	for (int k = 1; k < PD_FLOAT_LANES; k++)
		most = lanes[k] > most ? lanes[k] : most;
	return most;
}

/* The row's largest logit, and whether the label's is the first that is so large. */
static float row_max(const struct pd_compiled_layer *l, int64_t r, int32_t label, bool *first_p,
		     float *logit_p)
{
	float lanes[PD_FLOAT_LANES], room[PIECE], max;
	int64_t classes = classes_of(l), n;
	const float *x;

	for (int k = 0; k < PD_FLOAT_LANES; k++)
		lanes[k] = -INFINITY;
	*logit_p = 0;
	for (int64_t at = 0; at < classes; at += n) {
		n = piece_of(l, r, at, room, &x);
		raise_lanes(lanes, x, n);
		if (label >= at && label < at + n)
			*logit_p = x[label - at];
	}
	max = greatest(lanes);
	*first_p = *logit_p == max;
	for (int64_t at = 0; *first_p && at < label; at += n) {
		n = piece_of(l, r, at, room, &x);
		for (int64_t i = 0; i < n && at + i < label; i++)
			*first_p &= x[i] != max;
	}
	return max;
}

/* Its loss; right_p: is the label's logit the largest? */
static float row_loss(const struct pd_compiled_layer *l, int64_t r, int32_t label, bool *right_p)
{
	float smooth = (float)l->layer->label_smoothing, logit, max, sum;
	float lanes[PD_FLOAT_LANES] = { 0 }, all[PD_FLOAT_LANES] = { 0 }, room[PIECE];
	int64_t classes = classes_of(l), n;
	const float *x;

	max = row_max(l, r, label, right_p, &logit);
	for (int64_t at = 0; at < classes; at += n) {
		n = piece_of(l, r, at, room, &x);
		add_exp(lanes, x, max, n);
		if (smooth > 0)
			pd_lanes_add(all, x, n);
	}
	sum = pd_lanes_total(lanes);
	maxima(l)[r] = max;
	inverses(l)[r] = 1 / sum;
	*right_p &= !isnan(sum);
	if (smooth > 0)
		return logf(sum) + (1 - smooth) * (max - logit) +
		       smooth * (max - pd_lanes_total(all) / (float)classes);
	return logf(sum) - (logit - max);
}

static void row_back(const struct pd_compiled_layer *l, int64_t r, int32_t label, float mean)
{
	float smooth = (float)l->layer->label_smoothing, room[PIECE];
	float factor = inverses(l)[r] * mean;
	int64_t classes = classes_of(l), n;
	const float *x;

	for (int64_t at = 0; at < classes; at += n) {
		bool f32 = l->net->dtype == PD_F32;
		float *dx;

		n = piece_of(l, r, at, room, &x);
		dx = f32 ? (float *)l->diff_src[0] + r * classes + at : room;
		gradient(dx, x, maxima(l)[r], factor, smooth / (float)classes * mean, n);
		if (label >= at && label < at + n)
			dx[label - at] -= (1 - smooth) * mean;
		if (!f32)
			pd_cpu_narrow(l->net->dtype, (uint16_t *)l->diff_src[0] + r * classes + at,
				      dx, (size_t)n);
	}
}

/* ---- a batch ---- */

static bool counts(const struct pd_compiled_layer *l, int64_t r)
{
	return ((const int32_t *)l->src[1])[r] != l->layer->ignore_index;
}

/* Counts the rows, among the first `rows`, whose label is not ignored. */
static int64_t count_rows(const struct pd_compiled_layer *l, int64_t rows)
{
	int64_t count = 0;

	for (int64_t r = 0; r < rows; r++)
		count += counts(l, r);
	return count;
}

static int check_labels(const struct pd_compiled_layer *l, int64_t rows, struct pd_error *err)
{
	const int32_t *label = l->src[1];

	for (int64_t r = 0; r < rows; r++)
		if (counts(l, r) && (label[r] < 0 || label[r] >= classes_of(l)))
			return pd_error_failed(err, "layer \"%s\": sample %" PRId64 " of the "
					       "minibatch has label %" PRId32 ", expected 0 to %"
					       PRId64, l->layer->name,
					       r / pd_shape_rows(l->in_shape[0]), label[r],
					       classes_of(l) - 1);
	return 0;
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	int64_t all = pd_cpu_rows(l->net, l->in_shape[0]), correct = 0;
	int64_t rows = pass->valid * pd_shape_rows(l->in_shape[0]);
	const int32_t *label = l->src[1];
	struct pd_loss loss = { .samples = pass->valid, .rows = count_rows(l, rows) };
	float *out = l->net->dtype == PD_F32 ? l->dst : l->temporary;

	if (check_labels(l, rows, err) < 0)
		return -1;
	memset(out, 0, sizeof(float) * (size_t)all);
#pragma omp parallel for schedule(static) reduction(+ : correct)
	for (int64_t r = 0; r < rows; r++) {
		bool right = false;

		if (counts(l, r))
			out[r] = row_loss(l, r, label[r], &right);
		correct += right;
	}
	for (int64_t r = 0; r < rows; r++)
		loss.sum += out[r];
	loss.correct = correct;
	if (l->net->dtype != PD_F32)
		pd_cpu_narrow(l->net->dtype, l->dst, out, (size_t)all);
	if (pass->losses)
		pass->losses[l->loss] = loss;
	return 0;
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	int64_t classes = classes_of(l), all = pd_cpu_rows(l->net, l->in_shape[0]);
	int64_t rows = pass->valid * pd_shape_rows(l->in_shape[0]);
	int64_t ignored = rows - count_rows(l, rows);
	size_t bytes = pd_dtype_bytes(l->net->dtype) * (size_t)classes;
	const int32_t *label = l->src[1];
	float scale = pass->scale ? (float)pass->scale->loss_scale : 1, mean;

	if (!l->diff_src[0])
		return 0;
	/* with nothing left, no row asks for it */
	mean = scale / (float)(l->net->minibatch / l->net->batch * (all - ignored));
#pragma omp parallel for schedule(static)
	for (int64_t r = 0; r < all; r++)
		if (r < rows && counts(l, r))
			row_back(l, r, label[r], mean);
		else
			memset((char *)l->diff_src[0] + (size_t)r * bytes, 0, bytes);
	return 0;
}

const struct pd_compiled_kind pd_cpu_softmax_cross_entropy = {
	.plain = true,
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};
