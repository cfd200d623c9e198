/* SPDX-License-Identifier: Apache-2.0 */
#include "ref_kind.h"

#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- attention ---- */

/* One head of one query. */
struct head {
	int64_t sample, head, kv_head, query;
	int64_t width, value_width, keys, first, length;        /* it sees keys from first to length - 1 */
	double *p, *dp, *factor;        /* by key; factor: the factor of dropout */
};

static double keep_factor(const struct ref_job *j, const struct head *h, int64_t key)
{
	int64_t queries = j->in->size[0], row = h->head * queries + h->query;
	uint64_t four = (uint64_t)(row * ((h->keys + 3) / 4) + key / 4);
	struct pd_random4 r = pd_random(j->r->seed, PD_RNG_DROPOUT + (uint64_t)j->index,
					(uint32_t)(j->r->first_sample + h->sample), (uint32_t)four);

	if (j->r->evaluate || j->layer->p == 0)
		return 1;
	return pd_unit(r.v[key % 4]) >= (float)j->layer->p ? 1 / (1 - j->layer->p) : 0;
}

/* Returns the index at which a head's numbers begin in a row of keys or values. */
static int64_t key_place(const struct ref_job *j, const struct head *h, int64_t key, int64_t width)
{
	return ((h->sample * h->keys + key) * j->layer->kv_heads + h->kv_head) * width;
}

static int64_t query_place(const struct ref_job *j, const struct head *h, int64_t width)
{
	return ((h->sample * j->in->size[0] + h->query) * j->layer->heads + h->head) * width;
}

/* Returns the index of the bias of a key, by T5's rule. */
static int64_t bias_place(const struct ref_job *j, const struct head *h, int64_t key)
{
	int64_t half = j->layer->causal ? j->layer->relative_buckets : j->layer->relative_buckets / 2;
	int64_t distance = key < h->query ? h->query - key : j->layer->causal ? 0 : key - h->query;
	int64_t exact = half / 2, bucket = distance;

	if (distance >= exact)
		bucket = exact + (int64_t)(logf((float)distance / (float)exact) /
			(float)log((double)j->layer->max_distance / (double)exact) * (float)(half - exact));
	bucket = bucket < half ? bucket : half - 1;
	return (bucket + (!j->layer->causal && key > h->query ? half : 0)) * j->layer->heads + h->head;
}

static void soften(const struct ref_job *j, const struct head *h)
{
	const double *q = j->x + query_place(j, h, h->width), *k = j->r->x[j->layer->inputs[1]];
	double most = -INFINITY, sum = 0;

	for (int64_t i = h->first; i < h->length; i++) {
		h->p[i] = j->layer->relative_buckets > 0 ? j->w[0][bias_place(j, h, i)] : 0;
		for (int64_t c = 0; c < h->width; c++)
			h->p[i] += j->layer->scale * q[c] * k[key_place(j, h, i, h->width) + c];
		most = fmax(most, h->p[i]);
	}
	for (int64_t i = h->first; i < h->length; i++)
		sum += h->p[i] = exp(h->p[i] - most);
	for (int64_t i = h->first; i < h->length; i++) {
		h->p[i] /= sum;
		h->factor[i] = keep_factor(j, h, i);
	}
}

static void attend(const struct ref_job *j, const struct head *h)
{
	const double *v = j->r->x[j->layer->inputs[2]];

	for (int64_t i = h->first; i < h->length; i++)
		for (int64_t c = 0; c < h->value_width; c++)
			j->y[query_place(j, h, h->value_width) + c] += h->p[i] * h->factor[i] *
				v[key_place(j, h, i, h->value_width) + c];
}

