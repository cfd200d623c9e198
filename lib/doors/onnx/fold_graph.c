/* SPDX-License-Identifier: Apache-2.0 */
/* Constants in a graph: those that come of constants alone, and those that are computed for a look at them. */
#include "doors/onnx/fold.h"
#include "doors/onnx/graph.h"

#include "base/mem.h"

#include <stdlib.h>

#define MOST_INPUTS 16
#define MOST_DEPTH 256                  /* of nodes, one behind the other */

static int type_of(const struct value *value)
{
	return value->tensor ? value->tensor->type : value->known ? value->known->type : 0;
}

/* Shape, whose input need not be known. */
static struct array *shape_of(struct graph *g, const struct pd_onnx_node *node, const struct value *of)
{
	struct extent extent = { .dims = -1 };
	struct array *out;
	int64_t begin, end;

	if (of->constant)
		extent = (struct extent){ of->constant->dims, { 0 } };
	for (int d = 0; d < extent.dims; d++)
		extent.size[d] = of->constant->size[d];
	if (!of->constant && of->view)
		extent = view_extent(of->view);
	if (extent.dims < 0 && of->known && !of->known->symbol && of->known->dims >= 0) {
		extent.dims = of->known->dims;
		memcpy(extent.size, of->known->size, sizeof(extent.size));
	}
	if (extent.dims < 0)
		return NULL;
	begin = integer_of(node, "start", 0);
	end = integer_of(node, "end", extent.dims);
	begin = begin < 0 ? begin + extent.dims : begin;
	end = end < 0 ? end + extent.dims : end > extent.dims ? extent.dims : end;
	if (begin < 0 || begin > end)
		return NULL;
	out = array_integers(&g->constants, 1, &(int64_t){ end - begin });
	for (int64_t d = begin; out && d < end; d++)
		out->integers[d - begin] = extent.size[d];
	return out;
}

static int of_output(const struct graph *g, const struct pd_onnx_node *node)
{
	return node->outputs > 0 && *node->output[0] ? type_of(graph_find(g, node->output[0])) : 0;
}

/* Makes the first output of a node of arrays, NULL where an input is left out. */
static struct array *fold_node(struct graph *g, struct constants *room, const struct pd_onnx_node *node,
				     const struct array *const *in)
{
	struct fold f = { room, g->onnx, node, node->inputs, in, .single = of_output(g, node) == PD_ONNX_F32 };
	const struct value *like = is_op(node, "CastLike") ? graph_in(g, node, 1) : NULL;

	if (is_op(node, "CastLike") && (!like || (!like->constant && !type_of(like))))
		return NULL;
	if (like) {
		f.whole = like->constant ? like->constant->whole : pd_onnx_is_integer(type_of(like));
		f.truth = like->constant ? like->constant->truth : type_of(like) == PD_ONNX_BOOL;
	}
	return fold(&f);
}

/* What only nodes read that are computed by now is not needed any more. */
static void drop_read(struct graph *g, const struct pd_onnx_node *node)
{
	for (size_t i = 0; i < node->inputs; i++) {
		struct value *value = graph_in(g, node, i);

		if (value && ++value->folded == value->uses && value->constant)
			array_drop(&g->constants, value->constant);
	}
}

bool graph_fold(struct graph *g, const struct pd_onnx_node *node)
{
	const struct array *in[MOST_INPUTS] = { NULL };
	struct array *out = NULL;
	struct value *first = graph_in(g, node, 0);

	if (node->inputs > MOST_INPUTS || node->outputs != 1)
		return false;
	if (is_op(node, "Shape")) {
		out = first ? shape_of(g, node, first) : NULL;
	} else if (fold_knows(node->op)) {
		for (size_t i = 0; i < node->inputs; i++) {
			const struct value *value = graph_in(g, node, i);

			in[i] = value ? value->constant : NULL;
			if (value && !value->constant && !(is_op(node, "CastLike") && i == 1))
				return false;
		}
		out = fold_node(g, &g->constants, node, in);
	}
	if (!out)
		return false;
	graph_find(g, node->output[0])->constant = out;
	drop_read(g, node);
	return true;
}

/* What is known while a value is computed for a look at it. */
struct look {
	struct graph *g;
	struct constants *room;
	const struct value *input;
	const struct array *is;
	bool kept;                      /* of tensors, those that no update moves alone */
	const struct array **made;      /* by value */
	bool *tried;
};

static const struct array *look_at(struct look *look, const struct value *value, int depth)
{
	const struct array *in[MOST_INPUTS] = { NULL };
	size_t number = (size_t)(value - look->g->values);
	const struct pd_onnx_node *node = value->node;

	if (value == look->input)
		return look->is;
	if (value->constant)
		return value->constant;
	if (look->tried[number] || depth == MOST_DEPTH)
		return look->made[number];
	look->tried[number] = true;
	if (value->tensor && look->kept && !layer_keeps(value->tensor))
		return NULL;
	if (value->tensor)
		return look->made[number] = fold_tensor(look->room, look->g->onnx, value->tensor);
	if (!node || node->inputs > MOST_INPUTS || node->outputs != 1 || !fold_knows(node->op))
		return NULL;
	for (size_t i = 0; i < node->inputs; i++) {
		const struct value *from = graph_in(look->g, node, i);

		if (!from || (is_op(node, "CastLike") && i == 1))
			continue;
		in[i] = look_at(look, from, depth + 1);
		if (!in[i])
			return NULL;
	}
	return look->made[number] = fold_node(look->g, look->room, node, in);
}

const struct array *graph_compute(struct graph *g, struct constants *room, const struct value *value,
				  const struct value *input, const struct array *is)
{
	struct look look = { g, room, input, is, .made = pd_calloc(g->value_count, sizeof(*look.made)),
			     .tried = pd_calloc(g->value_count, sizeof(*look.tried)) };
	const struct array *out = look_at(&look, value, 0);

	free(look.made);
	free(look.tried);
	return out;
}

bool graph_fold_kept(struct graph *g, const struct pd_onnx_node *node)
{
	struct look look = { g, &g->constants, NULL, NULL, true, pd_calloc(g->value_count, sizeof(*look.made)),
			     pd_calloc(g->value_count, sizeof(*look.tried)) };
	struct value *value = node->outputs == 1 ? graph_find(g, node->output[0]) : NULL;
	const struct array *out = value ? look_at(&look, value, 0) : NULL;

	if (out) {
		value->constant = (struct array *)(uintptr_t)out;
		value->view = NULL;
	}
	free(look.made);
	free(look.tried);
	return out;
}
