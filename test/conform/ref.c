/* SPDX-License-Identifier: Apache-2.0 */
#include "ref.h"

#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static size_t elements(const struct ref *r, int tensor)
{
	return (size_t)(r->batch * pd_shape_elements(pd_model_shape(r->model, tensor)));
}

static int owner(const struct ref *r, int l)
{
	return r->model->layers[l].shares >= 0 ? r->model->layers[l].shares : l;
}

static double **new_tensors(const struct pd_layer_tensor *tensors, int count)
{
	double **all = pd_calloc((size_t)count, sizeof(*all));

	for (int i = 0; i < count; i++) {
		all[i] = pd_calloc((size_t)tensors[i].elements, sizeof(**all));
		for (int64_t e = 0; e < tensors[i].elements && tensors[i].begins == PD_BEGINS_CONSTANT; e++)
			all[i][e] = (double)tensors[i].value;
	}
	return all;
}

static void free_tensors(double **all, int count)
{
	for (int i = 0; i < count; i++)
		free(all[i]);
	free(all);
}

struct ref *ref_new(const struct pd_model *model, int64_t batch, uint64_t seed)
{
	struct ref *r = pd_zalloc(sizeof(*r));
	size_t layers = (size_t)model->layer_count, tensors = (size_t)pd_model_tensors(model);

	r->model = model;
	r->batch = r->valid = batch;
	r->seed = seed;
	r->x = pd_calloc(tensors, sizeof(*r->x));
	r->dx = pd_calloc(tensors, sizeof(*r->dx));
	r->w = pd_calloc(layers, sizeof(*r->w));
	r->dw = pd_calloc(layers, sizeof(*r->dw));
	r->state = pd_calloc(layers, sizeof(*r->state));
	r->kept = pd_calloc(layers, sizeof(*r->kept));
	for (size_t t = 0; t < tensors; t++) {
		r->x[t] = pd_calloc(elements(r, (int)t), sizeof(double));
		r->dx[t] = pd_calloc(elements(r, (int)t), sizeof(double));
	}
	for (size_t l = 0; l < layers; l++) {
		const struct pd_layer *layer = &model->layers[l];

		r->w[l] = new_tensors(layer->parameters, layer->parameter_count);
		r->dw[l] = new_tensors(layer->parameters, layer->parameter_count);
		r->state[l] = new_tensors(layer->states, layer->state_count);
		r->kept[l] = pd_calloc(7 * elements(r, model->input_count + (int)l) +
				       2 * (size_t)(layer->lanes * layer->hidden_size),
				       sizeof(double));
	}
	return r;
}

void ref_free(struct ref *r)
{
	for (int t = 0; t < pd_model_tensors(r->model); t++) {
		free(r->x[t]);
		free(r->dx[t]);
	}
	for (int l = 0; l < r->model->layer_count; l++) {
		const struct pd_layer *layer = &r->model->layers[l];

		free_tensors(r->w[l], layer->parameter_count);
		free_tensors(r->dw[l], layer->parameter_count);
		free_tensors(r->state[l], layer->state_count);
		free(r->kept[l]);
	}
	free(r->x);
	free(r->dx);
	free(r->w);
	free(r->dw);
	free(r->state);
	free(r->kept);
	free(r);
}

/* One layer at work.  back: gradients are added to dx, dw; else y is written. */
struct job {
	struct ref *r;
	const struct pd_layer *layer;
	int index;
	const struct pd_shape *in;      /* of the first input */
	const double *x, *dy;
	double *y, *dx;
	double **w, **dw;               /* by parameter */
	double **state, *kept;
	bool back;
};

/* One product of a convolution or linear layer. */
static void product(const struct job *j, int64_t y, int64_t x, int64_t w)
{
	if (j->back) {
		j->dx[x] += j->w[0][w] * j->dy[y];
		j->dw[0][w] += j->x[x] * j->dy[y];
	} else {
		j->y[y] += j->w[0][w] * j->x[x];
	}
}

static void bias(const struct job *j, int64_t y, int64_t channel)
{
	if (!j->layer->bias)
		return;
	if (j->back)
		j->dw[1][channel] += j->dy[y];
	else
		j->y[y] += j->w[1][channel];
}

static void conv2d(const struct job *j)
{
	const struct pd_layer *a = j->layer;
	const int64_t *in = j->in->size, *out = a->output.size;
	int64_t of = out[0] / a->groups, cf = in[0] / a->groups;

	for (int64_t n = 0, y = 0; n < j->r->batch; n++)
	for (int64_t o = 0; o < out[0]; o++)
	for (int64_t p = 0; p < out[1]; p++)
	for (int64_t q = 0; q < out[2]; q++, y++) {
		bias(j, y, o);
		for (int64_t c = 0; c < cf; c++)
		for (int64_t k = 0; k < a->kernel[0]; k++)
		for (int64_t l = 0; l < a->kernel[1]; l++) {
			int64_t row = p * a->stride[0] - a->padding[0] + k * a->dilation[0];
			int64_t col = q * a->stride[1] - a->padding[1] + l * a->dilation[1];

			if (row < 0 || row >= in[1] || col < 0 || col >= in[2])
				continue;
			product(j, y, ((n * in[0] + o / of * cf + c) * in[1] + row) * in[2] + col,
				((o * cf + c) * a->kernel[0] + k) * a->kernel[1] + l);
		}
	}
}

