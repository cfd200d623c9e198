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

#define PD_DNN_ENGINES 16       /* of one way that are looked at: many are not deterministic */

/* Descriptors that live and go together. */
struct pd_dnn_bag {
	cudnnBackendDescriptor_t all[PD_ENGINE_KNOBS + 16];
	int count;
};

/* What one way computes: forward with bias and relu. */
struct pd_dnn_graph {
	struct pd_dnn_bag bag;
	cudnnBackendDescriptor_t graph;         /* NULL: there is none */
	bool bias;
};

/* One engine that does, ready to run. */
struct pd_dnn_engine {
	struct pd_dnn_bag bag;
	cudnnBackendDescriptor_t plan;          /* NULL: there is none */
	bool bias;
	size_t workspace;
	struct pd_engine_name name;
};

/* Device memory; of x, w and y one is made of the others.  w as it is made: f32. */
struct pd_dnn_data {
	const void *x, *w, *y, *bias;
	void *workspace;
};

/* Are there engines for this net at all?  Where tensor cores do the work. */
bool pd_dnn_wanted(const struct pd_compiled_layer *l);
int pd_dnn_graph_open(struct pd_dnn_graph *g, const struct pd_compiled_layer *l, int way,
		      bool relu);
void pd_dnn_graph_close(struct pd_dnn_graph *g);
/* Those that the heuristics propose, best first, each once: how many. */
int pd_dnn_propose(const struct pd_dnn_graph *g, struct pd_engine_name names[PD_DNN_ENGINES]);
/* The engine of that name, with its plan made; not one that is not deterministic, rounds what it
 * reads or what it adds up, or wants too much workspace.  The graph must outlive it. */
int pd_dnn_engine_open(struct pd_dnn_engine *e, const struct pd_dnn_graph *g, cudnnHandle_t dnn,
		       const struct pd_engine_name *name);
void pd_dnn_engine_close(struct pd_dnn_engine *e);
/* Queued on the handle's stream. */
cudnnStatus_t pd_dnn_run(const struct pd_dnn_engine *e, cudnnHandle_t dnn,
			 const struct pd_dnn_data *data);

#endif
