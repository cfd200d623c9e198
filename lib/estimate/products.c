/* SPDX-License-Identifier: Apache-2.0 */
/* The products of each kind that has some. */
#include "estimate/cost.h"

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

void pd_products_none(const struct pd_cost_layer *of, struct pd_cost *cost)
{
	(void)of;
	(void)cost;
}

/* y = x w has the gradients dx = dy w' and dw = dy' x: the same three extents in other places. */
static void add_turned(const struct pd_cost_layer *of, struct pd_cost *cost, struct pd_product forward)
{
	int64_t rows = forward.rows, columns = forward.columns, depth = forward.depth;

	if (of->part == PD_COST_INPUT) {
		forward.columns = depth;
		forward.depth = columns;
	} else if (of->part == PD_COST_WEIGHT) {
		forward.rows = columns;
		forward.columns = depth;
		forward.depth = rows;
	}
	add(cost, forward);
}

void pd_products_linear(const struct pd_cost_layer *of, struct pd_cost *cost)
{
	const struct pd_shape *in = input(of, 0);

	add_turned(of, cost, (struct pd_product){ .rows = of->batch * pd_shape_rows(in),
						  .columns = pd_shape_width(&of->layer->output),
						  .depth = pd_shape_width(in), .times = 1 });
}

/* As a product of patches: a row for each place of the output, or of the input of a transposed one. */
void pd_products_conv(const struct pd_cost_layer *of, struct pd_cost *cost)
{
	const struct pd_layer *layer = of->layer;
	const struct pd_layer_tensor *weight = &layer->parameters[0];
	const struct pd_shape *places = layer->transposed ? input(of, 0) : &layer->output;
	int64_t in_group = weight->elements / weight->size[0];

	add_turned(of, cost, (struct pd_product){
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
void pd_products_attention(const struct pd_cost_layer *of, struct pd_cost *cost)
{
	const struct pd_layer *layer = of->layer;
	int64_t queries = input(of, 0)->size[0], keys = input(of, 1)->size[0];
	int64_t width = pd_shape_width(input(of, 0)) / layer->heads;
	int64_t values = pd_shape_width(&layer->output) / layer->heads;
	int64_t seen = keys_seen(layer, queries, keys);
	int64_t scores = of->part == PD_COST_INPUT ? 3 : 1, used = of->part == PD_COST_INPUT ? 2 : 1;

	add(cost, (struct pd_product){ queries, seen, width, scores * of->batch * layer->heads, .attention = true });
	add(cost, (struct pd_product){ queries, values, seen, used * of->batch * layer->heads, .attention = true });
}

/* Queries and keys times their matrices; scores are sums over the features of each pair. */
void pd_products_additive(const struct pd_cost_layer *of, struct pd_cost *cost)
{
	int64_t queries = input(of, 0)->size[0], keys = input(of, 1)->size[0];
	int64_t width = pd_shape_width(&of->layer->output);

	add_turned(of, cost, (struct pd_product){ of->batch * queries, width, pd_shape_width(input(of, 0)), 1 });
	add_turned(of, cost, (struct pd_product){ of->batch * keys, width, pd_shape_width(input(of, 1)), 1 });
	if (of->part != PD_COST_WEIGHT)
		add(cost, (struct pd_product){ queries, keys, width, of->batch, .attention = true });
}

/* The inputs of all steps at once, and the hidden state step by step; parameters have all steps at once, too. */
void pd_products_lstm(const struct pd_cost_layer *of, struct pd_cost *cost)
{
	const struct pd_layer *layer = of->layer;
	int64_t steps = input(of, 0)->size[0], hidden = layer->hidden_size, directions = layer->bidirectional ? 2 : 1;
	struct pd_product steps_hidden = { of->batch, 4 * hidden, hidden, directions, .in_turn = steps };

	add_turned(of, cost, (struct pd_product){ of->batch * steps, 4 * hidden, pd_shape_width(input(of, 0)),
						  directions });
	if (of->part == PD_COST_WEIGHT)
		steps_hidden = (struct pd_product){ of->batch * steps, 4 * hidden, hidden, directions };
	add_turned(of, cost, steps_hidden);
}