static void linear(const struct job *j)
{
	int64_t in = pd_shape_width(j->in), out = pd_shape_width(&j->layer->output);

	for (int64_t n = 0; n < j->r->batch * pd_shape_rows(j->in); n++)
		for (int64_t o = 0; o < out; o++) {
			bias(j, n * out + o, o);
			for (int64_t i = 0; i < in; i++)
				product(j, n * out + o, n * in + i, o * in + i);
		}
}

static void curve(const struct job *j)
{
	size_t n = elements(j->r, j->layer->inputs[0]);

	for (size_t i = 0; i < n; i++) {
		double x = j->x[i], y, slope;

		if (j->layer->kind == PD_LAYER_relu) {
			y = x > 0 ? x : 0;
			slope = x > 0;
		} else if (j->layer->kind == PD_LAYER_tanh) {
			y = tanh(x);
			slope = 1 - y * y;
		} else if (j->layer->kind == PD_LAYER_gelu &&
			   j->layer->approximate == PD_GELU_NONE) {
			double phi = 0.5 * (1 + erf(x / sqrt(2)));

			y = x * phi;
			slope = phi + x * exp(-x * x / 2) / sqrt(2 * M_PI);
		} else if (j->layer->kind == PD_LAYER_gelu) {
			double t = tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));

			y = 0.5 * x * (1 + t);
			slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * sqrt(2 / M_PI) *
				(1 + 3 * 0.044715 * x * x);
		} else if (j->layer->kind == PD_LAYER_silu) {
			double s = 1 / (1 + exp(-x));

			y = x * s;
			slope = s * (1 + x * (1 - s));
		} else {
			y = 1 / (1 + exp(-x));
			slope = y * (1 - y);
		}
		if (j->back)
			j->dx[i] += slope * j->dy[i];
		else
			j->y[i] = y;
	}
}

struct window {
	int64_t begin[2], end[2];       /* inside the plane */
	double divisor;
};

static struct window window_of(const struct job *j, int64_t p, int64_t q)
{
	const struct pd_layer *a = j->layer;
	const int64_t at[2] = { p, q };
	struct window w = { .divisor = 1 };

	for (int d = 0; d < 2; d++) {
		int64_t s = j->in->size[1 + d], n = a->output.size[1 + d], full;

		if (a->kind == PD_LAYER_adaptive_avgpool2d) {
			w.begin[d] = at[d] * s / n;
			w.end[d] = ((at[d] + 1) * s + n - 1) / n;
			full = w.end[d] - w.begin[d];
		} else {
			int64_t begin = at[d] * a->stride[d] - a->padding[d];

			full = a->kernel[d];
			w.begin[d] = begin < 0 ? 0 : begin;
			w.end[d] = begin + full > s ? s : begin + full;
		}
		w.divisor *= (double)(a->count_include_pad ? full : w.end[d] - w.begin[d]);
	}
	return w;
}

static void pool_one(const struct job *j, int64_t plane, int64_t y, struct window w)
{
	int64_t width = j->in->size[2], best = -1;
	double sum = 0;

	for (int64_t r = w.begin[0]; r < w.end[0]; r++)
		for (int64_t c = w.begin[1]; c < w.end[1]; c++) {
			int64_t i = plane * j->in->size[1] * width + r * width + c;

			sum += j->x[i];
			if (best < 0 || j->x[i] > j->x[best])
				best = i;
			if (j->back && j->layer->kind != PD_LAYER_maxpool2d)
				j->dx[i] += j->dy[y] / w.divisor;
		}
	if (j->layer->kind == PD_LAYER_maxpool2d && j->back)
		j->dx[best] += j->dy[y];
	else if (!j->back)
		j->y[y] = j->layer->kind == PD_LAYER_maxpool2d ? j->x[best] : sum / w.divisor;
}

static void pool2d(const struct job *j)
{
	const int64_t *out = j->layer->output.size;
	int64_t y = 0;

	for (int64_t plane = 0; plane < j->r->batch * out[0]; plane++)
		for (int64_t p = 0; p < out[1]; p++)
			for (int64_t q = 0; q < out[2]; q++, y++)
				pool_one(j, plane, y, window_of(j, p, q));
}

static void statistics(const struct job *j, int64_t c, double *mean_p, double *variance_p)
{
	int64_t area = j->in->size[1] * j->in->size[2];
	double count = (double)(j->r->batch * area), momentum = j->layer->momentum;

	*mean_p = *variance_p = 0;
	for (int64_t n = 0; n < j->r->batch; n++)
		for (int64_t i = 0; i < area; i++)
			*mean_p += j->x[(n * j->in->size[0] + c) * area + i] / count;
	for (int64_t n = 0; n < j->r->batch; n++)
		for (int64_t i = 0; i < area; i++)
			*variance_p += pow(j->x[(n * j->in->size[0] + c) * area + i] - *mean_p, 2) /
				       count;
	j->state[0][c] = (1 - momentum) * j->state[0][c] + momentum * *mean_p;
	j->state[1][c] = (1 - momentum) * j->state[1][c] +
			 momentum * *variance_p * (count > 1 ? count / (count - 1) : 1);
}

