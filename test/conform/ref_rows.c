/* SPDX-License-Identifier: Apache-2.0 */
/* Layers that work element by element, row by row, or along an axis. */
#include "ref_kind.h"

#include "base/rng.h"

#include <math.h>

/* A curve at a place.  Where it is flat the gradient is 0, whatever that of the output. */
struct ref_point {
	double y, slope;
	bool flat;
};

static struct ref_point gelu_at(const struct pd_layer *layer, double x)
{
	double phi = 0.5 * (1 + erf(x / sqrt(2))), t = tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));

	if (layer->approximate == PD_GELU_NONE)
		return (struct ref_point){ x * phi, phi + x * exp(-x * x / 2) / sqrt(2 * M_PI) };
	return (struct ref_point){ 0.5 * x * (1 + t),
				   0.5 * (1 + t) + 0.5 * x * (1 - t * t) * sqrt(2 / M_PI) *
				   (1 + 3 * 0.044715 * x * x) };
}

static struct ref_point curve_at(const struct pd_layer *layer, double x)
{
	double s = 1 / (1 + exp(-x)), t = tanh(x), a = layer->alpha;

	switch ((int)layer->kind) {
	case PD_LAYER_relu:             /* a NaN stays one */
		return (struct ref_point){ x <= 0 ? 0 : x, 1, x <= 0 };
	case PD_LAYER_relu6:
		return (struct ref_point){ x <= 0 ? 0 : x >= 6 ? 6 : x, 1, x <= 0 || x >= 6 };
	case PD_LAYER_leaky_relu:
		return (struct ref_point){ x > 0 ? x : a * x, x > 0 ? 1 : a };
	case PD_LAYER_elu:
		return (struct ref_point){ x > 0 ? x : a * expm1(x), x <= 0 ? a * exp(x) : 1 };
	case PD_LAYER_affine:
		return (struct ref_point){ a * x + layer->beta, a };
	case PD_LAYER_exp:
		return (struct ref_point){ exp(x), exp(x) };
	case PD_LAYER_log:
		return (struct ref_point){ log(x), 1 / x };
	case PD_LAYER_pow:
		return (struct ref_point){ pow(x, a), a * pow(x, a - 1), a == 0 };
	case PD_LAYER_abs:
		return (struct ref_point){ fabs(x), x > 0 ? 1 : -1, !(x > 0 || x < 0) };
	case PD_LAYER_clamp:
		return (struct ref_point){ x < a ? a : x > layer->beta ? layer->beta : x, 1,
					   x < a || x > layer->beta };
	case PD_LAYER_softplus:
		return (struct ref_point){ x > 20 ? x : log1p(exp(x)), x > 20 ? 1 : s };
	case PD_LAYER_sin:
		return (struct ref_point){ sin(x), cos(x) };
	case PD_LAYER_cos:
		return (struct ref_point){ cos(x), -sin(x) };
	case PD_LAYER_erf:
		return (struct ref_point){ erf(x), 2 / sqrt(M_PI) * exp(-x * x) };
	case PD_LAYER_tanh:
		return (struct ref_point){ t, 1 - t * t };
	case PD_LAYER_sigmoid:
		return (struct ref_point){ s, s * (1 - s) };
	case PD_LAYER_hardsigmoid:
		return (struct ref_point){ x <= -3 ? 0 : x >= 3 ? 1 : x / 6 + 0.5, 1. / 6,
					   !(x > -3 && x < 3) };
	case PD_LAYER_silu:
		return (struct ref_point){ x * s, s * (1 + x * (1 - s)) };
	case PD_LAYER_hardswish:
		return (struct ref_point){ x * fmin(fmax(x + 3, 0), 6) / 6, x < 3 ? x / 3 + 0.5 : 1,
					   x <= -3 };
	default:
		return gelu_at(layer, x);
	}
}

void ref_same(const struct ref_job *j)
{
	size_t n = ref_elements(j->r, j->layer->inputs[0]);

	for (size_t i = 0; i < n; i++) {
		struct ref_point p = curve_at(j->layer, j->x[i]);

		if (!j->back)
			j->y[i] = p.y;
		else if (!p.flat)
			j->dx[i] += p.slope * j->dy[i];
	}
}

void ref_prelu(const struct ref_job *j)
{
	int64_t count = pd_shape_elements(j->in), each = count / j->layer->parameter_elements;

	for (int64_t i = 0; i < j->r->batch * count; i++) {
		int64_t c = i % count / each;
		double slope = j->x[i] > 0 ? 1 : j->w[0][c];

		if (!j->back) {
			j->y[i] = slope * j->x[i];
			continue;
		}
		j->dx[i] += slope * j->dy[i];
		ref_add(j, 0, c, j->x[i] > 0 ? 0 : j->x[i] * j->dy[i]);
	}
}

