/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Normalised additive attention (Bahdanau et al. 2015; Salimans and Kingma 2016), with queries q,
 * keys k that are values too, and u = g w / |w|:
 *
 *     A = Wq q + b,  B = Wk k,  s_ij = u . tanh(A_i + B_j),  P = softmax(s) by rows,  O = P k
 *
 * The slot keeps A, B and P, in f32; the hyperbolic tangents, as many as a query and a key have
 * features for each pair of them, are made again in backward.  With dS that of the scores:
 *
 *     dA_i = sum_j dS_ij u (1 - t_ij^2),  dB_j the same over i,  du = sum dS_ij t_ij
 *     dq = dA Wq,  dk = P' dO + dB Wk,  dWq = dA' q,  dWk = dB' k,  db = sum dA_i
 *     dg = du . w / |w|,  dw = g / |w| (du - dg w / |w|)
 *
 * A sample is one thread's.  Rows are padded to PD_TILE_PAD, and copied as f32.
 */
#include "base/mem.h"
#include "run/device/cpu/cpu.h"
#include "run/device/cpu/tile.h"

#include <math.h>
#include <string.h>

enum { QUERIES, KEYS, LENGTHS };        /* inputs */
enum { QUERY_WEIGHT, KEY_WEIGHT, WEIGHT, SCALE, BIAS, PARAMETERS };

struct additive {
	int64_t queries, keys;          /* of a sample */
	int64_t width, padded;
	size_t a, b, p;                 /* in the slot */
	size_t q, k, weight, u, o;      /* in scratch; backward: o is the gradient of the output */
	size_t dq, dk, da, db, du, ds;
	size_t kept[PARAMETERS];        /* gradients between the parts of backward */
};

static size_t reserve_floats(size_t *bytes_p, int64_t floats)
{
	return pd_take(bytes_p, sizeof(float) * (size_t)floats);
}

static int64_t query_rows(const struct pd_compiled_layer *l)
{
	return l->net->batch * ((const struct additive *)l->own)->queries;
}

static int64_t key_rows(const struct pd_compiled_layer *l)
{
	return l->net->batch * ((const struct additive *)l->own)->keys;
}

static void lay_out(struct pd_compiled_layer *l, struct additive *n)
{
	int64_t queries = query_rows(l) * n->padded, keys = key_rows(l) * n->padded;

	n->a = reserve_floats(&l->extra_bytes, queries);
	n->b = reserve_floats(&l->extra_bytes, keys);
	n->p = reserve_floats(&l->extra_bytes, query_rows(l) * n->keys);
	n->q = reserve_floats(&l->forward_bytes, queries);
	n->k = reserve_floats(&l->forward_bytes, keys);
	n->u = reserve_floats(&l->forward_bytes, n->padded);
	n->weight = reserve_floats(&l->forward_bytes, l->net->dtype == PD_F32 ? 0 : n->width * n->width);
	n->o = reserve_floats(&l->forward_bytes, queries);
	l->backward_bytes = l->forward_bytes;
	n->dq = reserve_floats(&l->backward_bytes, queries);
	n->dk = reserve_floats(&l->backward_bytes, keys);
	n->da = reserve_floats(&l->backward_bytes, queries);
	n->db = reserve_floats(&l->backward_bytes, keys);
	n->du = reserve_floats(&l->backward_bytes, l->net->batch * n->padded);
	n->ds = reserve_floats(&l->backward_bytes, l->net->batch * n->keys);
}

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	const struct pd_layer *layer = l->layer;
	struct additive *n;

	l->out = pd_cpu_plain(l->net, &layer->output);
	for (int p = 0; p < layer->parameter_count; p++)
		l->parameter[p] = pd_layout_plain(l->net->engine, layer->parameters[p].dims,
						  layer->parameters[p].size);
	if (!l->inside)
		return 0;
	l->own = n = pd_zalloc(sizeof(*n));
	n->queries = l->in_shape[QUERIES]->size[0];
	n->keys = l->in_shape[KEYS]->size[0];
	n->width = l->in_shape[QUERIES]->size[1];
	n->padded = pd_tile_padded(n->width);
	lay_out(l, n);
	for (int p = 0; p < layer->parameter_count; p++) {
		n->kept[p] = l->split_bytes;
		l->split_bytes += pd_compiled_reserved(l->net, sizeof(float) *
						       (size_t)layer->parameters[p].elements);
	}
	return 0;
}

static float *scratch(const struct pd_compiled_layer *l, size_t offset)
{
	return (float *)((char *)l->temporary + offset);
}

static float *slot(const struct pd_compiled_layer *l, size_t offset)
{
	return (float *)((char *)l->extra + offset);
}