static void batchnorm_back(const struct job *j, int64_t c, double mean, double scale)
{
	int64_t area = j->in->size[1] * j->in->size[2];
	double count = (double)(j->r->batch * area), sum = 0, sum_x = 0;

	for (int pass = 0; pass < 2; pass++)
		for (int64_t n = 0; n < j->r->batch; n++)
			for (int64_t i = 0; i < area; i++) {
				int64_t at = (n * j->in->size[0] + c) * area + i;
				double normal = (j->x[at] - mean) * scale;

				if (pass == 0) {
					sum += j->dy[at];
					sum_x += j->dy[at] * normal;
				} else {
					j->dx[at] += j->w[0][c] * scale *
						(j->dy[at] - sum / count - normal * sum_x / count);
				}
			}
	j->dw[0][c] += sum_x;
	j->dw[1][c] += sum;
}

static void batchnorm2d(const struct job *j)
{
	int64_t area = j->in->size[1] * j->in->size[2];
	double *means = j->kept, *variances = j->kept + j->in->size[0];

	for (int64_t c = 0; c < j->in->size[0]; c++) {
		double mean = means[c], variance = variances[c], scale;

		if (j->r->evaluate) {
			mean = j->state[0][c];
			variance = j->state[1][c];
		} else if (!j->back) {
			statistics(j, c, &mean, &variance);
			means[c] = mean;
			variances[c] = variance;
		}
		scale = 1 / sqrt(variance + j->layer->eps);
		if (j->back)
			batchnorm_back(j, c, mean, scale);
		for (int64_t n = 0; n < j->r->batch && !j->back; n++)
			for (int64_t i = 0; i < area; i++) {
				int64_t at = (n * j->in->size[0] + c) * area + i;

				j->y[at] = (j->x[at] - mean) * scale * j->w[0][c] + j->w[1][c];
			}
	}
}

/* One row: sums of a gradient that are the same for all its elements come first. */
static void layernorm_row(const struct job *j, int64_t begin, int64_t width)
{
	double **w = j->w, mean = 0, variance = 0, scale, sum = 0, sum_x = 0;
	int parameters = j->layer->parameter_count;
	bool centred = j->layer->kind == PD_LAYER_layernorm;

	for (int64_t i = 0; i < width && centred; i++)
		mean += j->x[begin + i] / (double)width;
	for (int64_t i = 0; i < width; i++)
		variance += pow(j->x[begin + i] - mean, 2) / (double)width;
	scale = 1 / sqrt(variance + j->layer->eps);
	for (int64_t i = 0; i < width; i++) {
		double normal = (j->x[begin + i] - mean) * scale;
		double g = j->dy[begin + i] * (parameters > 0 ? w[0][i] : 1);

		sum += centred ? g / (double)width : 0;
		sum_x += g * normal / (double)width;
		if (!j->back)
			j->y[begin + i] = normal * (parameters > 0 ? w[0][i] : 1) +
					  (parameters > 1 ? w[1][i] : 0);
		if (j->back && parameters > 0)
			j->dw[0][i] += j->dy[begin + i] * normal;
		if (j->back && parameters > 1)
			j->dw[1][i] += j->dy[begin + i];
	}
	for (int64_t i = 0; i < width && j->back; i++)
		j->dx[begin + i] += scale * (j->dy[begin + i] * (parameters > 0 ? w[0][i] : 1) -
			sum - (j->x[begin + i] - mean) * scale * sum_x);
}

static void layernorm(const struct job *j)
{
	int64_t width = pd_shape_elements(&j->layer->normalized_shape);
	int64_t count = j->r->batch * pd_shape_elements(j->in);

	for (int64_t begin = 0; begin < count; begin += width)
		layernorm_row(j, begin, width);
}

/* The element of a sample whose random number is that of element e. */
static int64_t drawn(const struct job *j, int64_t e)
{
	struct pd_axis a;

	if (j->layer->shared_dim == PD_NO_AXIS)
		return e;
	a = pd_shape_axis(j->in, j->layer->shared_dim);
	return e / a.inner / a.extent * a.inner + e % a.inner;
}

static void dropout(const struct job *j)
{
	int64_t count = pd_shape_elements(j->in);

	for (int64_t n = 0; n < j->r->batch; n++)
		for (int64_t e = 0; e < count; e++) {
			int64_t sample = j->r->first_sample + n, i = n * count + e;
			int64_t number = drawn(j, e);
			struct pd_random4 r = pd_random(j->r->seed,
				PD_RNG_DROPOUT + (uint64_t)j->index, (uint32_t)sample,
				(uint32_t)(number / 4));
			bool keep = pd_unit(r.v[number % 4]) >= (float)j->layer->p;
			double factor = j->r->evaluate ? 1 : keep ? 1 / (1 - j->layer->p) : 0;

			if (j->back)
				j->dx[i] += factor * j->dy[i];
			else
				j->y[i] = factor * j->x[i];
		}
}

