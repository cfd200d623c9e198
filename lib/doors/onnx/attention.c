/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention, which is one node from opset 23 on, or written out: softmax of products of queries and keys, to which
 * something may be added, times values.  Heads lie side by side in our layers, and one that serves several heads
 * of queries is there once.
 */
#include "doors/onnx/attention.h"

#include "base/mem.h"
#include "base/names.h"

#include <math.h>

#define MOST_ADDED 4
#define LOW (-1e4)                      /* a score whose exponential is 0 beside that of others */

/* Attention that is being read. */
struct attention {
	const struct view *views[3];    /* queries, keys, values: samples, heads, positions, features */
	int64_t heads[3], queries, keys;
	bool causal;
	double scale;
	bool biased;
	struct relative bias;
	const struct mask *mask;        /* NULL: it hides nothing */
};

/* Shows [B, H, T, d] as [B, T, H d], where heads that are repeated are there once; *heads_p: how many these are. */
static int side_by_side(const struct pd_onnx_node *node, const struct view *from, struct view *out,
			int64_t *heads_p, struct pd_error *err)
{
	bool room, repeated = false;

	if (from->axes != 4 || !view_counts(from, 0))
		return graph_error(node, err, "expected axes for samples, heads, positions and features");
	*out = (struct view){ .base = from->base, .offset = from->offset };
	*heads_p = 1;
	room = view_axis_of(out, from, 0) && view_axis_of(out, from, 2) && view_axis(out);
	for (int k = from->first[1]; room && k < from->first[2]; k++) {
		if (from->factor[k].stride == REPEATED) {
			repeated = true;
			continue;
		}
		if (repeated)
			return graph_error(node, err, "repeats all heads one after the other: expected each several times");
		*heads_p *= from->factor[k].size;
		room = view_factor(out, from->factor[k].size, from->factor[k].stride);
	}
	for (int k = from->first[3]; room && k < from->first[4]; k++)
		room = view_factor(out, from->factor[k].size, from->factor[k].stride);
	return room ? 0 : graph_error(node, err, "has too many axes");
}

static int check(const struct pd_onnx_node *node, struct pd_error *err)
{
	for (size_t i = 4; i < node->inputs; i++)
		if (*node->input[i])
			return graph_error(node, err, "goes on with keys of earlier positions: expected all at once; "
					   "export with use_cache=False");
	if (number_of(node, "softcap", 0) != 0)
		return graph_error(node, err, "caps its scores (softcap): attention has no cap");
	return 0;
}

/* Places queries, keys and values, and counts their heads. */
static int place_heads(struct graph *g, const struct pd_onnx_node *node, struct attention *a, int base[3],
		       struct pd_error *err)
{
	for (size_t i = 0; i < 3; i++) {
		struct extent sample;
		struct view shown;

		if (side_by_side(node, a->views[i], &shown, &a->heads[i], err) < 0 ||
		    place(g, &shown, node, &base[i], &sample, err) < 0)
			return -1;
	}
	return a->heads[1] == a->heads[2] ? 0 : graph_error(node, err, "has other heads of values than of keys");
}

static json_t *attributes_of(const struct attention *a)
{
	json_t *attributes = json_pack("{s:I}", "heads", (json_int_t)a->heads[0]);
	double usual = 1 / sqrt((double)view_size(a->views[0], 3)), scale = a->scale;

	for (int i = 0; i < 2; i++)
		scale *= a->views[i]->scaled ? a->views[i]->by : 1;
	if (a->heads[1] != a->heads[0])
		pd_json_set(attributes, "kv_heads", json_integer(a->heads[1]));
	if (a->causal)
		pd_json_set(attributes, "causal", json_true());
	if (a->mask && a->mask->window > 0)
		pd_json_set(attributes, "window", json_integer(a->mask->window));
	if (fabs(scale - usual) > 1e-6 * usual)
		pd_json_set(attributes, "scale", json_real(shortest(scale)));
	if (a->biased)
		pd_json_set(attributes, "relative_buckets", json_integer(a->bias.table->size[0]));
	if (a->biased)
		pd_json_set(attributes, "max_distance", json_integer(a->bias.max_distance));
	return attributes;
}

/* ---- what is added to scores ---- */

static bool hides_something(const struct mask *mask)
{
	return mask->causal || mask->lengths >= 0;
}

static int add_mask(struct graph *g, const struct pd_onnx_node *node, struct value *value, struct attention *a,
		    struct pd_error *err)
{
	const struct mask *mask = mask_of(g, value, a->queries, a->keys);

	if (mask->why)
		return graph_error(node, err, "has a mask, %.100s: %s", value->name, mask->why);
	if (a->mask && hides_something(mask))
		return graph_error(node, err, "has two masks, of which %.100s is one: expected one", value->name);
	if (hides_something(mask))
		a->mask = mask;
	return 0;
}