/* ---- what is common to forward and backward ---- */

/* Copies rows as f32, padded with zeros. */
static void read_rows(const struct pd_compiled_layer *l, float *dst, const void *src, int64_t rows)
{
	const struct additive *n = l->own;
	size_t width = (size_t)n->width;

#pragma omp parallel for schedule(static)
	for (int64_t r = 0; r < rows; r++) {
		float *row = dst + r * n->padded;

		if (l->net->dtype == PD_F32)
			memcpy(row, (const float *)src + (size_t)r * width, width * sizeof(*row));
		else
			pd_cpu_widen(l->net->dtype, row, (const uint16_t *)src + (size_t)r * width,
				     width);
		for (int64_t i = n->width; i < n->padded; i++)
			row[i] = 0;
	}
}

static void write_rows(const struct pd_compiled_layer *l, void *dst, const float *src, int64_t rows)
{
	const struct additive *n = l->own;

#pragma omp parallel for schedule(static)
	for (int64_t r = 0; r < rows; r++) {
		const float *row = src + r * n->padded;

		pd_cpu_put(l->net->dtype, dst, r * n->width, row, n->width);
	}
}

/* Returns a parameter as f32, copied to `copy` where it is not. */
static const float *parameter(const struct pd_compiled_layer *l, int p, float *copy)
{
	return pd_cpu_wide(l->net->dtype, l->parameters[p], 0, l->layer->parameters[p].elements,
			   copy);
}

static float one(const struct pd_compiled_layer *l, int p)
{
	float value;

	return *parameter(l, p, &value);
}

/* Returns |w|; u: w, padded. */
static double read_direction(const struct pd_compiled_layer *l, float *u)
{
	const struct additive *n = l->own;
	const float *w = parameter(l, WEIGHT, u);
	double squares = 0;

	memmove(u, w, sizeof(*u) * (size_t)n->width);
	memset(u + n->width, 0, sizeof(*u) * (size_t)(n->padded - n->width));
	for (int64_t i = 0; i < n->width; i++)
		squares += (double)u[i] * (double)u[i];
	return sqrt(squares);
}

/* dst, padded, = src W' of so many rows. */
static int project(const struct pd_compiled_layer *l, float *dst, const float *src, int64_t rows,
		   int which, struct pd_error *err)
{
	const struct additive *n = l->own;

	return pd_matrix_multiply(&(struct pd_matrix_product){
		.m = rows, .n = n->width, .k = n->width, .a = src, .lda = n->padded,
		.b = parameter(l, which, scratch(l, n->weight)), .ldb = n->width,
		.transposed_b = true, .c = dst, .ldc = n->padded,
	}, err);
}

/* Returns how many keys of a sample are seen. */
static int64_t seen(const struct pd_compiled_layer *l, int64_t sample)
{
	const struct additive *n = l->own;
	int64_t length = n->keys;

	if (l->layer->input_count > LENGTHS)
		length = ((const int32_t *)l->src[LENGTHS])[sample];
	return length < 0 ? 0 : length < n->keys ? length : n->keys;
}

/* ---- forward ---- */

/* Fills the padding of A and B with zeros, and adds the bias to A. */
static void pad(const struct pd_compiled_layer *l, float *rows, int64_t count, const float *bias)
{
	const struct additive *n = l->own;

	for (int64_t r = 0; r < count; r++) {
		float *row = rows + r * n->padded;

		for (int64_t i = 0; bias && i < n->width; i++)
			row[i] += bias[i];
		for (int64_t i = n->width; i < n->padded; i++)
			row[i] = 0;
	}
}

static void soften(float *p, int64_t keys)
{
	float most = -INFINITY, sum = 0;

	for (int64_t j = 0; j < keys; j++)
		most = p[j] > most ? p[j] : most;
	for (int64_t j = 0; j < keys; j++) {
		p[j] = expf(p[j] - most);
		sum += p[j];
	}
	for (int64_t j = 0; j < keys; j++)
		p[j] /= sum;
}

