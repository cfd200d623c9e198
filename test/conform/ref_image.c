/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers and layers of images. */
#include "ref_kind.h"

#include <math.h>

static void bias(const struct ref_job *j, int64_t y, int64_t channel)
{
	if (!j->layer->bias)
		return;
	if (j->back)
		ref_add(j, 1, channel, j->dy[y]);
	else
		j->y[y] += j->w[1][channel];
}

UNCHECKED void ref_conv2d(const struct ref_job *j)
{
	const struct pd_layer *a = j->layer;
	const struct pd_shape from = pd_shape_plane(j->in), to = pd_shape_plane(&a->output);
	const int64_t *in = from.size, *out = to.size;
	int64_t of = out[0] / a->groups, cf = in[0] / a->groups;

	for (int64_t n = 0, y = 0; n < j->r->batch; n++)
	for (int64_t o = 0; o < out[0]; o++)
	for (int64_t p = 0; p < out[1]; p++)
	for (int64_t q = 0; q < out[2]; q++, y++) {
		double sum = 0, dy = j->back ? j->dy[y] : 0;

		bias(j, y, o);
		for (int64_t c = 0; c < cf; c++)
		for (int64_t k = 0; k < a->kernel[0]; k++) {
			int64_t row = p * a->stride[0] - a->padding[0] + k * a->dilation[0];
			int64_t x = ((n * in[0] + o / of * cf + c) * in[1] + row) * in[2];
			int64_t w = ((o * cf + c) * a->kernel[0] + k) * a->kernel[1];

			for (int64_t l = 0; l < a->kernel[1] && row >= 0 && row < in[1]; l++) {
				int64_t col = q * a->stride[1] - a->padding[1] + l * a->dilation[1];

				if (col < 0 || col >= in[2])
					continue;
				if (j->back) {
					j->dx[x + col] += j->w[0][w + l] * dy;
					ref_add(j, 0, w + l, j->x[x + col] * dy);
				} else {
					sum += j->w[0][w + l] * j->x[x + col];
				}
			}
		}
		if (!j->back)
			j->y[y] += sum;
	}
}

UNCHECKED void ref_conv_transpose2d(const struct ref_job *j)
{
	const struct pd_layer *a = j->layer;
	const int64_t *in = j->in->size, *out = a->output.size;
	int64_t of = out[0] / a->groups, cf = in[0] / a->groups, planes = out[1] * out[2];

	for (int64_t y = 0; y < j->r->batch * out[0] * planes; y++)
		bias(j, y, y / planes % out[0]);
	for (int64_t n = 0, x = 0; n < j->r->batch; n++)
	for (int64_t c = 0; c < in[0]; c++)
	for (int64_t p = 0; p < in[1]; p++)
	for (int64_t q = 0; q < in[2]; q++, x++) {
		for (int64_t o = 0; o < of; o++)
		for (int64_t k = 0; k < a->kernel[0]; k++) {
			int64_t row = p * a->stride[0] - a->padding[0] + k * a->dilation[0];
			int64_t y = ((n * out[0] + c / cf * of + o) * out[1] + row) * out[2];
			int64_t w = ((c * of + o) * a->kernel[0] + k) * a->kernel[1];

			for (int64_t l = 0; l < a->kernel[1] && row >= 0 && row < out[1]; l++) {
				int64_t col = q * a->stride[1] - a->padding[1] + l * a->dilation[1];

				if (col < 0 || col >= out[2])
					continue;
				if (j->back) {
					j->dx[x] += j->w[0][w + l] * j->dy[y + col];
					ref_add(j, 0, w + l, j->x[x] * j->dy[y + col]);
				} else {
					j->y[y + col] += j->w[0][w + l] * j->x[x];
				}
			}
		}
	}
}

void ref_conv1d(const struct ref_job *j)
{
	ref_conv2d(j);
}

UNCHECKED void ref_linear(const struct ref_job *j)
{
	int64_t in = pd_shape_width(j->in), out = pd_shape_width(&j->layer->output);

	for (int64_t n = 0; n < j->r->batch * pd_shape_rows(j->in); n++)
		for (int64_t o = 0; o < out; o++) {
			const double *x = &j->x[n * in], *w = &j->w[0][o * in];

			bias(j, n * out + o, o);
			if (j->back) {
				double *dx = &j->dx[n * in], dy = j->dy[n * out + o];

				for (int64_t i = 0; i < in; i++) {
					dx[i] += w[i] * dy;
					ref_add(j, 0, o * in + i, x[i] * dy);
				}
			} else {
				double sum = j->y[n * out + o];

				for (int64_t i = 0; i < in; i++)
					sum += w[i] * x[i];
				j->y[n * out + o] = sum;
			}
		}
}

/* The place of output o along an axis: two inputs, and how much the second counts. */
static double between(const struct pd_layer *a, int axis, int64_t in, int64_t o, int64_t at[2])
{
	int64_t out = a->output.size[1 + axis];
	double step = a->scale_factor[axis] > 0 ? 1 / a->scale_factor[axis] : (double)in / (double)out, place;

	if (a->align_corners)
		step = out > 1 ? (double)(in - 1) / (double)(out - 1) : 0;
	if (in == out)
		step = 1;
	place = a->align_corners || a->mode == PD_RESIZE_NEAREST ? (double)o * step
		: fmax(0, ((double)o + 0.5) * step - 0.5);
	at[0] = (int64_t)fmin(floor(place + 1e-9), (double)in - 1);
	at[1] = at[0] + 1 < in && in != out ? at[0] + 1 : at[0];
	return a->mode == PD_RESIZE_NEAREST ? 0 : fmax(0, fmin(1, place - (double)at[0]));
}

