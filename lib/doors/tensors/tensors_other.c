/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors in a checkpoint of ours, and in an ONNX file. */
#include "doors/tensors/tensors.h"

#include "base/mem.h"
#include "checkpoint/checkpoint.h"
#include "doors/onnx/proto/onnx.h"

#include <stdlib.h>
#include <string.h>

/* ---- a checkpoint ---- */

static size_t list_checkpoint(void *of, const struct pd_tensor ***list_p)
{
	return pd_checkpoint_list(of, list_p);
}

static int read_checkpoint(void *of, const struct pd_tensor *tensor, float *out, struct pd_error *err)
{
	return pd_checkpoint_read(of, tensor->name, -1, tensor->elements, out, err);
}

static void close_checkpoint(void *of)
{
	pd_checkpoint_close(of);
}

static const struct pd_tensors_ops checkpoint_ops = {
	.ours = true, .list = list_checkpoint, .read_all = read_checkpoint, .close = close_checkpoint,
};

const struct pd_tensors_ops *pd_tensors_of_checkpoint(const char *path, void **of_p, struct pd_error *err)
{
	*of_p = pd_checkpoint_open_path(path, err);
	return *of_p ? &checkpoint_ops : NULL;
}

/* ---- an ONNX file ---- */

struct graph {
	struct pd_onnx *onnx;
	struct pd_tensor *tensors;      /* of onnx->tensor, in its order */
};

static size_t list_graph(void *of, const struct pd_tensor ***list_p)
{
	const struct graph *graph = of;

	*list_p = pd_calloc(graph->onnx->tensors, sizeof(**list_p));
	for (size_t i = 0; i < graph->onnx->tensors; i++)
		(*list_p)[i] = &graph->tensors[i];
	return graph->onnx->tensors;
}

static int read_graph(void *of, const struct pd_tensor *tensor, float *out, struct pd_error *err)
{
	const struct graph *graph = of;

	return pd_onnx_read(graph->onnx, &graph->onnx->tensor[tensor - graph->tensors], out, err);
}

static void close_graph(void *of)
{
	struct graph *graph = of;

	pd_onnx_close(graph->onnx);
	free(graph->tensors);
	free(graph);
}

static const struct pd_tensors_ops graph_ops = {
	.constants = true, .list = list_graph, .read_all = read_graph, .close = close_graph,
};

const struct pd_tensors_ops *pd_tensors_of_onnx(const char *path, void **of_p, struct pd_error *err)
{
	struct pd_onnx *onnx = pd_onnx_open(path, err);
	struct graph *graph;

	if (!onnx)
		return NULL;
	graph = pd_zalloc(sizeof(*graph));
	graph->onnx = onnx;
	graph->tensors = pd_calloc(onnx->tensors, sizeof(*graph->tensors));
	for (size_t i = 0; i < onnx->tensors; i++) {
		const struct pd_onnx_tensor *from = &onnx->tensor[i];
		struct pd_tensor *to = &graph->tensors[i];

		to->name = (char *)(uintptr_t)from->name;
		to->dtype = pd_onnx_type_name(from->type);
		to->dims = from->dims;
		to->elements = from->elements;
		memcpy(to->size, from->size, sizeof(from->size));
	}
	*of_p = graph;
	return &graph_ops;
}
