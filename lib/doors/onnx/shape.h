/* SPDX-License-Identifier: Apache-2.0 */
/* Private to this folder: shapes that nodes ask for, whether of constants or of what layers make. */
#pragma once

#include "doors/onnx/array.h"

struct extent {
	int dims;
	int64_t size[PD_ONNX_DIMS];
};

/* The size that Reshape(from, to) means; false: there is none. */
bool extent_reshaped(const struct extent *from, const struct array *to, bool zero_allowed,
		     struct extent *extent_p);
/*
 * The axes that a node names, in its attribute "axes" or as a constant, as flags by axis; of `dims` axes.
 * None named: false, as where one is out of range.
 */
bool extent_axes(const struct pd_onnx_node *node, const struct array *given, int dims,
		 bool chosen[PD_ONNX_DIMS]);
/* A part of each axis. */
struct part {
	int64_t start[PD_ONNX_DIMS], end[PD_ONNX_DIMS], step[PD_ONNX_DIMS];
};
/* What Slice(., starts, ends, axes, steps) leaves; false: the constants do not say.  Perhaps nothing is left. */
bool extent_sliced(const struct extent *from, const struct array *const constants[4], struct part *part_p);