/* ---- attention ---- */

/* One head of one query. */
struct head {
	int64_t sample, head, kv_head, query;
	int64_t width, value_width, keys, length;
	double *p, *dp, *factor;        /* by key; factor: of dropout */
};

static double keep_factor(const struct job *j, const struct head *h, int64_t key)
{
	int64_t queries = j->in->size[0], row = h->head * queries + h->query;
	uint64_t four = (uint64_t)(row * ((h->keys + 3) / 4) + key / 4);
	struct pd_random4 r = pd_random(j->r->seed, PD_RNG_DROPOUT + (uint64_t)j->index,
					(uint32_t)(j->r->first_sample + h->sample), (uint32_t)four);

	if (j->r->evaluate || j->layer->p == 0)
		return 1;
	return pd_unit(r.v[key % 4]) >= (float)j->layer->p ? 1 / (1 - j->layer->p) : 0;
}

/* Where the numbers of a head begin in a row. */
static int64_t key_place(const struct job *j, const struct head *h, int64_t key, int64_t width)
{
	return ((h->sample * h->keys + key) * j->layer->kv_heads + h->kv_head) * width;
}

static int64_t query_place(const struct job *j, const struct head *h, int64_t width)
{
	return ((h->sample * j->in->size[0] + h->query) * j->layer->heads + h->head) * width;
}

static void soften(const struct job *j, const struct head *h)
{
	const double *q = j->x + query_place(j, h, h->width), *k = j->r->x[j->layer->inputs[1]];
	double most = -INFINITY, sum = 0;

	for (int64_t i = 0; i < h->length; i++) {
		h->p[i] = 0;
		for (int64_t c = 0; c < h->width; c++)
			h->p[i] += j->layer->scale * q[c] * k[key_place(j, h, i, h->width) + c];
		most = fmax(most, h->p[i]);
	}
	for (int64_t i = 0; i < h->length; i++)
		sum += h->p[i] = exp(h->p[i] - most);
	for (int64_t i = 0; i < h->length; i++) {
		h->p[i] /= sum;
		h->factor[i] = keep_factor(j, h, i);
	}
}

static void attend(const struct job *j, const struct head *h)
{
	const double *v = j->r->x[j->layer->inputs[2]];

	for (int64_t i = 0; i < h->length; i++)
		for (int64_t c = 0; c < h->value_width; c++)
			j->y[query_place(j, h, h->value_width) + c] += h->p[i] * h->factor[i] *
				v[key_place(j, h, i, h->value_width) + c];
}

static void attend_back(const struct job *j, const struct head *h)
{
	const int *inputs = j->layer->inputs;
	int64_t q = query_place(j, h, h->width);
	const double *dy = j->dy + query_place(j, h, h->value_width);
	double sum = 0;

	for (int64_t i = 0; i < h->length; i++) {
		int64_t v = key_place(j, h, i, h->value_width);

		h->dp[i] = 0;
		for (int64_t c = 0; c < h->value_width; c++) {
			h->dp[i] += h->factor[i] * dy[c] * j->r->x[inputs[2]][v + c];
			j->r->dx[inputs[2]][v + c] += h->p[i] * h->factor[i] * dy[c];
		}
		sum += h->p[i] * h->dp[i];
	}
	for (int64_t i = 0; i < h->length; i++) {
		int64_t k = key_place(j, h, i, h->width);
		double ds = j->layer->scale * h->p[i] * (h->dp[i] - sum);

		for (int64_t c = 0; c < h->width; c++) {
			j->r->dx[inputs[0]][q + c] += ds * j->r->x[inputs[1]][k + c];
			j->r->dx[inputs[1]][k + c] += ds * j->r->x[inputs[0]][q + c];
		}
	}
}

static void attention(const struct job *j)
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

/* One sample. */
struct pairs {
	int64_t queries, keys, seen, width;
	const double *q, *k, *dy;
	double *y, *dq, *dk;
	double length;                  /* of the weight */
	double *a, *b, *p;              /* projected queries and keys; parts */
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

static void project_back(const double *dy, double *dx, const double *x, const double *w, double *dw,
			 int64_t rows, int64_t width)
{
	for (int64_t r = 0; r < rows; r++)
		for (int64_t o = 0; o < width; o++)
			for (int64_t i = 0; i < width; i++) {
				dx[r * width + i] += w[o * width + i] * dy[r * width + o];
				dw[o * width + i] += x[r * width + i] * dy[r * width + o];
			}
}

static double pair_tanh(const struct job *j, const struct pairs *s, int64_t i, int64_t key, int64_t c)
{
	return tanh(s->a[i * s->width + c] + j->w[4][c] + s->b[key * s->width + c]);
}

static void soften_pairs(const struct job *j, const struct pairs *s, int64_t i)
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

static void score_back(const struct job *j, const struct pairs *s, int64_t i, int64_t key, double ds)
{
	double g = j->w[3][0], dot = 0;

	for (int64_t c = 0; c < s->width; c++)
		dot += j->w[2][c] / s->length * pair_tanh(j, s, i, key, c);
	j->dw[3][0] += ds * dot;
	for (int64_t c = 0; c < s->width; c++) {
		double t = pair_tanh(j, s, i, key, c), v = j->w[2][c] / s->length;
		double slope = ds * g * v * (1 - t * t);

		j->dw[2][c] += ds * g / s->length * (t - dot * v);
		j->dw[4][c] += slope;
		s->da[i * s->width + c] += slope;
		s->db[key * s->width + c] += slope;
	}
}

static void pairs_back(const struct job *j, const struct pairs *s, int64_t i)
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

static void additive_attention(const struct job *j)
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
		project_back(s.da, s.dq, s.q, j->w[0], j->dw[0], s.queries, s.width);
		project_back(s.db, s.dk, s.k, j->w[1], j->dw[1], s.keys, s.width);
	}
	free(room);
}

