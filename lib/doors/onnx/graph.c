/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/onnx/place.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdlib.h>

static int compare_values(const void *a, const void *b)
{
	return strcmp(((const struct value *)a)->name, ((const struct value *)b)->name);
}

struct value *graph_find(const struct graph *g, const char *name)
{
	struct value key = { .name = name };

	return bsearch(&key, g->values, g->value_count, sizeof(key), compare_values);
}

struct value *graph_in(const struct graph *g, const struct pd_onnx_node *node, size_t i)
{
	return i < node->inputs && *node->input[i] ? graph_find(g, node->input[i]) : NULL;
}

const struct array *graph_constant(const struct graph *g, const struct pd_onnx_node *node, size_t i)
{
	const struct value *value = graph_in(g, node, i);

	return value ? value->constant : NULL;
}

bool graph_constant_is(const struct graph *g, const struct pd_onnx_node *node, size_t i,
		       double number)
{
	const struct array *constant = graph_constant(g, node, i);

	return constant && array_all(constant, number);
}

const char *graph_text(struct graph *g, const char *fmt, ...)
{
	char *text, *copy;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		pd_mem_exhausted(0);
	va_end(ap);
	copy = pd_arena_take(&g->constants.arena, strlen(text) + 1, 1);
	strcpy(copy, text);
	free(text);
	return copy;
}

int graph_error(const struct pd_onnx_node *node, struct pd_error *err, const char *fmt, ...)
{
	char text[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return pd_error_input(err, "%.100s (%.40s%s%.100s): %s", node->outputs ? node->output[0] : node->name,
			      node->op, *node->scope ? " of " : "", node->scope, text);
}

int graph_scaled_view(struct graph *g, const struct pd_onnx_node *node, size_t i, const struct view **view_p,
		      struct pd_error *err)
{
	struct value *value = graph_in(g, node, i);
	struct view *made;

	if (!value)
		return graph_error(node, err, "expected input %zu, found none", i);
	*view_p = value->view;
	if (value->view)
		return 0;
	if (value->why)
		return pd_error_input(err, "%s", value->why);
	if (!value->constant)
		return graph_error(node, err, "computes with %.100s, which cannot be read", value->name);
	made = pd_arena_take(&g->constants.arena, 1, sizeof(*made));
	if (layer_of_constant(g, node, value, made, err) < 0)
		return -1;
	*view_p = value->view = made;
	return 0;
}

int graph_view(struct graph *g, const struct pd_onnx_node *node, size_t i, const struct view **view_p,
	       struct pd_error *err)
{
	struct value *value = graph_in(g, node, i);
	struct view *plain;

	if (graph_scaled_view(g, node, i, view_p, err) < 0)
		return -1;
	if (!(*view_p)->scaled)
		return 0;
	plain = pd_arena_take(&g->constants.arena, 1, sizeof(*plain));
	if (place_plain(g, *view_p, value->node ? value->node : node, plain, err) < 0)
		return -1;
	*view_p = value->view = plain;
	return 0;
}

int graph_set(struct graph *g, const struct pd_onnx_node *node, const struct view *view)
{
	struct value *value = graph_find(g, node->output[0]);
	struct view *copy = pd_arena_take(&g->constants.arena, 1, sizeof(*copy));

	*copy = *view;
	value->view = copy;
	return 0;
}

struct pd_onnx_tensor *graph_parameter(const struct graph *g, const struct view *view)
{
	return view->scaled ? NULL : g->layers[view->base].tensor;
}
