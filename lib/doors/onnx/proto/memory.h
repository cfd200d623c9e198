/* SPDX-License-Identifier: Apache-2.0 */
/* Private to this folder: what an open ONNX file holds, and how much of it a file may make. */
#pragma once

#include "base/arena.h"
#include "base/map.h"
#include "doors/onnx/proto/onnx.h"
#include "doors/onnx/proto/onnx.pb-c.h"

/* A file beside the model. */
struct pd_onnx_beside {
	const char *location;
	struct pd_file_map map;
	struct pd_onnx_beside *next;
};

struct pd_onnx_memory {
	Onnx__ModelProto *model;
	ProtobufCAllocator allocator;   /* its data is this */
	size_t bytes, most_bytes;       /* of the model: now, and at most */
	const char *stack;              /* where it was when reading began */
	bool deep, large;               /* why it could not be read */
	struct pd_arena arena;          /* the plain structs */
	struct pd_onnx_beside *beside;
};

/* In graph.c: makes the plain structs of memory->model. */
int pd_onnx_graph(struct pd_onnx *onnx, struct pd_error *err);
/* In tensor.c: makes one of a tensor's. */
int pd_onnx_tensor_of(const struct pd_onnx *onnx, const Onnx__TensorProto *from,
		      struct pd_onnx_tensor *tensor, struct pd_error *err);
/* In scope.c: the scope and padding of a node, from metadata that older definitions do not have. */
void pd_onnx_scope(struct pd_onnx *onnx, const Onnx__NodeProto *from, struct pd_onnx_node *node);
/* In scope.c: what the tensor of that value was in PyTorch. */
enum pd_onnx_role pd_onnx_role_of(struct pd_onnx *onnx, const Onnx__ValueInfoProto *from);
