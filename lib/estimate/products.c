/* SPDX-License-Identifier: Apache-2.0 */
/* The products of each kind that has some. */
#include "estimate/cost.h"

#include "model/winograd.h"

static void add(struct pd_cost *cost, struct pd_product product)
{
	if (product.in_turn == 0)
		product.in_turn = 1;
	cost->products[cost->product_count++] = product;
}

static const struct pd_shape *input(const struct pd_cost_layer *of, int i)
{
	return pd_model_shape(of->model, of->layer->inputs[i]);
}

/* Returns the most that one of so many parts has. */
static int64_t share(int64_t all, int64_t parts)
{
	return (all + parts - 1) / parts;
}

void pd_products_none(const struct pd_cost_layer *of, enum pd_cost_part part, struct pd_cost *cost)
{
	(void)of;
	(void)part;
	(void)cost;
}

/* y = x w has the gradients dx = dy w' and dw = dy' x: the same three extents in other places. */
static void add_turned(enum pd_cost_part part, struct pd_cost *cost, struct pd_product forward)
{
	int64_t rows = forward.rows, columns = forward.columns, depth = forward.depth;

	if (part == PD_COST_INPUT) {
		forward.columns = depth;
		forward.depth = columns;
	} else if (part == PD_COST_WEIGHT) {
		forward.rows = columns;
		forward.columns = depth;
		forward.depth = rows;
	}
	add(cost, forward);
}

void pd_products_linear(const struct pd_cost_layer *of, enum pd_cost_part part, struct pd_cost *cost)
{
	const struct pd_shape *in = input(of, 0);
	double columns = (double)pd_shape_width(&of->layer->output) * of->share.beside;

	add_turned(part, cost, (struct pd_product){ .rows = share(of->batch * pd_shape_rows(in), of->share.rows),
						    .columns = share((int64_t)(columns + 0.5), of->share.output),
						    .depth = share(pd_shape_width(in), of->share.inputs), .times = 1 });
	if (part != PD_COST_WEIGHT || !of->layer->bias)
		return;
	cost->apart_kernels = 1;        /* sums the gradient of the bias */
	cost->apart_bytes = (double)of->batch * (double)pd_shape_rows(in) / (double)of->share.rows * columns /
			    (double)of->share.output * (double)pd_dtype_bytes(of->dtype);
}

/* As a product of patches: a row for each place of the output, or of the input of a transposed one. */
void pd_products_conv(const struct pd_cost_layer *of, enum pd_cost_part part, struct pd_cost *cost)
{
	const struct pd_layer *layer = of->layer;
	const struct pd_layer_tensor *weight = &layer->parameters[0];
	const struct pd_shape *places = layer->transposed ? input(of, 0) : &layer->output;
	int64_t in_group = weight->elements / weight->size[0];
	const struct pd_winograd_window window = {
		of->batch, input(of, 0)->size[0], layer->out_channels, layer->output.size[1],
		layer->output.size[2], layer->groups, layer->kernel, layer->stride, layer->dilation
	};
	bool suits = layer->kind == PD_LAYER_conv2d && of->dtype == PD_F32 && pd_winograd_suits(&window);

	add_turned(part, cost, (struct pd_product){
		.winograd = suits ? pd_winograd_products(&window) : 0,
		.winograd_bytes = suits ? 2 * sizeof(float) * pd_winograd_numbers(&window) : 0,
		.rows = of->batch * (pd_shape_elements(places) / places->size[0]),
		.columns = weight->size[0] / layer->groups, .depth = in_group, .times = layer->groups });
}

/* Returns how many keys a query sees in the mean: of those before it, or of a window of them. */
static int64_t keys_seen(const struct pd_layer *layer, int64_t queries, int64_t keys)
{
	int64_t most = layer->window > 0 && layer->window < keys ? layer->window : keys;

	if (!layer->causal || queries != keys)
		return keys;
	return (most * keys - most * (most - 1) / 2 + keys - 1) / keys;
}

/* Scores and their use, per head: two products, and backward five, since it makes the scores again. */
static void add_fused(const struct pd_cost_layer *of, enum pd_cost_part part, struct pd_product scores,
		      int64_t values, struct pd_cost *cost)
{
	int64_t seen = keys_seen(of->layer, scores.rows, scores.columns), heads = scores.times;

	add(cost, (struct pd_product){ scores.rows, seen, scores.depth, (part == PD_COST_INPUT ? 3 : 1) * heads,
				       .attention = true });
	add(cost, (struct pd_product){ scores.rows, values, seen, (part == PD_COST_INPUT ? 2 : 1) * heads,
				       .attention = true });
}