/* Computes one row; the sums that the gradients of all its elements have in common come first. */
static void layernorm_row(const struct ref_job *j, int64_t begin, int64_t width)
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
			ref_add(j, 0, i, j->dy[begin + i] * normal);
		if (j->back && parameters > 1)
			ref_add(j, 1, i, j->dy[begin + i]);
	}
	for (int64_t i = 0; i < width && j->back; i++)
		j->dx[begin + i] += scale * (j->dy[begin + i] * (parameters > 0 ? w[0][i] : 1) -
			sum - (j->x[begin + i] - mean) * scale * sum_x);
}

void ref_layernorm(const struct ref_job *j)
{
	int64_t width = pd_shape_elements(&j->layer->normalized_shape);
	int64_t count = j->r->batch * pd_shape_elements(j->in);

	for (int64_t begin = 0; begin < count; begin += width)
		layernorm_row(j, begin, width);
}

/* Returns where what is repeated along some axes has what the whole has at element e of a sample. */
static int64_t place_in(const struct pd_shape *in, const struct pd_shape *out, int64_t e)
{
	int64_t place = 0, step = 1;

	for (int d = out->dims - 1; d >= 0; d--) {
		place += in->size[d] == 1 ? 0 : e % out->size[d] * step;
		e /= out->size[d];
		step *= in->size[d];
	}
	return place;
}

