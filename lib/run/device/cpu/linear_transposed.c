/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradient of linear's input, where weights are large and rows few.  oneDNN then keeps the weights in
 * panels of 64 outputs, and its kernel for this gradient transposes all of them at every call, which
 * takes a good part of its time.  Here the gradients are transposed instead, which are fewer: a row of
 * the product is an input, a column a sample.
 */
#include "base/mem.h"
#include "base/minmax.h"
#include "run/device/cpu/cpu.h"
#include "run/device/cpu/tile.h"

#include <string.h>

#define PANEL PD_LAYOUT_PANEL
#define MOST_ROWS 64                    /* with more, oneDNN's kernel transposes a block once for many */
#define LEAST_WEIGHTS (4 << 20)         /* fewer stay in the caches */
#define INPUTS 2048                     /* of a tile: memory is read in stretches of 512 KiB */
#define STRIP 64                        /* inputs whose gradients are transposed back at a time */

/* Both arrays are in scratch; each has `padded` columns, of which those behind the rows are 0. */
struct product {
	int64_t rows, padded, inputs, outputs;
	float *dst;                     /* gradients of the outputs */
	float *sums;                    /* those of the inputs */
};

static struct product product_of(const struct pd_compiled_layer *l)
{
	struct product t = {
		.rows = pd_cpu_rows(l->net, l->in_shape[0]),
		.inputs = pd_shape_width(l->in_shape[0]),
		.outputs = pd_shape_width(&l->layer->output),
	};

	t.padded = pd_tile_padded(t.rows);
	return t;
}

bool pd_linear_transposes(const struct pd_compiled_layer *l)
{
	const struct product t = product_of(l);

	return l->net->dtype == PD_F32 && t.rows <= MOST_ROWS &&
	       t.inputs * t.outputs >= LEAST_WEIGHTS && pd_layout_in_panels(l->parameter[0]);
}

static size_t dst_bytes(const struct product *t)
{
	return pd_align(sizeof(float) * (size_t)(t->outputs * t->padded));
}

size_t pd_linear_transposed_scratch(const struct pd_compiled_layer *l)
{
	const struct product t = product_of(l);

	return dst_bytes(&t) + pd_align(sizeof(float) * (size_t)(t.inputs * t.padded));
}

static void transpose_panel(const struct product *t, const float *diff_dst, int64_t from)
{
	for (int64_t o = from; o < from + PANEL; o++) {
		float *to = t->dst + o * t->padded;

		for (int64_t n = 0; n < t->rows; n++)
			to[n] = diff_dst[n * t->outputs + o];
		memset(to + t->rows, 0, sizeof(float) * (size_t)(t->padded - t->rows));
	}
}

static void transpose_back(const struct product *t, float *diff_src, int64_t from, int64_t count)
{
	float strip[MOST_ROWS * STRIP];

	pd_tile_ops()->transpose(strip, STRIP, t->sums + from * t->padded, t->padded, count, t->padded);
	for (int64_t n = 0; n < t->rows; n++)
		memcpy(diff_src + n * t->inputs + from, strip + n * STRIP,
		       sizeof(float) * (size_t)count);
}

static void make_tile(const struct product *t, const float *weights, float *diff_src, int64_t from)
{
	int64_t end = pd_min(t->inputs, from + INPUTS);

	for (int64_t o = 0; o < t->outputs; o += PANEL)
		pd_tile_ops()->multiply(&(struct pd_tile_product){
			.m = end - from, .n = t->padded, .k = PANEL,
			.a = weights + o * t->inputs + from * PANEL, .a_row = PANEL, .a_column = 1,
			.b = t->dst + o * t->padded, .ldb = t->padded,
			.c = t->sums + from * t->padded, .ldc = t->padded, .adds = o > 0,
		});
	for (int64_t i = from; i < end; i += STRIP)
		transpose_back(t, diff_src, i, pd_min(STRIP, end - i));
}

void pd_linear_transposed_backward(struct pd_compiled_layer *l)
{
	struct product t = product_of(l);

	t.dst = l->temporary;
	t.sums = (float *)((char *)l->temporary + dst_bytes(&t));
#pragma omp parallel for schedule(static)
	for (int64_t o = 0; o < t.outputs; o += PANEL)
		transpose_panel(&t, l->diff_dst, o);
#pragma omp parallel for schedule(static)
	for (int64_t i = 0; i < t.inputs; i += INPUTS)
		make_tile(&t, l->parameters[0], l->diff_src[0], i);
}
