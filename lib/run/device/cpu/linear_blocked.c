/* SPDX-License-Identifier: Apache-2.0 */
/*
 * linear by products of plain matrices: in f32 where our own are quicker than oneDNN's inner
 * products, and in 16 bits with f32 kernels.  There the weights are widened block by block, and a block stays in
 * the cache.  So half as much memory is read as in f32, and reading memory takes most of the time
 * of a minibatch with few samples.  Outputs begin with the bias, and blocks add to them.
 */
#include "base/mem.h"
#include "base/minmax.h"
#include "run/device/cpu/cpu.h"

#include <string.h>

/* A block is 512 KiB of f32, at most half of a second-level cache. */
#define ROWS 256
#define COLUMNS 512

/* Offsets in scratch, all f32: inputs or their gradients, outputs or theirs, and a block. */
struct scratch_offsets {
	size_t src, dst, block;
};

/* In f32 there is one block, the weights themselves, and nothing is in scratch. */
struct blocked {
	struct scratch_offsets forward, backward;
};

static int64_t inputs(const struct pd_compiled_layer *l)
{
	return pd_shape_width(l->in_shape[0]);
}

static int64_t outputs(const struct pd_compiled_layer *l)
{
	return pd_shape_width(&l->layer->output);
}

static int64_t rows(const struct pd_compiled_layer *l)
{
	return pd_cpu_rows(l->net, l->in_shape[0]);
}

static size_t all_of(const struct pd_compiled_layer *l, int64_t elements)
{
	return (size_t)(rows(l) * elements);
}

static void reserve_buffers(const struct pd_compiled_layer *l, struct scratch_offsets *offsets,
			    size_t *bytes_p)
{
	offsets->src = 0;
	offsets->dst = offsets->src + pd_align(sizeof(float) * all_of(l, inputs(l)));
	offsets->block = offsets->dst + pd_align(sizeof(float) * all_of(l, outputs(l)));
	*bytes_p = offsets->block + pd_align(sizeof(float) * (size_t)(pd_min(inputs(l), COLUMNS) *
								      pd_min(outputs(l), ROWS)));
}

static bool is_f32(const struct pd_compiled_layer *l)
{
	return l->net->dtype == PD_F32;
}

bool pd_linear_is_blocked(const struct pd_compiled_layer *l)
{
	return pd_onednn_widens(l->net->engine) ||
	       (is_f32(l) && pd_matrix_product_is_ours(rows(l)) &&
		pd_matrix_product_is_ours(outputs(l)));
}

void pd_linear_blocked_prepare(struct pd_compiled_layer *l)
{
	const int64_t size[] = { outputs(l), inputs(l) };
	struct blocked *p;

	l->parameter[0] = pd_layout_plain(l->net->engine, 2, size);
	if (l->layer->bias)
		l->parameter[1] = pd_layout_plain(l->net->engine, 1, size);
	if (!l->inside)
		return;
	l->own = p = pd_zalloc(sizeof(*p));
	l->split_bytes = pd_layout_bytes(l->out);
	if (is_f32(l))
		return;
	reserve_buffers(l, &p->forward, &l->forward_bytes);
	reserve_buffers(l, &p->backward, &l->backward_bytes);
}

static float *at(const struct pd_compiled_layer *l, size_t offset)
{
	return (float *)((char *)l->temporary + offset);
}

/* A block has these rows and columns of the weights, in f32, row by row. */
struct cut {
	int64_t row, rows, column, columns;
	const float *weights;
};

/* Returns all of a tensor in f32: its own, or converted in room. */
static const float *tensor_wide(const struct pd_compiled_layer *l, const void *tensor,
				int64_t elements, float *room)
{
	return pd_cpu_wide(l->net->dtype, tensor, 0, rows(l) * elements, room);
}

static void widen(const struct pd_compiled_layer *l, const struct cut *cut, float *block)
{
	const uint16_t *from = l->parameters[0];

#pragma omp parallel for schedule(static) if (cut->rows * cut->columns > COLUMNS)
	for (int64_t r = 0; r < cut->rows; r++)
		pd_cpu_widen(l->net->dtype, block + r * cut->columns,
			     from + (cut->row + r) * inputs(l) + cut->column, (size_t)cut->columns);
}

/* These add a block's part to the outputs, or to the gradients of inputs. */
static int add_outputs(const struct pd_compiled_layer *l, const struct cut *cut, const float *src,
		       float *dst, struct pd_error *err)
{
	const struct pd_matrix_product product = {
		.m = rows(l), .n = cut->rows, .k = cut->columns,
		.a = src + cut->column, .lda = inputs(l),
		.b = cut->weights, .ldb = cut->columns, .transposed_b = true,
		.c = dst + cut->row, .ldc = outputs(l), .adds = true,
	};

	return pd_matrix_multiply(&product, err);
}