/* add, concat, flatten: each sample's inputs, one after the other or on top of each other. */
static void join(const struct job *j)
{
	const struct pd_layer *a = j->layer;
	int64_t rows = j->r->batch, row, begin = 0;

	if (a->kind == PD_LAYER_concat)
		rows *= pd_shape_axis(&a->output, a->dim).outer;
	row = pd_shape_elements(&a->output) * j->r->batch / rows;
	for (int k = 0; k < a->input_count; k++) {
		int64_t count = (int64_t)elements(j->r, a->inputs[k]) / rows;
		const double *x = j->r->x[a->inputs[k]];
		double *dx = j->r->dx[a->inputs[k]];

		for (int64_t n = 0; n < rows; n++)
			for (int64_t i = 0; i < count; i++) {
				if (j->back)
					dx[n * count + i] += j->dy[n * row + begin + i];
				else
					j->y[n * row + begin + i] += x[n * count + i];
			}
		begin += a->kind == PD_LAYER_concat ? count : 0;
	}
}

static void mul(const struct job *j)
{
	int one = j->layer->inputs[0], other = j->layer->inputs[1];
	size_t n = elements(j->r, one);

	for (size_t i = 0; i < n; i++) {
		if (!j->back) {
			j->y[i] = j->r->x[one][i] * j->r->x[other][i];
			continue;
		}
		j->r->dx[one][i] += j->dy[i] * j->r->x[other][i];
		j->r->dx[other][i] += j->dy[i] * j->r->x[one][i];
	}
}

/* Element i of y is made of element i of the input, or has a part in its gradient. */
static void pass(const struct job *j, int64_t y, int64_t x, double factor)
{
	if (j->back)
		j->dx[x] += factor * j->dy[y];
	else
		j->y[y] += factor * j->x[x];
}

/* slice, mean: along an axis; the part of it that is taken. */
static void along(const struct job *j)
{
	const struct pd_layer *a = j->layer;
	struct pd_axis axis = pd_shape_axis(j->in, a->dim);
	bool mean = a->kind == PD_LAYER_mean;
	int64_t start = mean ? 0 : a->start, end = mean ? axis.extent : a->end;

	for (int64_t o = 0; o < j->r->batch * axis.outer; o++)
		for (int64_t e = start; e < end; e++)
			for (int64_t i = 0; i < axis.inner; i++) {
				int64_t row = mean ? o : o * (end - start) + e - start;

				pass(j, row * axis.inner + i, (o * axis.extent + e) * axis.inner + i,
				     mean ? 1 / (double)axis.extent : 1);
			}
}

static void transpose(const struct job *j)
{
	const struct pd_shape *out = &j->layer->output;
	int64_t n = (int64_t)elements(j->r, j->layer->inputs[0]);

	for (int64_t y = 0; y < n; y++) {
		int64_t at[PD_MAX_DIMS], rest = y, x, was;

		for (int d = out->dims - 1; d >= 0; d--) {
			at[d] = rest % out->size[d];
			rest /= out->size[d];
		}
		was = at[j->layer->dim0];
		at[j->layer->dim0] = at[j->layer->dim1];
		at[j->layer->dim1] = was;
		x = rest;
		for (int d = 0; d < out->dims; d++)
			x = x * j->in->size[d] + at[d];
		pass(j, y, x, 1);
	}
}

/* What weight_dropout multiplies an element of a weight by in this microbatch. */
static double weight_factor(const struct job *j, int64_t number)
{
	double p = j->layer->weight_dropout;
	struct pd_random4 four = pd_random(j->r->seed, PD_RNG_DROPOUT + (uint64_t)j->index,
					   (uint32_t)j->r->first_sample, (uint32_t)(number / 4));

	if (p == 0 || j->r->evaluate)
		return 1;
	return pd_unit(four.v[number % 4]) >= (float)p ? 1 / (1 - p) : 0;
}

static void embedding(const struct job *j)
{
	int64_t width = j->layer->embedding_dim, n = (int64_t)elements(j->r, j->layer->inputs[0]);

	for (int64_t p = 0; p < n; p++)
		for (int64_t i = 0; i < width; i++) {
			int64_t id = (int64_t)j->x[p];
			double factor = weight_factor(j, id);

			if (!j->back)
				j->y[p * width + i] = factor * j->w[0][id * width + i];
			else if (id != j->layer->padding_idx)
				j->dw[0][id * width + i] += factor * j->dy[p * width + i];
		}
}