static void forward_sample(const struct pd_compiled_layer *l, int64_t sample)
{
	const struct pd_tile_ops *ops = pd_tile_ops();
	const struct additive *n = l->own;
	const float *a = slot(l, n->a) + sample * n->queries * n->padded;
	const float *b = slot(l, n->b) + sample * n->keys * n->padded;
	float *p = slot(l, n->p) + sample * n->queries * n->keys;
	int64_t keys = seen(l, sample);

	memset(p, 0, sizeof(*p) * (size_t)(n->queries * n->keys));
	for (int64_t i = 0; i < n->queries; i++) {
		for (int64_t j = 0; j < keys; j++)
			p[i * n->keys + j] = ops->tanh_dot(scratch(l, n->u), a + i * n->padded,
							   b + j * n->padded, n->padded);
		soften(p + i * n->keys, keys);
	}
	ops->multiply(&(struct pd_tile_product){
		.m = n->queries, .n = n->padded, .k = keys, .a = p, .a_row = n->keys, .a_column = 1,
		.b = scratch(l, n->k) + sample * n->keys * n->padded, .ldb = n->padded,
		.c = scratch(l, n->o) + sample * n->queries * n->padded, .ldc = n->padded,
	});
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const struct additive *n = l->own;
	float *a = slot(l, n->a), *b = slot(l, n->b), *u = scratch(l, n->u);
	double length;

	read_rows(l, scratch(l, n->q), l->src[QUERIES], query_rows(l));
	read_rows(l, scratch(l, n->k), l->src[KEYS], key_rows(l));
	if (project(l, a, scratch(l, n->q), query_rows(l), QUERY_WEIGHT, err) < 0 ||
	    project(l, b, scratch(l, n->k), key_rows(l), KEY_WEIGHT, err) < 0)
		return -1;
	pad(l, a, query_rows(l), parameter(l, BIAS, u));
	pad(l, b, key_rows(l), NULL);
	length = read_direction(l, u);
	pd_tile_ops()->scale(u, (float)(one(l, SCALE) / length), n->padded);
#pragma omp parallel for schedule(dynamic)
	for (int64_t sample = 0; sample < l->net->batch; sample++)
		forward_sample(l, sample);
	write_rows(l, l->dst, scratch(l, n->o), query_rows(l));
	return 0;
}

/* ---- backward ---- */

/* dS of a query, from P and the products of dO with the keys, which ds has. */
static void soften_back(float *ds, const float *p, int64_t keys)
{
	float sum = 0;

	for (int64_t j = 0; j < keys; j++)
		sum += p[j] * ds[j];
	for (int64_t j = 0; j < keys; j++)
		ds[j] = p[j] * (ds[j] - sum);
}

static void backward_sample(const struct pd_compiled_layer *l, int64_t sample)
{
	const struct pd_tile_ops *ops = pd_tile_ops();
	const struct additive *n = l->own;
	int64_t at_query = sample * n->queries * n->padded, at_key = sample * n->keys * n->padded;
	const float *p = slot(l, n->p) + sample * n->queries * n->keys;
	const float *k = scratch(l, n->k) + at_key, *d_o = scratch(l, n->o) + at_query;
	float *ds = scratch(l, n->ds) + sample * n->keys;
	struct pd_tile_tanh pair = { .u = scratch(l, n->u),
				     .du = scratch(l, n->du) + sample * n->padded };
	int64_t keys = seen(l, sample);

	for (int64_t i = 0; i < n->queries; i++) {
		pair.a = slot(l, n->a) + at_query + i * n->padded;
		pair.da = scratch(l, n->da) + at_query + i * n->padded;
		for (int64_t j = 0; j < keys; j++)
			ds[j] = ops->dot(d_o + i * n->padded, k + j * n->padded, n->padded);
		soften_back(ds, p + i * n->keys, keys);
		for (int64_t j = 0; j < keys; j++) {
			pair.b = slot(l, n->b) + at_key + j * n->padded;
			pair.db = scratch(l, n->db) + at_key + j * n->padded;
			pair.factor = ds[j];
			ops->tanh_back(&pair, n->padded);
		}
	}
	ops->multiply(&(struct pd_tile_product){
		.m = n->keys, .n = n->padded, .k = n->queries,
		.a = p, .a_row = 1, .a_column = n->keys, .b = d_o, .ldb = n->padded,
		.c = scratch(l, n->dk) + at_key, .ldc = n->padded,
	});
}

/* Adds up rows, in their order. */
static void add_rows(float *sum, const float *rows, int64_t count, int64_t width, int64_t step)
{
	memset(sum, 0, sizeof(*sum) * (size_t)width);
	for (int64_t r = 0; r < count; r++)
		for (int64_t i = 0; i < width; i++)
			sum[i] += rows[r * step + i];
}

/* From du, of all samples, those of the direction and its length. */
static void direction_back(const struct pd_compiled_layer *l, float *d_weight, float *d_scale)
{
	const struct additive *n = l->own;
	float *w = scratch(l, n->u), *du = scratch(l, n->du);
	double length = read_direction(l, w), along = 0, scale = (double)one(l, SCALE);

	add_rows(d_weight, du, l->net->batch, n->width, n->padded);
	for (int64_t i = 0; i < n->width; i++)
		along += (double)d_weight[i] * (double)w[i] / length;
	for (int64_t i = 0; i < n->width; i++)
		d_weight[i] = (float)(scale / length *
				      ((double)d_weight[i] - along * (double)w[i] / length));
	*d_scale = (float)along;
}