static int add_inputs(const struct pd_compiled_layer *l, const struct cut *cut,
		      const float *diff_dst, float *diff_src, struct pd_error *err)
{
	const struct pd_matrix_product product = {
		.m = rows(l), .n = cut->columns, .k = cut->rows,
		.a = diff_dst + cut->row, .lda = outputs(l),
		.b = cut->weights, .ldb = cut->columns,
		.c = diff_src + cut->column, .ldc = inputs(l), .adds = cut->row > 0,
	};

	return pd_matrix_multiply(&product, err);
}

static int for_blocks(const struct pd_compiled_layer *l, const struct scratch_offsets *offsets,
		      int (*add)(const struct pd_compiled_layer *l, const struct cut *cut,
				 const float *from, float *to, struct pd_error *err),
		      const float *from, float *to, struct pd_error *err)
{
	if (is_f32(l))
		return add(l, &(struct cut){
			.rows = outputs(l), .columns = inputs(l), .weights = l->parameters[0],
		}, from, to, err);
	for (int64_t row = 0; row < outputs(l); row += ROWS)
		for (int64_t column = 0; column < inputs(l); column += COLUMNS) {
			const struct cut cut = {
				.row = row, .rows = pd_min(outputs(l) - row, ROWS),
				.column = column, .columns = pd_min(inputs(l) - column, COLUMNS),
				.weights = at(l, offsets->block),
			};

			widen(l, &cut, at(l, offsets->block));
			if (add(l, &cut, from, to, err) < 0)
				return -1;
		}
	return 0;
}

static void begin_with_bias(const struct pd_compiled_layer *l, float *dst)
{
	size_t row = (size_t)outputs(l);
	const float *bias;

	if (!l->layer->bias) {
		memset(dst, 0, sizeof(float) * all_of(l, outputs(l)));
		return;
	}
	bias = pd_cpu_wide(l->net->dtype, l->parameters[1], 0, (int64_t)row, dst);
	for (int64_t n = bias == dst; n < rows(l); n++)
		memcpy(dst + (size_t)n * row, bias, sizeof(float) * row);
}

int pd_linear_blocked_forward(struct pd_compiled_layer *l, struct pd_error *err)
{
	const struct scratch_offsets *offsets = &((const struct blocked *)l->own)->forward;
	const float *src = tensor_wide(l, l->src[0], inputs(l), at(l, offsets->src));
	float *dst = is_f32(l) ? l->dst : at(l, offsets->dst);

	begin_with_bias(l, dst);
	if (for_blocks(l, offsets, add_outputs, src, dst, err) < 0)
		return -1;
	if (!is_f32(l))
		pd_cpu_narrow(l->net->dtype, l->dst, dst, all_of(l, outputs(l)));
	return 0;
}

/* Sums `columns` columns of a matrix with rows of `each` elements. */
PD_VECTOR static void add_columns(float *restrict sum, const float *restrict rows, int64_t count,
				  size_t each, size_t columns)
{
	memcpy(sum, rows, sizeof(float) * columns);
	for (int64_t n = 1; n < count; n++)
		for (size_t i = 0; i < columns; i++)
			sum[i] += rows[(size_t)n * each + i];
}

static void add_rows(float *sum, const float *rows, int64_t count, size_t each)
{
#pragma omp parallel for schedule(static) if (each > COLUMNS)
	for (size_t at = 0; at < each; at += COLUMNS)
		add_columns(sum + at, rows + at, count, each,
			    each - at < COLUMNS ? each - at : COLUMNS);
}

static int backward_weights(struct pd_compiled_layer *l, float *room, const float *diff_dst,
			    struct pd_error *err)
{
	const struct pd_matrix_product product = {
		.m = outputs(l), .n = inputs(l), .k = rows(l),
		.a = diff_dst, .lda = outputs(l), .transposed_a = true,
		.b = tensor_wide(l, l->src[0], inputs(l), room), .ldb = inputs(l),
		.c = l->diff_parameters[0], .ldc = inputs(l),
	};

	if (l->layer->bias)
		add_rows(l->diff_parameters[1], diff_dst, rows(l), (size_t)outputs(l));
	return pd_matrix_multiply(&product, err);
}

int pd_linear_blocked_backward(struct pd_compiled_layer *l, const struct pd_pass *pass,
			       struct pd_error *err)
{
	const struct scratch_offsets *offsets = &((const struct blocked *)l->own)->backward;
	const float *diff_dst = tensor_wide(l, l->diff_dst, outputs(l), at(l, offsets->dst));
	float *room = at(l, offsets->src), *diff_src = is_f32(l) ? l->diff_src[0] : room;

	if (pass->part != PD_BACKWARD_INPUT && backward_weights(l, room, diff_dst, err) < 0)
		return -1;
	if (pass->part == PD_BACKWARD_WEIGHT || !l->diff_src[0])
		return 0;
	/* in room the gradients replace the inputs, which are no longer needed */
	if (for_blocks(l, offsets, add_inputs, diff_dst, diff_src, err) < 0)
		return -1;
	if (!is_f32(l))
		pd_cpu_narrow(l->net->dtype, l->diff_src[0], diff_src, all_of(l, inputs(l)));
	return 0;
}
