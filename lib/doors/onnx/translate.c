/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/onnx/translate.h"

#include "doors/onnx/fold.h"

#include "base/mem.h"

static const struct row {
	const char *op;
	int (*translate)(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err);
} rows[] = {
#define ROW(op, function) { #op, translate_##function },
#include "doors/onnx/rows.def"
#undef ROW
};

/* What an input could not be translated for is the reason for what it is needed for, too. */
static int unknown(const struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	for (size_t i = 0; i < node->inputs; i++) {
		const struct value *value = graph_in(g, node, i);

		if (value && value->why)
			return pd_error_input(err, "%s", value->why);
	}
	if (*node->domain)
		return graph_error(node, err, "is of %.60s: expected operators of ONNX", node->domain);
	if (g->constants.full && fold_knows(node->op))
		return graph_error(node, err, "is computed of constants that take more than %lld MB: export with fewer "
				   "samples, or with shorter ones", (long long)(g->constants.most >> 20));
	return graph_error(node, err, "no kind of layer computes %.40s; see pd-model(5) for those that there are",
			   node->op);
}

static int translate(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	int result = NOT_THIS;

	for (size_t i = 0; result == NOT_THIS && !*node->domain && i < PD_COUNT(rows); i++)
		if (strcmp(rows[i].op, node->op) == 0)
			result = rows[i].translate(g, node, err);
	return result == NOT_THIS ? unknown(g, node, err) : result;
}

void graph_translate(struct graph *g)
{
	for (size_t n = 0; n < g->onnx->nodes; n++) {
		const struct pd_onnx_node *node = &g->onnx->node[n];
		struct pd_error err = { .text = "" };

		if (node->outputs == 0 || graph_fold(g, node))
			continue;
		if (translate(g, node, &err) < 0 && !graph_fold_kept(g, node))
			for (size_t i = 0; i < node->outputs; i++)
				if (*node->output[i])
					graph_find(g, node->output[i])->why = graph_text(g, "%s", err.text);
	}
}

int translate_rows(struct graph *g, const struct pd_onnx_node *node, const struct view *view, const char *kind,
		   json_t *attributes, int *layer_p, struct pd_error *err)
{
	struct extent sample;
	struct view out;
	int base, layer;

	if (place(g, view, node, &base, &sample, err) < 0) {
		json_decref(attributes);
		return -1;
	}
	layer = layer_add_one(g, kind, node, base, &sample, attributes);
	if (layer_p)
		*layer_p = layer;
	view_alike(&out, layer, view, -1, 0);
	return graph_set(g, node, &out);
}

int translate_elements(struct graph *g, const struct pd_onnx_node *node, const struct view *view,
		       const char *kind, json_t *attributes, struct pd_error *err)
{
	struct view out;

	if (place_plain(g, view, node, &out, err) < 0) {
		json_decref(attributes);
		return -1;
	}
	if (graph_parameter(g, &out) || !place_shows_all(g, &out))
		return translate_rows(g, node, &out, kind, attributes, NULL, err);
	out.base = layer_add_one(g, kind, node, out.base, &g->layers[out.base].sample, attributes);
	return graph_set(g, node, &out);
}

const struct pd_onnx_tensor *translate_whole(const struct graph *g, const struct pd_onnx_node *node, size_t i)
{
	const struct value *value = graph_in(g, node, i);

	while (value && value->node && is_op(value->node, "Identity"))
		value = graph_in(g, value->node, 0);
	return value && value->view && value->tensor ? value->tensor : NULL;
}
