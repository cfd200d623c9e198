/* SPDX-License-Identifier: Apache-2.0 */
/* Private to this folder: attributes of nodes, or what they are where they are left out. */
#pragma once

#include "doors/onnx/proto/onnx.h"

#include <string.h>

static inline int64_t integer_of(const struct pd_onnx_node *node, const char *name, int64_t otherwise)
{
	const struct pd_onnx_attribute *found = pd_onnx_attribute(node, name, PD_ONNX_INTEGER);

	return found ? found->integer : otherwise;
}

static inline double number_of(const struct pd_onnx_node *node, const char *name, double otherwise)
{
	const struct pd_onnx_attribute *found = pd_onnx_attribute(node, name, PD_ONNX_NUMBER);

	return found ? (double)found->number : otherwise;
}

static inline const char *text_of(const struct pd_onnx_node *node, const char *name, const char *otherwise)
{
	const struct pd_onnx_attribute *found = pd_onnx_attribute(node, name, PD_ONNX_TEXT);

	return found ? found->text : otherwise;
}

/* Number i of a list, or what it is where there is none. */
static inline int64_t listed(const struct pd_onnx_node *node, const char *name, size_t i, int64_t otherwise)
{
	const struct pd_onnx_attribute *found = pd_onnx_attribute(node, name, PD_ONNX_INTEGERS);

	return found && i < found->count ? found->integers[i] : otherwise;
}

static inline bool is_op(const struct pd_onnx_node *node, const char *op)
{
	return node && strcmp(node->op, op) == 0;
}