void ref_dropout(const struct ref_job *j)
{
	int64_t count = pd_shape_elements(j->in);

	for (int64_t n = 0; n < j->r->batch; n++)
		for (int64_t e = 0; e < count; e++) {
			int64_t sample = j->r->first_sample + n, i = n * count + e;
			int64_t number = place_in(&j->layer->mask, j->in, e);
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

/* Computes add, concat, flatten and reshape, which add each sample's inputs or put them one after the other. */
static void join(const struct ref_job *j)
{
	const struct pd_layer *a = j->layer;
	int64_t rows = j->r->batch, row, begin = 0;

	if (a->kind == PD_LAYER_concat)
		rows *= pd_shape_axis(&a->output, a->dim).outer;
	row = pd_shape_elements(&a->output) * j->r->batch / rows;
	for (int k = 0; k < a->input_count; k++) {
		int64_t count = (int64_t)ref_elements(j->r, a->inputs[k]) / rows;
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

void ref_softmax(const struct ref_job *j)
{
	struct pd_axis a = pd_shape_axis(j->in, j->layer->dim);

	for (int64_t n = 0; n < j->r->batch * a.outer * a.inner; n++) {
		int64_t begin = n / a.inner * a.extent * a.inner + n % a.inner;
		double most = -INFINITY, sum = 0, along = 0;

		for (int64_t k = 0; k < a.extent; k++)
			most = fmax(most, j->x[begin + k * a.inner]);
		for (int64_t k = 0; k < a.extent; k++)
			sum += exp(j->x[begin + k * a.inner] - most);
		for (int64_t k = 0; k < a.extent && j->back; k++)
			along += j->dy[begin + k * a.inner] * exp(j->x[begin + k * a.inner] - most) / sum;
		for (int64_t k = 0; k < a.extent; k++) {
			int64_t at = begin + k * a.inner;
			double y = exp(j->x[at] - most) / sum;

			if (j->back)
				j->dx[at] += y * (j->dy[at] - along);
			else
				j->y[at] = y;
		}
	}
}

/* Two inputs of one shape, or of which one is repeated along an axis. */
static void of_two(const struct ref_job *j)
{
	const struct pd_shape *out = &j->layer->output;
	int64_t count = pd_shape_elements(out);
	bool product = j->layer->kind == PD_LAYER_mul;

	for (int64_t i = 0; i < j->r->batch * count; i++) {
		double *x[2], *dx[2];

		for (int k = 0; k < 2; k++) {
			const struct pd_shape *in = pd_model_shape(j->r->model, j->layer->inputs[k]);
			int64_t at = i / count * pd_shape_elements(in) + place_in(in, out, i % count);

			x[k] = &j->r->x[j->layer->inputs[k]][at];
			dx[k] = &j->r->dx[j->layer->inputs[k]][at];
		}
		if (!j->back)
			j->y[i] = product ? *x[0] * *x[1] : *x[0] + *x[1];
		for (int k = 0; k < 2 && j->back; k++)
			*dx[k] += product ? j->dy[i] * *x[1 - k] : j->dy[i];
	}
}

void ref_broadcast(const struct ref_job *j)
{
	if (j->layer->kind == PD_LAYER_mul || j->layer->broadcasts)
		of_two(j);
	else
		join(j);
}

/* Its input has no gradient. */
void ref_own(const struct ref_job *j)
{
	int64_t count = j->layer->parameter_elements;

	for (int64_t i = 0; i < j->r->batch * count; i++) {
		if (j->back)
			ref_add(j, 0, i % count, j->dy[i]);
		else
			j->y[i] = j->w[0][i % count];
	}
}

void ref_concat(const struct ref_job *j)
{
	join(j);
}

void ref_flatten(const struct ref_job *j)
{
	join(j);
}

void ref_reshape(const struct ref_job *j)
{
	join(j);
}

/* Adds element x of the input times a factor to element y of the output, or the gradient the other way. */
static void pass(const struct ref_job *j, int64_t y, int64_t x, double factor)
{
	if (j->back)
		j->dx[x] += factor * j->dy[y];
	else
		j->y[y] += factor * j->x[x];
}

/* Computes slice and mean, which take a part of an axis. */
static void along(const struct ref_job *j)
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

void ref_slice(const struct ref_job *j)
{
	along(j);
}

void ref_mean(const struct ref_job *j)
{
	along(j);
}

void ref_transpose(const struct ref_job *j)
{
	const struct pd_shape *out = &j->layer->output;
	int64_t n = (int64_t)ref_elements(j->r, j->layer->inputs[0]);

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

/* As transformers has RoBERTa's positions. */
static int64_t numbered(const struct ref_job *j, int64_t place)
{
	int64_t positions = j->in->size[0], id = j->layer->padding_idx;

	if ((int64_t)j->x[place] == j->layer->padding_idx)
		return id;
	for (int64_t p = place - place % positions; p <= place; p++)
		id += (int64_t)j->x[p] != j->layer->padding_idx;
	return id;
}

void ref_embedding(const struct ref_job *j)
{
	int64_t width = j->layer->embedding_dim, n = (int64_t)ref_elements(j->r, j->layer->inputs[0]);

	for (int64_t p = 0; p < n; p++)
		for (int64_t i = 0; i < width; i++) {
			int64_t id = j->layer->numbered ? numbered(j, p) : (int64_t)j->x[p];
			double factor = ref_weight_factor(j, id);

			if (!j->back)
				j->y[p * width + i] = factor * j->w[0][id * width + i];
			else if (id != j->layer->padding_idx)
				ref_add(j, 0, id * width + i, factor * j->dy[p * width + i]);
		}
}

/* Adds `each` elements of the parameter, from one on, to every `each` elements of the input. */
static void add_to_each(const struct ref_job *j, int64_t from, int64_t each)
{
	for (int64_t i = 0; i < j->r->batch * pd_shape_elements(j->in); i++) {
		pass(j, i, i, 1);
		if (j->back)
			ref_add(j, 0, from + i % each, j->dy[i]);
		else
			j->y[i] += j->w[0][from + i % each];
	}
}

void ref_position_embedding(const struct ref_job *j)
{
	int64_t each = pd_shape_elements(j->in);

	add_to_each(j, j->layer->start * (each / j->in->size[0]), each);
}

void ref_bias(const struct ref_job *j)
{
	add_to_each(j, 0, pd_shape_width(j->in));
}

/* As transformers has Llama 3's: by wave lengths. */
static double rope_step(const struct pd_layer *a, int64_t pair)
{
	double step = pow(a->base, -2.0 * (double)pair / (double)a->rotary_dim);
	double wave = 2 * 3.14159265358979323846 / step, length = (double)a->original_positions, smooth;

	if (length == 0 || wave > length / a->low_freq_factor)
		return step / a->factor;
	if (wave < length / a->high_freq_factor)
		return step;
	smooth = (length / wave - a->low_freq_factor) / (a->high_freq_factor - a->low_freq_factor);
	return (1 - smooth) * step / a->factor + smooth * step;
}

void ref_rope(const struct ref_job *j)
{
	const struct pd_layer *a = j->layer;
	int64_t d = a->rotary_dim, each = pd_shape_elements(j->in), row = each / j->in->size[0];

	for (int64_t n = 0; n < j->r->batch * each; n++) {
		int64_t t = n % each / row, i = n % a->head_dim, begin = n - i;
		bool second = a->interleaved ? i % 2 : i >= d / 2;
		int64_t pair = a->interleaved ? i / 2 : i % (d / 2);
		int64_t other = a->interleaved ? i ^ 1 : (i + d / 2) % d;
		double angle = (double)t * rope_step(a, pair);

		if (i >= d) {
			pass(j, n, n, 1);
			continue;
		}
		pass(j, n, n, cos(angle));
		pass(j, n, begin + other, second ? sin(angle) : -sin(angle));
	}
}
