/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A conv_transpose2d computes what a convolution from its output to its input does for the gradient of that
 * one's input, with the same weights; the gradient of its own input is what that convolution makes forward.
 * Only the bias, of which that knows nothing, is added here.
 */
#include "base/mem.h"
#include "run/device/cpu/cpu.h"
#include "run/device/cpu/floats.h"

#include <string.h>

#define PIECE 1024

/*
 * A sample's channels lie in blocks, each an area of `lanes` channels side by side.  A block is taken in rows
 * of `width` elements, some times its lanes, each of which has the same channels.
 */
struct grid {
	int64_t batch, channels, blocks, lanes, area, width;
	enum pd_dtype dtype;
};

static struct grid grid_of(const struct pd_compiled_layer *l, const struct pd_layout *layout)
{
	const int64_t *size = l->layer->output.size;
	struct grid g = {
		.batch = l->net->batch, .channels = size[0], .lanes = pd_layout_lanes(layout),
		.area = size[1] * size[2],
		.dtype = pd_layout_is_full(layout) ? PD_F32 : l->net->dtype,
	};

	g.blocks = (g.channels + g.lanes - 1) / g.lanes;
	g.width = g.lanes * (g.lanes < PD_FLOAT_LANES ? PD_FLOAT_LANES / g.lanes : 1);
	return g;
}

/* Returns floats at the end of the scratch. */
static size_t room_bytes(int64_t floats)
{
	return pd_align(sizeof(float) * (size_t)floats);
}

static float *room_of(const struct pd_compiled_layer *l, size_t bytes, int64_t floats)
{
	return (float *)((char *)l->temporary + pd_align(bytes) - room_bytes(floats));
}

static void reserve(const struct pd_compiled_layer *l, size_t *bytes_p, int64_t floats)
{
	if (l->layer->bias)
		pd_take(bytes_p, room_bytes(floats));
}

/* Returns how many elements of a block are taken at once, from `at` on: not beyond a row. */
static int64_t piece(const struct grid *g, int64_t at)
{
	int64_t row = g->width - at % g->width, rest = g->area * g->lanes - at;

	row = row < rest ? row : rest;
	return row < PIECE ? row : PIECE;
}

static void add_row(const struct grid *g, void *made, const float *row, int64_t begin)
{
	float room[PIECE], sum[PIECE];

	for (int64_t at = 0, n; at < g->area * g->lanes; at += n) {
		n = piece(g, at);
		memcpy(sum, pd_cpu_wide(g->dtype, made, begin + at, n, room), sizeof(*sum) * (size_t)n);
		pd_floats_add(sum, row + at % g->width, n);
		pd_cpu_put(g->dtype, made, begin + at, sum, n);
	}
}

static void add_bias(const struct pd_compiled_layer *l, const struct pd_layout *layout, void *made)
{
	const struct grid g = grid_of(l, layout);
	int64_t floats = g.blocks * g.width;
	float *rows = room_of(l, l->forward_bytes, floats);

	for (int64_t i = 0; i < floats; i++) {
		int64_t channel = i / g.width * g.lanes + i % g.width % g.lanes;
		float room;

		/* the channels that fill up a block stay zero */
		rows[i] = channel < g.channels
			? *pd_cpu_wide(l->net->dtype, l->parameters[1], channel, 1, &room) : 0;
	}
#pragma omp parallel for schedule(static)
	for (int64_t b = 0; b < g.batch * g.blocks; b++)
		add_row(&g, made, rows + b % g.blocks * g.width, b * g.area * g.lanes);
}

static void sum_block(const struct grid *g, const void *gradient, float *row, int64_t begin)
{
	float room[PIECE];

	memset(row, 0, sizeof(*row) * (size_t)g->width);
	for (int64_t at = 0, n; at < g->area * g->lanes; at += n) {
		n = piece(g, at);
		pd_floats_add(row + at % g->width,
			      pd_cpu_wide(g->dtype, gradient, begin + at, n, room), n);
	}
}

static void backward_bias(const struct pd_compiled_layer *l)
{
	const struct grid g = grid_of(l, l->out);
	float *rows = room_of(l, l->backward_bytes, g.batch * g.blocks * g.width);
	float *sums = l->diff_parameters[1];

#pragma omp parallel for schedule(static)
	for (int64_t b = 0; b < g.batch * g.blocks; b++)
		sum_block(&g, l->diff_dst, rows + b * g.width, b * g.area * g.lanes);
	memset(sums, 0, sizeof(*sums) * (size_t)g.channels);
	for (int64_t n = 0; n < g.batch; n++)
		for (int64_t c = 0; c < g.channels; c++) {
			const float *row = rows + (n * g.blocks + c / g.lanes) * g.width;

			for (int64_t i = c % g.lanes; i < g.width; i += g.lanes)
				sums[c] += row[i];
		}
}

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	const struct pd_layer *layer = l->layer;
	const struct pd_conv conv = {
		.batch = l->net->batch,
		.channels = layer->output.size[0],
		.height = layer->output.size[1],
		.width = layer->output.size[2],
		.out_channels = l->in_shape[0]->size[0],
		.out_height = l->in_shape[0]->size[1],
		.out_width = l->in_shape[0]->size[2],
		.kernel = { layer->kernel[0], layer->kernel[1] },
		.stride = { layer->stride[0], layer->stride[1] },
		.padding = { layer->padding[0], layer->padding[1] },
		.dilation = { layer->dilation[0], layer->dilation[1] },
		.groups = layer->groups,
		.wide = layer->bias,    /* so that a sum with its bias is rounded once */
	};
	struct pd_onednn *dnn = l->net->engine;
	struct pd_conv_linear_ops ops = { .turned = true, .behind = layer->bias ? add_bias : NULL };
	struct grid g;

	ops.data = pd_primitive_conv(dnn, PD_FORWARD, &conv, l->parameter[0], NULL, err);
	if (!ops.data)
		return -1;
	ops.forward = pd_primitive_conv(dnn, PD_BACKWARD_DATA, &conv, l->parameter[0], ops.data, err);
	ops.weights = pd_primitive_conv(dnn, PD_BACKWARD_WEIGHTS, &conv, l->parameter[0], ops.data, err);
	if (!ops.forward || !ops.weights)
		return -1;
	l->out = pd_layout_quick(dnn, pd_layout_stored(dnn, pd_primitive_layout(ops.forward,
										PD_ARG_DIFF_SRC)));
	if (layer->bias)
		l->parameter[1] = pd_layout_plain(dnn, 1, &layer->output.size[0]);
	if (!l->parameter[0])
		l->parameter[0] = pd_layout_stored(dnn, pd_primitive_layout(ops.weights,
									    PD_ARG_DIFF_WEIGHTS));
	if (!l->inside)
		return 0;
	if (!l->wants[0])
		ops.data = NULL;
	if (pd_conv_linear_prepare(l, &ops, err) < 0)
		return -1;
	g = grid_of(l, pd_primitive_layout(ops.forward, PD_ARG_DIFF_SRC));
	reserve(l, &l->forward_bytes, g.blocks * g.width);
	g = grid_of(l, l->out);
	reserve(l, &l->backward_bytes, g.batch * g.blocks * g.width);
	return 0;
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	if (pd_conv_linear_backward(l, pass, err) < 0)
		return -1;
	if (pass->part != PD_BACKWARD_INPUT && l->layer->bias)
		backward_bias(l);
	return 0;
}

const struct pd_compiled_kind pd_cpu_conv_transpose2d = {
	.prepare = prepare,
	.forward = pd_conv_linear_forward,
	.backward = backward,
};