/*
 * The scores of all pairs, and what softmax and dropout make of them, each in memory.  Forward: two products, of
 * which one writes them and one reads them; a bias, softmax; dropout and its mask.  Backward: four, dropout, and
 * softmax, which reads two; a bias reads them.
 */
static void add_unfused(const struct pd_cost_layer *of, enum pd_cost_part part, struct pd_product scores,
			int64_t values, struct pd_cost *cost)
{
	double all = (double)scores.rows * (double)scores.columns * (double)scores.times;
	double each = (double)pd_dtype_bytes(of->dtype);
	struct pd_product used = { scores.rows, values, scores.columns, scores.times };
	bool drops = of->layer->p > 0, biased = of->layer->relative_buckets > 0, backward = part == PD_COST_INPUT;

	add(cost, scores);
	add(cost, used);
	if (backward) {
		add(cost, (struct pd_product){ scores.columns, scores.depth, scores.rows, scores.times });
		add(cost, (struct pd_product){ scores.columns, values, scores.rows, scores.times });
	}
	cost->bytes += (backward ? 4 : 2) * each * all;
	cost->apart_kernels = 1 + drops + biased;
	cost->apart_bytes = ((backward ? 3 : 2) * each + (drops ? 2 * each + 1 : 0) +
			     (biased ? (backward ? 1 : 2) * each : 0)) * all;
}

void pd_products_attention(const struct pd_cost_layer *of, enum pd_cost_part part, struct pd_cost *cost)
{
	const struct pd_layer *layer = of->layer;
	int64_t values = pd_shape_width(&layer->output) / layer->heads;
	struct pd_product scores = { input(of, 0)->size[0], input(of, 1)->size[0],
				     pd_shape_width(input(of, 0)) / layer->heads,
				     of->batch * share(layer->heads, of->share.output) };

	if (part == PD_COST_WEIGHT)             /* the gradient of a bias is made beside those of the inputs */
		return;
	(of->unfused ? add_unfused : add_fused)(of, part, scores, values, cost);
}

double pd_products_scores_bytes(const struct pd_cost_layer *of)
{
	const struct pd_layer *layer = of->layer;
	double all, each = (double)pd_dtype_bytes(of->dtype);

	if (layer->kind != PD_LAYER_attention)
		return 0;
	all = (double)of->batch * (double)share(layer->heads, of->share.output) * (double)input(of, 0)->size[0] *
	      (double)input(of, 1)->size[0];
	return all * (layer->p > 0 ? 2 * each + 1 : each);
}

/*
 * Queries and keys times their matrices; scores, sums over the features of each pair, and their use.  Backward makes
 * the scores again, and has two products for each.
 */
void pd_products_additive(const struct pd_cost_layer *of, enum pd_cost_part part, struct pd_cost *cost)
{
	int64_t queries = input(of, 0)->size[0], keys = input(of, 1)->size[0];
	int64_t width = pd_shape_width(&of->layer->output), times = part == PD_COST_INPUT ? 2 : 1;

	add_turned(part, cost, (struct pd_product){ of->batch * queries, width, pd_shape_width(input(of, 0)), 1 });
	add_turned(part, cost, (struct pd_product){ of->batch * keys, width, pd_shape_width(input(of, 1)), 1 });
	if (part == PD_COST_WEIGHT)
		return;
	add(cost, (struct pd_product){ queries, keys, width, times * of->batch, .attention = true });
	add(cost, (struct pd_product){ queries, width, keys, times * of->batch, .attention = true });
}

/*
 * The inputs of all steps at once, and the hidden state step by step, each of which reads its matrix; parameters have
 * all steps at once, too.
 */
void pd_products_lstm(const struct pd_cost_layer *of, enum pd_cost_part part, struct pd_cost *cost)
{
	const struct pd_layer *layer = of->layer;
	int64_t steps = input(of, 0)->size[0], hidden = layer->hidden_size, directions = layer->bidirectional ? 2 : 1;
	struct pd_product steps_hidden = { of->batch, 4 * hidden, hidden, directions, .in_turn = steps };

	add_turned(part, cost, (struct pd_product){ of->batch * steps, 4 * hidden, pd_shape_width(input(of, 0)),
						  directions });
	if (part == PD_COST_WEIGHT)
		steps_hidden = (struct pd_product){ of->batch * steps, 4 * hidden, hidden, directions };
	else
		cost->bytes += (double)((steps - 1) * 4 * hidden * hidden * directions) * (double)pd_dtype_bytes(of->dtype);
	add_turned(part, cost, steps_hidden);
}