static int weight_back(const struct pd_compiled_layer *l, float *d_weight, size_t gradient,
		       size_t input, int64_t rows, struct pd_error *err)
{
	const struct additive *n = l->own;

	return pd_matrix_multiply(&(struct pd_matrix_product){
		.m = n->width, .n = n->width, .k = rows,
		.a = scratch(l, gradient), .lda = n->padded, .transposed_a = true,
		.b = scratch(l, input), .ldb = n->padded, .c = d_weight, .ldc = n->width,
	}, err);
}

static int input_back(const struct pd_compiled_layer *l, int which, size_t d_input, size_t gradient,
		      int64_t rows, bool adds, struct pd_error *err)
{
	const struct additive *n = l->own;

	return pd_matrix_multiply(&(struct pd_matrix_product){
		.m = rows, .n = n->width, .k = n->width,
		.a = scratch(l, gradient), .lda = n->padded,
		.b = parameter(l, which, scratch(l, n->weight)), .ldb = n->width,
		.c = scratch(l, d_input), .ldc = n->padded, .adds = adds,
	}, err);
}

/* Makes A's, B's and u's gradients, and the part of that of the keys which is the values'. */
static void scores_back(const struct pd_compiled_layer *l)
{
	const struct additive *n = l->own;
	size_t row = sizeof(float) * (size_t)n->padded;
	float *u = scratch(l, n->u);
	double length = read_direction(l, u);

	pd_tile_ops()->scale(u, (float)(one(l, SCALE) / length), n->padded);
	memset(scratch(l, n->da), 0, row * (size_t)query_rows(l));
	memset(scratch(l, n->db), 0, row * (size_t)key_rows(l));
	memset(scratch(l, n->du), 0, row * (size_t)l->net->batch);
#pragma omp parallel for schedule(dynamic)
	for (int64_t sample = 0; sample < l->net->batch; sample++)
		backward_sample(l, sample);
}

static int parameters_back(const struct pd_compiled_layer *l, const struct pd_pass *pass,
			   struct pd_error *err)
{
	const struct additive *n = l->own;
	float *d[PARAMETERS];

	for (int p = 0; p < PARAMETERS; p++)
		d[p] = pass->part == PD_BACKWARD_INPUT ? (float *)((char *)l->split + n->kept[p])
						       : l->diff_parameters[p];
	add_rows(d[BIAS], scratch(l, n->da), query_rows(l), n->width, n->padded);
	direction_back(l, d[WEIGHT], d[SCALE]);
	return weight_back(l, d[QUERY_WEIGHT], n->da, n->q, query_rows(l), err) < 0 ||
	       weight_back(l, d[KEY_WEIGHT], n->db, n->k, key_rows(l), err) < 0 ? -1 : 0;
}

static int inputs_back(const struct pd_compiled_layer *l, struct pd_error *err)
{
	const struct additive *n = l->own;

	if (l->diff_src[QUERIES]) {
		if (input_back(l, QUERY_WEIGHT, n->dq, n->da, query_rows(l), false, err) < 0)
			return -1;
		write_rows(l, l->diff_src[QUERIES], scratch(l, n->dq), query_rows(l));
	}
	if (l->diff_src[KEYS]) {
		if (input_back(l, KEY_WEIGHT, n->dk, n->db, key_rows(l), true, err) < 0)
			return -1;
		write_rows(l, l->diff_src[KEYS], scratch(l, n->dk), key_rows(l));
	}
	return 0;
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const struct additive *n = l->own;

	if (pass->part == PD_BACKWARD_WEIGHT) {
		for (int p = 0; p < PARAMETERS; p++)
			memcpy(l->diff_parameters[p], (char *)l->split + n->kept[p],
			       sizeof(float) * (size_t)l->layer->parameters[p].elements);
		return 0;
	}
	read_rows(l, scratch(l, n->q), l->src[QUERIES], query_rows(l));
	read_rows(l, scratch(l, n->k), l->src[KEYS], key_rows(l));
	read_rows(l, scratch(l, n->o), l->diff_dst, query_rows(l));
	scores_back(l);
	return parameters_back(l, pass, err) < 0 ? -1 : inputs_back(l, err);
}

const struct pd_compiled_kind pd_cpu_additive_attention = {
	.plain = true,
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};