/* To every so many elements the parameter's first ones are added. */
static void add_to_each(const struct job *j, int64_t each)
{
	for (int64_t i = 0; i < j->r->batch * pd_shape_elements(j->in); i++) {
		pass(j, i, i, 1);
		if (j->back)
			j->dw[0][i % each] += j->dy[i];
		else
			j->y[i] += j->w[0][i % each];
	}
}

static void position_embedding(const struct job *j)
{
	add_to_each(j, pd_shape_elements(j->in));
}

static void added_bias(const struct job *j)
{
	add_to_each(j, pd_shape_width(j->in));
}

static void rope(const struct job *j)
{
	const struct pd_layer *a = j->layer;
	int64_t d = a->head_dim, each = pd_shape_elements(j->in), row = each / j->in->size[0];

	for (int64_t n = 0; n < j->r->batch * each; n++) {
		int64_t t = n % each / row, i = n % d, begin = n - i;
		bool second = a->interleaved ? i % 2 : i >= d / 2;
		int64_t pair = a->interleaved ? i / 2 : i % (d / 2);
		int64_t other = a->interleaved ? i ^ 1 : (i + d / 2) % d;
		double angle = (double)t * pow(a->base, -2.0 * (double)pair / (double)d);

		pass(j, n, n, cos(angle));
		pass(j, n, begin + other, second ? sin(angle) : -sin(angle));
	}
}

static void mse(const struct job *j)
{
	int one = j->layer->inputs[0];
	int other = j->layer->input_count > 1 ? j->layer->inputs[1] : -1;
	int64_t each = pd_shape_elements(j->in);
	double weight = j->layer->weight;

	for (int64_t i = 0; i < j->r->valid * each; i++) {
		double d = j->r->x[one][i] - (other < 0 ? 0 : j->r->x[other][i]);
		double slope = 2 * weight * d / (double)(j->r->batch * each);

		if (j->back) {
			j->r->dx[one][i] += slope;
			if (other >= 0)
				j->r->dx[other][i] -= slope;
		} else {
			j->y[i / each] += weight * d * d / (double)each;
			j->r->loss += weight * d * d / (double)each;
		}
	}
	j->r->rows += j->back ? 0 : j->r->valid;
}

/* Rows of the batch that do not count. */
static int64_t ignored(const struct job *j, const double *label, int64_t rows)
{
	int64_t count = 0;

	for (int64_t n = 0; n < rows; n++)
		count += label[n] == (double)j->layer->ignore_index;
	return count;
}

static void loss(const struct job *j)
{
	int64_t classes = pd_shape_width(j->in), rows = pd_shape_rows(j->in);
	const double *label = j->r->x[j->layer->inputs[1]];
	double smooth = j->layer->label_smoothing;
	int64_t none = ignored(j, label, j->r->valid * rows);

	for (int64_t n = 0; n < j->r->valid * rows; n++) {
		const double *x = j->x + n * classes;
		int64_t y = (int64_t)label[n], best = 0;
		double sum = 0, all = 0;

		if (y == j->layer->ignore_index)
			continue;

		for (int64_t i = 0; i < classes; i++)
			best = x[i] > x[best] ? i : best;
		for (int64_t i = 0; i < classes; i++)
			sum += exp(x[i] - x[best]);
		for (int64_t i = 0; i < classes; i++)
			all += x[i] - x[best];
		for (int64_t i = 0; j->back && i < classes; i++)
			j->dx[n * classes + i] += (exp(x[i] - x[best]) / sum -
						   (1 - smooth) * (i == y) -
						   smooth / (double)classes) /
						  (double)(j->r->batch * rows - none);
		if (!j->back) {
			j->y[n] = log(sum) - (1 - smooth) * (x[y] - x[best]) -
				  smooth * all / (double)classes;
			j->r->loss += j->y[n];
			j->r->correct += best == y;
			j->r->rows++;
		}
	}
}

/* ---- lstm: a sample and a direction at a time ---- */

/* What forward keeps of all directions, by row: gates, cells; by sample: what it began with. */
struct lstm {
	const struct job *j;
	int64_t steps, inputs, hidden, n, length;
	int d, directions;
	double *gates, *cells, *first_hidden, *first_cells, *lanes;
	double **w, **dw;               /* of the direction: of input, of hidden, two biases */
};

static struct lstm lstm_of(const struct job *j, int64_t n, int d)
{
	int64_t hidden = j->layer->hidden_size, steps = j->in->size[0];
	int directions = j->layer->bidirectional ? 2 : 1, parameters = 2 + (int)j->layer->biases;
	int64_t rows = j->r->batch * steps * directions;
	struct lstm m = {
		.j = j, .steps = steps, .inputs = j->in->size[1], .hidden = hidden, .n = n, .d = d,
		.directions = directions, .gates = j->kept, .cells = j->kept + rows * 4 * hidden,
		.w = j->w + d * parameters, .dw = j->dw + d * parameters,
	};

