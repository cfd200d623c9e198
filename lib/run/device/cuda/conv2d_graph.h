/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions by cuDNN's graph API: conv2d_graph.c makes graphs, conv2d_engine.c finds engines for
 * them.  What cuDNN does not offer is no error: functions return -1, and the caller uses the
 * library's other calls.
 */
#pragma once

#include "run/device/cuda/cuda.h"
#include "run/device/cuda/engine_name.h"

#include <cudnn_backend.h>

/*
 * A conv_transpose2d is the convolution that makes its input of its output: it runs forward as the gradient
 * of that one's input, and the other way round.  x and y are what the convolution reads and makes.
 */
static inline const struct pd_shape *pd_cuda_conv_x(const struct pd_compiled_layer *l)
{
	return l->layer->transposed ? &l->layer->output : l->in_shape[0];
}

static inline const struct pd_shape *pd_cuda_conv_y(const struct pd_compiled_layer *l)
{
	return l->layer->transposed ? l->in_shape[0] : &l->layer->output;
}

/* Returns whether the convolution adds the layer's bias. */
static inline bool pd_cuda_conv_biased(const struct pd_compiled_layer *l)
{
	return l->layer->bias && !l->layer->transposed;
}

/*
 * Returns whether this way of the convolution is added to what is in its result: a conv_transpose2d's
 * output, which has the bias in it, so that the sum of both is rounded once.
 */
static inline bool pd_cuda_conv_adds(const struct pd_compiled_layer *l, int way)
{
	return way == PD_BACKWARD_DATA && l->layer->transposed && l->layer->bias;
}

/* Returns which way of the convolution is this one of the layer. */
static inline int pd_cuda_conv_way(const struct pd_compiled_layer *l, int way)
{
	return !l->layer->transposed || way == PD_BACKWARD_WEIGHTS ? way
		: way == PD_FORWARD ? PD_BACKWARD_DATA : PD_FORWARD;
}

#define PD_DNN_ENGINES 16       /* the most engines of a way */

/* A bag holds descriptors that are destroyed together. */
struct pd_dnn_bag {
	cudnnBackendDescriptor_t all[PD_ENGINE_KNOBS + 16];
	int count;
};

/*
 * Returns whether the convolution has its channels last; lines, planes of height 1, and grouped
 * ones are plain.
 */
static inline bool pd_cuda_conv_last(const struct pd_compiled_layer *l)
{
	return pd_cuda_engine(l)->last && l->in_shape[0]->dims == 3 && l->layer->groups == 1;
}

/* The graph of one way: forward includes the bias, if there is one, and then the relu. */
struct pd_dnn_graph {
	struct pd_dnn_bag bag;
	cudnnBackendDescriptor_t graph;         /* NULL: none */
	bool bias, relu;                        /* whether the graph includes it */
	bool exact;                             /* f32 may not be rounded to TF32 */
};

/* An engine for a graph, ready to run. */
struct pd_dnn_engine {
	struct pd_dnn_bag bag;
	cudnnBackendDescriptor_t plan;          /* NULL: none */
	bool bias, relu;                        /* copied from the graph */
	size_t workspace;
	struct pd_engine_name name;
};

/* Device memory, all in the net's dtype; one of x, w and y is computed from the others. */
struct pd_dnn_data {
	const void *x, *w, *y, *bias;
	void *workspace;
};

/* Returns false if PD_CUDA_ENGINES=no forbids engines, for comparisons. */
bool pd_dnn_allowed(void);
/* Returns whether engines are worth timing beside algorithms: where tensor cores do the work. */
bool pd_dnn_worth_timing(const struct pd_compiled_layer *l);
int pd_dnn_graph_open(struct pd_dnn_graph *g, const struct pd_compiled_layer *l, int way,
		      bool relu);
void pd_dnn_graph_close(struct pd_dnn_graph *g);
/*
 * Lists the engines that the heuristics propose, best first, each once, and then the library's
 * fallback engines; returns how many.
 */
int pd_dnn_propose(const struct pd_dnn_graph *g, struct pd_engine_name names[PD_DNN_ENGINES]);
/*
 * Opens the engine of that name and makes its plan.  Returns -1 for an engine that is not
 * deterministic, rounds its inputs or sums, or wants too much workspace.  The graph must outlive
 * it.
 */
int pd_dnn_engine_open(struct pd_dnn_engine *e, const struct pd_dnn_graph *g, cudnnHandle_t dnn,
		       const struct pd_engine_name *name);
void pd_dnn_engine_close(struct pd_dnn_engine *e);
/* Queues the engine on the handle's stream. */
cudnnStatus_t pd_dnn_run(const struct pd_dnn_engine *e, cudnnHandle_t dnn,
			 const struct pd_dnn_data *data);