static void attend_back(const struct ref_job *j, const struct head *h)
{
	const int *inputs = j->layer->inputs;
	int64_t q = query_place(j, h, h->width);
	const double *dy = j->dy + query_place(j, h, h->value_width);
	double sum = 0;

	for (int64_t i = h->first; i < h->length; i++) {
		int64_t v = key_place(j, h, i, h->value_width);

		h->dp[i] = 0;
		for (int64_t c = 0; c < h->value_width; c++) {
			h->dp[i] += h->factor[i] * dy[c] * j->r->x[inputs[2]][v + c];
			j->r->dx[inputs[2]][v + c] += h->p[i] * h->factor[i] * dy[c];
		}
		sum += h->p[i] * h->dp[i];
	}
	for (int64_t i = h->first; i < h->length; i++) {
		int64_t k = key_place(j, h, i, h->width);
		double ds = h->p[i] * (h->dp[i] - sum);

		if (j->layer->relative_buckets > 0)
			ref_add(j, 0, bias_place(j, h, i), ds);
		ds *= j->layer->scale;
		for (int64_t c = 0; c < h->width; c++) {
			j->r->dx[inputs[0]][q + c] += ds * j->r->x[inputs[1]][k + c];
			j->r->dx[inputs[1]][k + c] += ds * j->r->x[inputs[0]][q + c];
		}
	}
}

void ref_attention(const struct ref_job *j)
{
	const struct pd_layer *a = j->layer;
	const struct pd_shape *keys = pd_model_shape(j->r->model, a->inputs[1]);
	const struct pd_shape *values = pd_model_shape(j->r->model, a->inputs[2]);
	const double *lengths = a->input_count > 3 ? j->r->x[a->inputs[3]] : NULL;
	size_t room = (size_t)keys->size[0];
	struct head h = {
		.width = j->in->size[1] / a->heads, .value_width = values->size[1] / a->kv_heads,
		.keys = keys->size[0], .p = pd_calloc(room, sizeof(double)),
		.dp = pd_calloc(room, sizeof(double)), .factor = pd_calloc(room, sizeof(double)),
	};

	for (h.sample = 0; h.sample < j->r->batch; h.sample++)
		for (h.head = 0; h.head < a->heads; h.head++)
			for (h.query = 0; h.query < j->in->size[0]; h.query++) {
				h.kv_head = h.head / (a->heads / a->kv_heads);
				h.length = lengths ? (int64_t)lengths[h.sample] : h.keys;
				if (a->causal && h.length > h.query + 1)
					h.length = h.query + 1;
				h.first = a->window > 0 && h.query >= a->window ? h.query - a->window + 1 : 0;
				soften(j, &h);
				if (j->back)
					attend_back(j, &h);
				else
					attend(j, &h);
			}
	free(h.p);
	free(h.dp);
	free(h.factor);
}

/* ---- additive attention ---- */

/* One sample's queries, keys and results. */
struct pairs {
	int64_t queries, keys, seen, width;
	const double *q, *k, *dy;
	double *y, *dq, *dk;
	double length;                  /* the norm of the weight vector */
	double *a, *b, *p;              /* projected queries and keys; the softmax of scores */
	double *da, *db;
};

static void project(double *y, const double *x, const double *w, int64_t rows, int64_t width)
{
	for (int64_t r = 0; r < rows; r++)
		for (int64_t o = 0; o < width; o++) {
			y[r * width + o] = 0;
			for (int64_t i = 0; i < width; i++)
				y[r * width + o] += w[o * width + i] * x[r * width + i];
		}
}

static void project_back(const double *dy, double *dx, const double *x,
			 const struct ref_job *j, int p, int64_t rows, int64_t width)
{
	for (int64_t r = 0; r < rows; r++)
		for (int64_t o = 0; o < width; o++)
			for (int64_t i = 0; i < width; i++) {
				dx[r * width + i] += j->w[p][o * width + i] * dy[r * width + o];
				ref_add(j, p, o * width + i, x[r * width + i] * dy[r * width + o]);
			}
}

static double pair_tanh(const struct ref_job *j, const struct pairs *s, int64_t i, int64_t key, int64_t c)
{
	return tanh(s->a[i * s->width + c] + j->w[4][c] + s->b[key * s->width + c]);
}

