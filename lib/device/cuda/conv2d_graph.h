/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions by cuDNN's graph API: conv2d_graph.c, and the engines for them: conv2d_engine.c.
 * What it does not offer is no error: -1, and the caller takes the library's other calls.
 */
#ifndef PD_DEVICE_CUDA_CONV2D_GRAPH_H
#define PD_DEVICE_CUDA_CONV2D_GRAPH_H

#include "device/cuda/cuda.h"
#include "device/cuda/engine_name.h"

#include <cudnn_backend.h>

#define PD_DNN_ENGINES 16       /* of one way that are looked at */

/* Descriptors that live and go together. */
struct pd_dnn_bag {
	cudnnBackendDescriptor_t all[PD_ENGINE_KNOBS + 16];
	int count;
};

/* What one way computes: forward with the bias, where there is one, and then with the relu. */
struct pd_dnn_graph {
	struct pd_dnn_bag bag;
	cudnnBackendDescriptor_t graph;         /* NULL: there is none */
	bool bias, relu;                        /* it does that, too */
	bool exact;                             /* f32 that may not be rounded to TF32 */
};

/* One engine that does, ready to run. */
struct pd_dnn_engine {
	struct pd_dnn_bag bag;
	cudnnBackendDescriptor_t plan;          /* NULL: there is none */
	bool bias, relu;                        /* as in the graph */
	size_t workspace;
	struct pd_engine_name name;
};

/* Device memory, all of it of the net's type; of x, w and y one is made of the others. */
struct pd_dnn_data {
	const void *x, *w, *y, *bias;
	void *workspace;
};

/* May engines be taken at all?  PD_CUDA_ENGINES=no, for comparisons: no. */
bool pd_dnn_allowed(void);
/* Are they worth timing beside the algorithms?  Where tensor cores do the work. */
bool pd_dnn_worth_timing(const struct pd_compiled_layer *l);
int pd_dnn_graph_open(struct pd_dnn_graph *g, const struct pd_compiled_layer *l, int way,
		      bool relu);
void pd_dnn_graph_close(struct pd_dnn_graph *g);
/* Those that the heuristics propose, best first, each once, and behind them those that the library
 * keeps for when nothing else does: how many. */
int pd_dnn_propose(const struct pd_dnn_graph *g, struct pd_engine_name names[PD_DNN_ENGINES]);
/* The engine of that name, with its plan made; not one that is not deterministic, rounds what it
 * reads or what it adds up, or wants too much workspace: -1.  The graph must outlive it. */
int pd_dnn_engine_open(struct pd_dnn_engine *e, const struct pd_dnn_graph *g, cudnnHandle_t dnn,
		       const struct pd_engine_name *name);
void pd_dnn_engine_close(struct pd_dnn_engine *e);
/* Queued on the handle's stream. */
cudnnStatus_t pd_dnn_run(const struct pd_dnn_engine *e, cudnnHandle_t dnn,
			 const struct pd_dnn_data *data);

#endif
