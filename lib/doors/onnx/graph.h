/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to this folder: a graph of ONNX that becomes layers.  Nodes are translated in their order.  One that
 * cannot be leaves its output without a view, with the reason, which is told only if the network's output
 * needs it: what is left of a pattern that was found further down does not matter, nor do the layers that
 * nobody uses then.
 */
#pragma once

#include "base/json.h"
#include "doors/onnx/array.h"
#include "doors/onnx/attribute.h"
#include "doors/onnx/view.h"

struct value {
	const char *name;
	const struct pd_onnx_node *node;        /* what makes it, or NULL */
	struct pd_onnx_tensor *tensor;          /* an initializer, or NULL */
	const struct pd_onnx_value *known;      /* its type and shape, or NULL */
	int uses;                               /* how many inputs of nodes, and outputs of the graph, it is */
	int folded;                             /* of these nodes, how many are computed */
	struct array *constant;           /* computed, or NULL */
	const struct view *view;                /* of a layer, an input or a parameter, or NULL */
	const char *why;                        /* there is neither: the reason */
	bool empty;                             /* it has no elements */
	const struct mask *mask;                /* what it is as a mask of attention, once that is known */
	const struct relative *relative;        /* what it is as rows of a bias of attention, once that is known */
	const struct rotation *rotation;        /* what it is as the cosine of rotary positions */
};

/* What the network's input, or a layer, makes of one sample. */
struct layer {
	const char *kind;               /* NULL: an input, or a parameter that is no layer yet */
	const char *own;                /* its name, by a parameter that it has; NULL */
	const struct pd_onnx_node *node;        /* whose scope it has */
	int inputs, input[8];
	int *more;                      /* further inputs (concat), from the ninth on, or NULL */
	json_t *attributes, *names;     /* members to be; NULL: none */
	int shares;                     /* -1 */
	struct extent sample;
	bool whole;                     /* its elements are integers */
	struct pd_onnx_tensor *tensor;  /* of a parameter */
	json_t *init;                   /* how parameters begin, or NULL */
	const struct array *numbers;    /* of a constant: in whose order its weight begins, or NULL */
	bool owned;                     /* it has a parameter */
	bool frozen;                    /* its parameters were none in PyTorch */
	const char *wrong;              /* why its parameters cannot be what they are to be, or NULL */
	int as_layer;                   /* of a parameter: its layer; -1: there is none */
	const char *name;               /* in the document */
	bool live;
	int placed;                     /* the last of the placements of its output; -1 */
};

/* A parameter that a layer has. */
struct owner {
	const struct pd_onnx_tensor *tensor;
	int layer;
	bool turned;                    /* its axes are in each other's place */
};

/* A view that has become a layer. */
struct placement {
	struct view view;
	struct extent sample;
	int layer, before;
};

struct graph {
	struct pd_onnx *onnx;
	const char *frozen;             /* names of what is to be frozen, or NULL */
	struct constants constants;
	int64_t batch;
	struct value *values;           /* in the order of their names */
	size_t value_count;
	struct layer *layers;
	struct owner *owners;
	struct placement *placements;
	int layer_count, owner_count, placement_count;
	size_t layer_room, owner_room, placement_room;
	int first_input;                /* a layer's number, for parameters that are layers */
};

#define NOT_THIS 1                      /* a translation: this is no such pattern */

/* Returns the value of that name, or NULL. */
struct value *graph_find(const struct graph *g, const char *name);
/* Input i of a node, or NULL: it has none. */
struct value *graph_in(const struct graph *g, const struct pd_onnx_node *node, size_t i);
/* The constant that it is, or NULL. */
const struct array *graph_constant(const struct graph *g, const struct pd_onnx_node *node, size_t i);
/* Is input i a constant in which all are this number? */
bool graph_constant_is(const struct graph *g, const struct pd_onnx_node *node, size_t i, double number);
/* A text that lives as long as the graph. */
const char *graph_text(struct graph *g, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Fills err with "NODE (OP): MESSAGE" and returns -1. */
int graph_error(const struct pd_onnx_node *node, struct pd_error *err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/*
 * Sets *view_p to input i of a node; where it is scaled a layer computes it.  Errors: it could not be
 * translated.
 */
int graph_view(struct graph *g, const struct pd_onnx_node *node, size_t i, const struct view **view_p,
	       struct pd_error *err);
/* The same, but scaled as it may be: for nodes that hand it on, and for attention. */
int graph_scaled_view(struct graph *g, const struct pd_onnx_node *node, size_t i, const struct view **view_p,
		      struct pd_error *err);
/* Gives the first output of a node a view. */
int graph_set(struct graph *g, const struct pd_onnx_node *node, const struct view *view);
/* Is it the view of a parameter as it is, that is no layer, and which? */
struct pd_onnx_tensor *graph_parameter(const struct graph *g, const struct view *view);

/* In layers.c.  Adds a layer; attributes are taken.  Returns its number. */
int layer_add(struct graph *g, const char *kind, const struct pd_onnx_node *node, int inputs,
	      const int *input, const struct extent *sample, json_t *attributes);
int layer_add_one(struct graph *g, const char *kind, const struct pd_onnx_node *node, int input,
		  const struct extent *sample, json_t *attributes);
/*
 * Says that parameter `parameter` of a layer is a tensor of the file, `more` (taken, or NULL) how it differs;
 * the first one names the layer.  Where another layer has it already the layer shares that layer's.
 */
void layer_parameter(struct graph *g, int layer, const char *parameter, const struct pd_onnx_tensor *tensor,
		     json_t *more);
/* Does no update move a tensor, so that a layer that has it is frozen? */
bool layer_keeps(const struct pd_onnx_tensor *tensor);
/* Returns the layer that has a tensor as its parameter, or -1. */
int layer_owner(const struct graph *g, const struct pd_onnx_tensor *tensor);
/* Makes a parameter's view one of a layer of its own, which has it in this shape if it has none yet. */
void layer_of_parameter(struct graph *g, struct view *view, const struct pd_onnx_node *node,
			const struct extent *shape);
/*
 * Makes a view of a constant, one of a layer that has its numbers; axes along which they are the same are there once.
 * Errors: there are more of them than a document has, or some are not finite.
 */
int layer_of_constant(struct graph *g, const struct pd_onnx_node *node, const struct value *value, struct view *view,
		      struct pd_error *err);
/* Marks what an output needs, names it, and returns arrays of inputs and layers. */
void layers_finish(struct graph *g, json_t **inputs_p, json_t **layers_p);
/* Marks what a layer needs, itself included. */
void layer_needed(struct graph *g, int layer);

/*
 * In fold_graph.c.  Computes a node if all of its inputs are constants; true: it is computed.  kept: or come of these
 * and of tensors that no update moves.
 */
bool graph_fold(struct graph *g, const struct pd_onnx_node *node);
bool graph_fold_kept(struct graph *g, const struct pd_onnx_node *node);
/*
 * Computes a value in `room` from all that it comes of, parameters too, with an input of the graph set to an
 * array (both may be NULL).  NULL: it comes of something else, or is too large.
 */
const struct array *graph_compute(struct graph *g, struct constants *room, const struct value *value,
				  const struct value *input, const struct array *is);

/* In translate.c.  Translates all nodes. */
void graph_translate(struct graph *g);