void ref_upsample(const struct ref_job *j)
{
	const int64_t *in = j->in->size, *out = j->layer->output.size;

	for (int64_t p = 0, y = 0; p < j->r->batch * in[0]; p++)
	for (int64_t v = 0; v < out[1]; v++)
	for (int64_t h = 0; h < out[2]; h++, y++) {
		int64_t rows[2], columns[2];
		double down = between(j->layer, 0, in[1], v, rows), right = between(j->layer, 1, in[2], h, columns);

		for (int k = 0; k < 4; k++) {
			int64_t x = (p * in[1] + rows[k / 2]) * in[2] + columns[k % 2];
			double part = (k / 2 ? down : 1 - down) * (k % 2 ? right : 1 - right);

			if (part == 0 && j->layer->mode == PD_RESIZE_NEAREST)
				continue;       /* others make a NaN of 0 times infinity */
			if (j->back)
				j->dx[x] += part * j->dy[y];
			else
				j->y[y] += part * j->x[x];
		}
	}
}

struct window {
	int64_t begin[2], end[2];       /* inside the plane */
	double divisor;
};

static struct window window_of(const struct ref_job *j, int64_t p, int64_t q)
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

static void pool_one(const struct ref_job *j, int64_t plane, int64_t y, struct window w)
{
	int64_t width = j->in->size[2], best = -1;
	double sum = 0;

	for (int64_t r = w.begin[0]; r < w.end[0]; r++)
		for (int64_t c = w.begin[1]; c < w.end[1]; c++) {
			int64_t i = plane * j->in->size[1] * width + r * width + c;

			sum += j->x[i];
			if (best < 0 || j->x[i] > j->x[best] || isnan(j->x[i]))
				best = i;
			if (j->back && j->layer->kind != PD_LAYER_maxpool2d)
				j->dx[i] += j->dy[y] / w.divisor;
		}
	if (j->layer->kind == PD_LAYER_maxpool2d && j->back)
		j->dx[best] += j->dy[y];
	else if (!j->back)
		j->y[y] = j->layer->kind == PD_LAYER_maxpool2d ? j->x[best] : sum / w.divisor;
}

void ref_pool(const struct ref_job *j)
{
	const int64_t *out = j->layer->output.size;
	int64_t y = 0;

	for (int64_t plane = 0; plane < j->r->batch * out[0]; plane++)
		for (int64_t p = 0; p < out[1]; p++)
			for (int64_t q = 0; q < out[2]; q++, y++)
				pool_one(j, plane, y, window_of(j, p, q));
}

void ref_adaptive_pool(const struct ref_job *j)
{
	ref_pool(j);
}

/* A group of channels of a sample; the sums that the gradients of all its elements have in common come first. */
static void groupnorm_row(const struct ref_job *j, int64_t begin, int64_t width, int64_t area)
{
	int64_t channels = j->in->size[0];
	bool affine = j->layer->parameter_count > 0;
	double mean = 0, variance = 0, scale, sum = 0, sum_x = 0;

	for (int64_t i = begin; i < begin + width; i++)
		mean += j->x[i] / (double)width;
	for (int64_t i = begin; i < begin + width; i++)
		variance += pow(j->x[i] - mean, 2) / (double)width;
	scale = 1 / sqrt(variance + j->layer->eps);
	for (int64_t i = begin; i < begin + width; i++) {
		int64_t c = i / area % channels;
		double w = affine ? j->w[0][c] : 1, normal = (j->x[i] - mean) * scale;

		sum += w * j->dy[i] / (double)width;
		sum_x += w * j->dy[i] * normal / (double)width;
		if (!j->back)
			j->y[i] = normal * w + (affine ? j->w[1][c] : 0);
		if (j->back && affine) {
			ref_add(j, 0, c, j->dy[i] * normal);
			ref_add(j, 1, c, j->dy[i]);
		}
	}
	for (int64_t i = begin; i < begin + width && j->back; i++)
		j->dx[i] += scale * ((affine ? j->w[0][i / area % channels] : 1) * j->dy[i] - sum -
				     (j->x[i] - mean) * scale * sum_x);
}

void ref_groupnorm(const struct ref_job *j)
{
	int64_t elements = pd_shape_elements(j->in), width = elements / j->layer->num_groups;

	for (int64_t begin = 0; begin < j->r->batch * elements; begin += width)
		groupnorm_row(j, begin, width, elements / j->in->size[0]);
}

static void statistics(const struct ref_job *j, int64_t c, double *mean_p, double *variance_p)
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

static void batchnorm_back(const struct ref_job *j, int64_t c, double mean, double scale)
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
					ref_add(j, 0, c, j->dy[at] * normal);
					ref_add(j, 1, c, j->dy[at]);
				} else {
					j->dx[at] += j->w[0][c] * scale *
						(j->dy[at] - sum / count - normal * sum_x / count);
				}
			}
}

void ref_batchnorm(const struct ref_job *j)
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
