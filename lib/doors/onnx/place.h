/* SPDX-License-Identifier: Apache-2.0 */
/* Private to this folder: what a layer needs of views, made by layers that move axes. */
#pragma once

#include "doors/onnx/graph.h"

/*
 * Makes a view a layer's output: *base_p, whose sample has the view's axes in their order, of which those that
 * count samples alone are left out, and repetitions have size 1.  Errors: a view that would take more axes
 * than layers have.
 */
int place(struct graph *g, const struct view *view, const struct pd_onnx_node *node, int *base_p,
	  struct extent *sample_p, struct pd_error *err);
/* The same for input i of a node. */
int place_in(struct graph *g, const struct pd_onnx_node *node, size_t i, const struct view **view_p,
	     int *base_p, struct extent *sample_p, struct pd_error *err);
/*
 * Makes a layer, where a view is scaled, so that *out shows the same and is not.  Its elements stay where they lie as
 * long as all are seen, once each.
 */
int place_plain(struct graph *g, const struct view *view, const struct pd_onnx_node *node, struct view *out,
		struct pd_error *err);
/* Does a view show each element of what it is of once? */
bool place_shows_all(const struct graph *g, const struct view *view);
/* The axis of the sample that an axis of the view becomes; -1: the samples'. */
int place_axis(const struct view *view, int axis);