/* Is a bias of relative positions part of a sum? */
static bool has_bias(struct graph *g, const struct value *value, int depth)
{
	const struct pd_onnx_node *sum = depth < MOST_ADDED ? pattern_made(g, value, "Add") : NULL;
	struct relative bias;

	return relative_of(g, value, &bias) ||
	       (sum && (has_bias(g, graph_in(g, sum, 0), depth + 1) || has_bias(g, graph_in(g, sum, 1), depth + 1)));
}

/* Takes a bias, a mask, or a sum of these. */
static int add_to_scores(struct graph *g, const struct pd_onnx_node *node, struct value *value, struct attention *a,
			 struct pd_error *err)
{
	const struct pd_onnx_node *sum = pattern_made(g, value, "Add");
	struct relative bias;

	if (relative_of(g, value, &bias)) {
		if (a->biased)
			return graph_error(node, err, "has two biases of relative positions: expected one");
		a->biased = true;
		a->bias = bias;
		return 0;
	}
	if (!sum || !has_bias(g, value, 0))
		return add_mask(g, node, value, a, err);
	return add_to_scores(g, node, graph_in(g, sum, 0), a, err) < 0 ||
	       add_to_scores(g, node, graph_in(g, sum, 1), a, err) < 0 ? -1 : 0;
}

static int check_bias(const struct pd_onnx_node *node, const struct attention *a, struct pd_error *err)
{
	if (a->bias.table->size[1] != a->heads[0])
		return graph_error(node, err, "has biases for %lld heads: expected %lld, as it has heads",
				   (long long)a->bias.table->size[1], (long long)a->heads[0]);
	if (a->bias.both == a->causal)
		return graph_error(node, err, "has a bias for keys %s: expected %s", a->bias.both
				   ? "behind the query, which a mask hides" : "before the query alone",
				   a->bias.both ? "all buckets for those before it" : "a mask that hides the others");
	return 0;
}

/* ---- both ways ---- */

/* A table that is a module's weight names the layer that has it, wherever attention is. */
static void set_table(struct graph *g, int layer, const struct pd_onnx_tensor *table)
{
	if (layer_owner(g, table) < 0)
		g->layers[layer].own = graph_text(g, "%.*s", (int)(strlen(table->name) - (pd_name_ends(table->name,
						  ".weight") ? strlen(".weight") : 0)), table->name);
	layer_parameter(g, layer, "weight", table, NULL);
}

static int attend(struct graph *g, const struct pd_onnx_node *node, struct attention *a, struct pd_error *err)
{
	int64_t width = view_size(a->views[2], 3);
	int base[4], layer;
	struct view out;

	if (place_heads(g, node, a, base, err) < 0)
		return -1;
	a->causal |= a->mask && a->mask->causal;
	if (a->biased && check_bias(node, a, err) < 0)
		return -1;
	base[3] = a->mask ? a->mask->lengths : -1;
	layer = layer_add(g, "attention", node, base[3] >= 0 ? 4 : 3, base,
			  &(struct extent){ 2, { a->queries, a->heads[0] * width } }, attributes_of(a));
	if (a->biased)
		set_table(g, layer, a->bias.table);
	out = (struct view){ .base = layer };
	view_axis(&out);
	view_factor(&out, g->batch, SAMPLES);
	view_axis(&out);
	view_factor(&out, a->heads[0], width);
	view_axis(&out);
	view_factor(&out, a->queries, a->heads[0] * width);
	view_axis(&out);
	view_factor(&out, width, 1);
	return graph_set(g, node, &out);
}

/* Queries and keys may be multiplied by a number, which is part of the scale then. */
static int multiplied_view(struct graph *g, const struct pd_onnx_node *node, size_t i,
			   const struct view **view_p, struct pd_error *err)
{
	const struct value *value = graph_in(g, node, i);
	bool multiplied = value && value->view && value->view->scaled && value->view->plus == 0 &&
			  value->view->by > 0;

	return (multiplied ? graph_scaled_view : graph_view)(g, node, i, view_p, err);
}

static int expect_heads(const struct pd_onnx_node *node, struct attention *a, struct pd_error *err)
{
	for (int i = 0; i < 3; i++)
		if (a->views[i]->axes == 4 && view_samples(a->views[i]) == 2)
			return graph_error(node, err, "attends from sample to sample, which the first axis of inputs counts: "
					   "export with positions behind samples (nn.MultiheadAttention has these first "
					   "unless batch_first=True)");
	for (int i = 0; i < 3; i++)
		if (a->views[i]->axes != 4)
			return graph_error(node, err, "expected axes for samples, heads, positions and features");
	a->queries = view_size(a->views[0], 2);
	a->keys = view_size(a->views[1], 2);
	return 0;
}