static void soften_pairs(const struct ref_job *j, const struct pairs *s, int64_t i)
{
	double most = -INFINITY, sum = 0, *p = s->p + i * s->keys;

	for (int64_t key = 0; key < s->seen; key++) {
		p[key] = 0;
		for (int64_t c = 0; c < s->width; c++)
			p[key] += j->w[3][0] * j->w[2][c] / s->length * pair_tanh(j, s, i, key, c);
		most = fmax(most, p[key]);
	}
	for (int64_t key = 0; key < s->seen; key++)
		sum += p[key] = exp(p[key] - most);
	for (int64_t key = 0; key < s->seen; key++) {
		p[key] /= sum;
		for (int64_t c = 0; c < s->width && !j->back; c++)
			s->y[i * s->width + c] += p[key] * s->k[key * s->width + c];
	}
}

static void score_back(const struct ref_job *j, const struct pairs *s, int64_t i, int64_t key, double ds)
{
	double g = j->w[3][0], dot = 0;

	for (int64_t c = 0; c < s->width; c++)
		dot += j->w[2][c] / s->length * pair_tanh(j, s, i, key, c);
	ref_add(j, 3, 0, ds * dot);
	for (int64_t c = 0; c < s->width; c++) {
		double t = pair_tanh(j, s, i, key, c), v = j->w[2][c] / s->length;
		double slope = ds * g * v * (1 - t * t);

		ref_add(j, 2, c, ds * g / s->length * (t - dot * v));
		ref_add(j, 4, c, slope);
		s->da[i * s->width + c] += slope;
		s->db[key * s->width + c] += slope;
	}
}

static void pairs_back(const struct ref_job *j, const struct pairs *s, int64_t i)
{
	const double *p = s->p + i * s->keys, *dy = s->dy + i * s->width;
	double *dp = pd_calloc((size_t)s->keys, sizeof(*dp)), sum = 0;

	for (int64_t key = 0; key < s->seen; key++) {
		for (int64_t c = 0; c < s->width; c++) {
			dp[key] += dy[c] * s->k[key * s->width + c];
			s->dk[key * s->width + c] += p[key] * dy[c];
		}
		sum += p[key] * dp[key];
	}
	for (int64_t key = 0; key < s->seen; key++)
		score_back(j, s, i, key, p[key] * (dp[key] - sum));
	free(dp);
}

void ref_additive_attention(const struct ref_job *j)
{
	const struct pd_layer *a = j->layer;
	const struct pd_shape *shape = pd_model_shape(j->r->model, a->inputs[1]);
	const double *lengths = a->input_count > 2 ? j->r->x[a->inputs[2]] : NULL;
	struct pairs s = { .queries = j->in->size[0], .keys = shape->size[0],
			   .width = shape->size[1], .length = 0 };
	int64_t of_q = s.queries * s.width, of_k = s.keys * s.width;
	double *room = pd_calloc((size_t)(2 * of_q + 2 * of_k + s.queries * s.keys), sizeof(*room));

	for (int64_t c = 0; c < s.width; c++)
		s.length += j->w[2][c] * j->w[2][c];
	s.length = sqrt(s.length);
	s.a = room;
	s.b = s.a + of_q;
	s.p = s.b + of_k;
	s.da = s.p + s.queries * s.keys;
	s.db = s.da + of_q;
	for (int64_t n = 0; n < j->r->batch; n++) {
		s.q = j->x + n * of_q;
		s.k = j->r->x[a->inputs[1]] + n * of_k;
		s.y = j->y + n * of_q;
		s.dy = j->dy + n * of_q;
		s.dq = j->dx + n * of_q;
		s.dk = j->r->dx[a->inputs[1]] + n * of_k;
		s.seen = lengths ? (int64_t)lengths[n] : s.keys;
		memset(s.da, 0, sizeof(*room) * (size_t)(of_q + of_k));
		project(s.a, s.q, j->w[0], s.queries, s.width);
		project(s.b, s.k, j->w[1], s.keys, s.width);
		for (int64_t i = 0; i < s.queries; i++) {
			soften_pairs(j, &s, i);
			if (j->back)
				pairs_back(j, &s, i);
		}
		if (!j->back)
			continue;
		project_back(s.da, s.dq, s.q, j, 0, s.queries, s.width);
		project_back(s.db, s.dk, s.k, j, 1, s.keys, s.width);
	}
	free(room);
}
