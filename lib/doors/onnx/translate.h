/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to this folder: the translations of rows.def.  Each returns 0; NOT_THIS, where the node is something
 * else; or -1 with the reason.
 */
#pragma once

#include "doors/onnx/number.h"
#include "doors/onnx/place.h"

#define ROW(op, function) \
	int translate_##function(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err);
#include "doors/onnx/rows.def"
#undef ROW

/*
 * Adds a layer that computes element by element, or row by row, of input 0 of a node, and gives its output the
 * order of the input's axes.  Attributes are taken.  Sets *layer_p unless it is NULL.
 */
int translate_rows(struct graph *g, const struct pd_onnx_node *node, const struct view *view, const char *kind,
		   json_t *attributes, int *layer_p, struct pd_error *err);
/* Element by element: axes need not be moved for it. */
int translate_elements(struct graph *g, const struct pd_onnx_node *node, const struct view *view,
		       const char *kind, json_t *attributes, struct pd_error *err);
/* Sums or multiplies views, the smaller repeated. */
int translate_pair(struct graph *g, const struct pd_onnx_node *node, const char *kind, const struct view *a,
		   const struct view *b, struct pd_error *err);
/* The parameter that is all of input i, in its own shape, or NULL. */
const struct pd_onnx_tensor *translate_whole(const struct graph *g, const struct pd_onnx_node *node, size_t i);

/* Is a HardSigmoid x / 6 + 0.5, as PyTorch has it? */
bool translate_sixth(const struct pd_onnx_node *node);

/*
 * In pattern.c.  Values are looked at through nodes that change nothing.  pattern_made() returns the node of
 * that operator that made a value, or NULL.
 */
const struct value *pattern_origin(const struct graph *g, const struct value *value);
const struct pd_onnx_node *pattern_made(const struct graph *g, const struct value *value, const char *op);
/* Input i of a node, through such nodes. */
const struct value *pattern_in(const struct graph *g, const struct pd_onnx_node *node, size_t i);