	m.length = j->layer->input_count > 1 ? (int64_t)j->r->x[j->layer->inputs[1]][n] : steps;
	m.length = m.length > steps ? steps : m.length;
	m.first_hidden = m.cells + rows * hidden;
	m.first_cells = m.first_hidden + j->r->batch * hidden;
	m.lanes = j->kept + 7 * rows * hidden;
	return m;
}

/* The number of step s among the rows of the output, each of `hidden` numbers. */
static int64_t lstm_row(const struct lstm *m, int64_t s)
{
	return (m->n * m->steps + (m->d ? m->length - 1 - s : s)) * m->directions + m->d;
}

static const double *lstm_input(const struct lstm *m, int64_t s)
{
	return m->j->x + lstm_row(m, s) / m->directions * m->inputs;
}

static double lstm_factor(const struct lstm *m, int64_t element)
{
	return weight_factor(m->j, m->d * 4 * m->hidden * m->hidden + element);
}

static double lstm_rounded(const struct lstm *m, double x)
{
	return m->j->r->round ? m->j->r->round(x) : x;
}

/* The state of the sample's lane: its hidden state, or its cells. */
static double *lstm_lane(const struct lstm *m, bool cells)
{
	const struct ref *r = m->j->r;
	int64_t all = m->j->layer->lanes * m->hidden;
	int64_t at = (r->first_sample + m->n) % m->j->layer->lanes * m->hidden;

	return r->evaluate ? m->lanes + (cells ? all : 0) + at : m->j->state[cells] + at;
}

static double lstm_gate(const struct lstm *m, const double *x, const double *h, int64_t g)
{
	double sum = 0;

	for (int64_t b = 0; b < m->j->layer->biases; b++)
		sum += m->w[2 + b][g];
	for (int64_t k = 0; k < m->inputs; k++)
		sum += m->w[0][g * m->inputs + k] * x[k];
	for (int64_t k = 0; k < m->hidden; k++)
		sum += lstm_factor(m, g * m->hidden + k) * m->w[1][g * m->hidden + k] * h[k];
	return g / m->hidden == 2 ? tanh(sum) : 1 / (1 + exp(-sum));
}

static void lstm_forward(const struct lstm *m)
{
	int64_t hidden = m->hidden;
	bool carries = m->j->layer->lanes > 0;
	bool goes_on = carries && m->j->r->first_sample + m->n >= m->j->layer->lanes;
	double *h = m->first_hidden + m->n * hidden, *c = m->first_cells + m->n * hidden;

	for (int64_t i = 0; i < hidden; i++) {
		h[i] = goes_on ? lstm_lane(m, false)[i] : 0;
		c[i] = goes_on ? lstm_lane(m, true)[i] : 0;
	}
	for (int64_t s = 0; s < m->length; s++) {
		int64_t row = lstm_row(m, s);
		double *gates = m->gates + row * 4 * hidden, *cells = m->cells + row * hidden;
		double *y = m->j->y + row * hidden;

		for (int64_t g = 0; g < 4 * hidden; g++)
			gates[g] = lstm_gate(m, lstm_input(m, s), h, g);
		for (int64_t i = 0; i < hidden; i++) {
			cells[i] = gates[hidden + i] * c[i] + gates[i] * gates[2 * hidden + i];
			y[i] = lstm_rounded(m, gates[3 * hidden + i] * tanh(cells[i]));
		}
		for (int64_t g = 0; g < 4 * hidden; g++)
			gates[g] = lstm_rounded(m, gates[g]);
		h = y;
		c = cells;
	}
	for (int64_t i = 0; i < hidden && carries; i++) {
		lstm_lane(m, false)[i] = h[i];
		lstm_lane(m, true)[i] = c[i];
	}
}

/* Passes the gradient of a gate's sum on. */
static void lstm_pass_on(const struct lstm *m, int64_t s, int64_t g, double slope, double *dh)
{
	const double *x = lstm_input(m, s);
	const double *h = s > 0 ? m->j->y + lstm_row(m, s - 1) * m->hidden
				: m->first_hidden + m->n * m->hidden;
	double *dx = m->j->dx + (x - m->j->x);

	for (int64_t k = 0; k < m->inputs; k++) {
		dx[k] += slope * m->w[0][g * m->inputs + k];
		m->dw[0][g * m->inputs + k] += slope * x[k];
	}
	for (int64_t k = 0; k < m->hidden; k++) {
		double factor = lstm_factor(m, g * m->hidden + k);

		dh[k] += slope * factor * m->w[1][g * m->hidden + k];
		m->dw[1][g * m->hidden + k] += slope * factor * h[k];
	}
	for (int64_t b = 0; b < m->j->layer->biases; b++)
		m->dw[2 + b][g] += slope;
}