int translate_attention(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	struct attention a = { .causal = integer_of(node, "is_causal", 0) };
	struct value *given = graph_in(g, node, 3);

	if (check(node, err) < 0)
		return -1;
	for (size_t i = 0; i < 3; i++)
		if ((i < 2 ? multiplied_view : graph_view)(g, node, i, &a.views[i], err) < 0)
			return -1;
	if (expect_heads(node, &a, err) < 0)
		return -1;
	a.scale = number_of(node, "scale", 1 / sqrt((double)view_size(a.views[0], 3)));
	return given && add_to_scores(g, node, given, &a, err) < 0 ? -1 : attend(g, node, &a, err);
}

/* ---- written out ---- */

/*
 * Where(mask, a number that is far below all scores, scores), as masked_fill has it: returns the scores, and as an
 * addend what has the same effect.
 */
static const struct value *unmasked(struct graph *g, const struct value *value,
				    struct value **added_p)
{
	const struct pd_onnx_node *where = pattern_made(g, value, "Where");
	const struct array *mask = where ? graph_constant(g, where, 0) : NULL;
	struct value *made;
	struct array *sum;
	double low;

	if (!mask || !mask->whole || !array_scalar(graph_constant(g, where, 1), &low) || low > LOW)
		return NULL;
	sum = array_new(&g->constants, &(struct array){ .whole = false }, mask->dims, mask->size);
	if (!sum)
		return NULL;
	for (int64_t i = 0; i < mask->elements; i++)
		sum->reals[i] = array_integer(mask, i) ? -INFINITY : 0;
	made = pd_arena_take(&g->constants.arena, 1, sizeof(*made));
	*made = (struct value){ .name = where->input[0], .constant = sum };
	*added_p = made;
	return graph_in(g, where, 2);
}

/* Looks for a product of two activations among what is added, through a factor: the node, and what else there is. */
static const struct pd_onnx_node *find_product(struct graph *g, const struct value *value, double *factor_p,
					       struct value *added[MOST_ADDED], int *count_p)
{
	const struct pd_onnx_node *sum = pattern_made(g, value, "Add"), *product = pattern_made(g, value, "MatMul");
	const struct pd_onnx_node *scaled = pattern_made(g, value, "Mul"), *divided = pattern_made(g, value, "Div");
	double by;

	const struct value *scores;

	*factor_p = 1;
	if (product)
		return product;
	scores = *count_p < MOST_ADDED ? unmasked(g, value, &added[*count_p]) : NULL;
	if (scores) {
		++*count_p;
		return find_product(g, scores, factor_p, added, count_p);
	}
	for (size_t i = 0; scaled && i < 2; i++)
		if (array_scalar(graph_constant(g, scaled, i), &by)) {
			*factor_p = by;
			return pattern_made(g, graph_in(g, scaled, 1 - i), "MatMul");
		}
	if (divided && array_scalar(graph_constant(g, divided, 1), &by)) {
		*factor_p = 1 / by;
		return pattern_made(g, graph_in(g, divided, 0), "MatMul");
	}
	for (size_t i = 0; sum && *count_p < MOST_ADDED && i < 2; i++) {
		struct value *other = graph_in(g, sum, 1 - i);
		int count = *count_p;

		added[(*count_p)++] = other;
		product = find_product(g, graph_in(g, sum, i), factor_p, added, count_p);
		if (product)
			return product;
		*count_p = count;
	}
	return NULL;
}

/* Softmax over the last axis of what makes a value, or NULL. */
static const struct value *softened(const struct graph *g, const struct value *value, int axes)
{
	const struct pd_onnx_node *node = pattern_made(g, value, "Softmax");

	return node && array_axis(integer_of(node, "axis", -1), axes) == axes - 1 ? graph_in(g, node, 0) : NULL;
}

int translate_written_attention(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	static const int turned[] = { 0, 1, 3, 2 };
	struct attention a = { .causal = false };
	const struct value *scores = softened(g, graph_in(g, node, 0), 4);
	struct value *added[MOST_ADDED];
	const struct pd_onnx_node *product;
	int count = 0;
	struct view keys;

	product = scores ? find_product(g, scores, &a.scale, added, &count) : NULL;
	if (!product)
		return NOT_THIS;
	if (multiplied_view(g, product, 0, &a.views[0], err) < 0 ||
	    multiplied_view(g, product, 1, &a.views[1], err) < 0 ||
	    graph_view(g, node, 1, &a.views[2], err) < 0)
		return -1;
	if (graph_parameter(g, a.views[1]) || graph_parameter(g, a.views[2]))
		return NOT_THIS;
	if (a.views[1]->axes != 4 || !view_permuted(&keys, a.views[1], turned))
		return graph_error(node, err, "expected axes for samples, heads, positions and features");
	view_scale_as(&keys, a.views[1]);
	a.views[1] = &keys;
	if (expect_heads(node, &a, err) < 0)
		return -1;
	for (int i = 0; i < count; i++)
		if (add_to_scores(g, node, added[i], &a, err) < 0)
			return -1;
	return attend(g, node, &a, err);
}
