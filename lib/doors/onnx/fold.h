/* SPDX-License-Identifier: Apache-2.0 */
/* Private to this folder: what nodes make of constants. */
#pragma once

#include "doors/onnx/array.h"

/* A node and its inputs; those that are left out are NULL. */
struct fold {
	struct constants *constants;
	const struct pd_onnx *onnx;
	const struct pd_onnx_node *node;
	size_t inputs;
	const struct array *const *in;
	bool whole, truth;              /* CastLike: what its second input's numbers are */
	bool single;                    /* the output is f32: real numbers are rounded to it */
};

/* Can a node of this operator be computed where its inputs are constants? */
bool fold_knows(const char *op);
/* Returns its first output; NULL: it is not computed, or is too large. */
struct array *fold(const struct fold *fold);
/* Reads a tensor of the file; NULL: it cannot be read, or is too large. */
struct array *fold_tensor(struct constants *constants, const struct pd_onnx *onnx,
			  struct pd_onnx_tensor *tensor);