static void lstm_back(const struct lstm *m)
{
	int64_t hidden = m->hidden;
	double *dh = pd_calloc((size_t)hidden, sizeof(*dh)), *dc = pd_calloc((size_t)hidden, sizeof(*dc));
	double *slopes = pd_calloc(4 * (size_t)hidden, sizeof(*slopes));

	for (int64_t s = m->length - 1; s >= 0; s--) {
		int64_t row = lstm_row(m, s);
		const double *i = m->gates + row * 4 * hidden, *f = i + hidden, *g = f + hidden;
		const double *o = g + hidden, *c = m->cells + row * hidden;
		const double *before = s > 0 ? m->cells + lstm_row(m, s - 1) * hidden
					     : m->first_cells + m->n * hidden;

		for (int64_t k = 0; k < hidden; k++) {
			double t = tanh(c[k]);

			dh[k] += m->j->dy[row * hidden + k];
			dc[k] += dh[k] * o[k] * (1 - t * t);
			slopes[k] = dc[k] * g[k] * i[k] * (1 - i[k]);
			slopes[hidden + k] = dc[k] * before[k] * f[k] * (1 - f[k]);
			slopes[2 * hidden + k] = dc[k] * i[k] * (1 - g[k] * g[k]);
			slopes[3 * hidden + k] = dh[k] * t * o[k] * (1 - o[k]);
			dc[k] *= f[k];
			dh[k] = 0;
		}
		for (int64_t k = 0; k < 4 * hidden; k++)
			lstm_pass_on(m, s, k, lstm_rounded(m, slopes[k]), dh);
	}
	free(dh);
	free(dc);
	free(slopes);
}

static void lstm(const struct job *j)
{
	for (int64_t n = 0; n < j->r->batch; n++)
		for (int d = 0; d < (j->layer->bidirectional ? 2 : 1); d++) {
			const struct lstm m = lstm_of(j, n, d);

			if (j->back)
				lstm_back(&m);
			else
				lstm_forward(&m);
		}
}

static void (*const work[PD_LAYER_KINDS])(const struct job *) = {
	[PD_LAYER_conv2d] = conv2d, [PD_LAYER_linear] = linear, [PD_LAYER_relu] = curve,
	[PD_LAYER_tanh] = curve, [PD_LAYER_sigmoid] = curve, [PD_LAYER_maxpool2d] = pool2d,
	[PD_LAYER_avgpool2d] = pool2d, [PD_LAYER_adaptive_avgpool2d] = pool2d,
	[PD_LAYER_batchnorm2d] = batchnorm2d, [PD_LAYER_layernorm] = layernorm,
	[PD_LAYER_dropout] = dropout, [PD_LAYER_attention] = attention, [PD_LAYER_lstm] = lstm,
	[PD_LAYER_additive_attention] = additive_attention,
	[PD_LAYER_add] = join, [PD_LAYER_concat] = join, [PD_LAYER_flatten] = join,
	[PD_LAYER_softmax_cross_entropy] = loss, [PD_LAYER_mse] = mse,
	[PD_LAYER_gelu] = curve, [PD_LAYER_silu] = curve, [PD_LAYER_rmsnorm] = layernorm,
	[PD_LAYER_mul] = mul, [PD_LAYER_reshape] = join, [PD_LAYER_transpose] = transpose,
	[PD_LAYER_slice] = along, [PD_LAYER_mean] = along, [PD_LAYER_embedding] = embedding,
	[PD_LAYER_position_embedding] = position_embedding, [PD_LAYER_bias] = added_bias,
	[PD_LAYER_rope] = rope,
};

static void run(struct ref *r, int l, bool back)
{
	const struct pd_layer *layer = &r->model->layers[l];
	int in = layer->inputs[0], out = r->model->input_count + l, o = owner(r, l);

	work[layer->kind](&(struct job){
		.r = r, .layer = layer, .index = l, .back = back,
		.in = pd_model_shape(r->model, in),
		.x = r->x[in], .dy = r->dx[out], .y = r->x[out], .dx = r->dx[in],
		.w = r->w[o], .dw = r->dw[o], .state = r->state[l], .kept = r->kept[l],
	});
}

static void round_tensor(const struct ref *r, double *values, int tensor)
{
	size_t n = elements(r, tensor);

	for (size_t i = 0; r->round && i < n; i++)
		values[i] = r->round(values[i]);
}

void ref_forward(struct ref *r)
{
	r->loss = 0;
	r->correct = r->rows = 0;
	for (int l = 0; l < r->model->layer_count; l++) {
		int out = r->model->input_count + l;

		memset(r->x[out], 0, elements(r, out) * sizeof(double));
		run(r, l, false);
		if (!pd_layer_is(&r->model->layers[l], PD_KIND_LOSS))
			round_tensor(r, r->x[out], out);
	}
}

void ref_backward(struct ref *r)
{
	for (int t = 0; t < pd_model_tensors(r->model); t++)
		memset(r->dx[t], 0, elements(r, t) * sizeof(double));
	for (int l = 0; l < r->model->layer_count; l++)
		for (int p = 0; p < r->model->layers[l].parameter_count; p++)
			memset(r->dw[l][p], 0, sizeof(double) *
			       (size_t)r->model->layers[l].parameters[p].elements);
	for (int l = r->model->layer_count - 1; l >= 0; l--) {
		const struct pd_layer *layer = &r->model->layers[l];

		run(r, l, true);
		for (int i = 0; i < layer->input_count; i++)
			round_tensor(r, r->dx[layer->inputs[i]], layer->inputs[i]);
	}
}
