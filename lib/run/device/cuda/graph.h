/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a pass comes for the second time, its work on a CUDA stream is captured as a graph; from
 * then on the graph is launched instead, and the GPU does not wait for the host between small
 * kernels.  Kernels and their order stay the same, and so do the bits.  An update, a forward and a
 * backward that come together (pd_graph_joint()) are one graph.  Events that the graph
 * records say when the first two are done; if the graph is launched again before somebody looks,
 * they say it later.
 *
 * A graph contains its kernels' arguments.  Numbers that change from minibatch to minibatch while
 * addresses stay (first sample, valid samples, where the loss goes, the learning rate) therefore
 * lie in device memory, in struct pd_pass_numbers, which a kernel sets before.
 *
 * Instantiating a graph may have to wait until the GPU is idle.  A net that has been rehearsed
 * (run/device/rehearse.h) is settled: for each kind of pass that was seen, as many graphs are
 * instantiated as passes have combinations of buffers, and at most PD_CUDA_SPARES, since each takes
 * memory of the GPU.  From then on a captured graph only updates one of those.
 *
 * A pass is queued kernel by kernel with PD_CUDA_GRAPHS=no, where capturing fails (a message says
 * so once), for passes over some of a stage's layers, beyond the first PD_GRAPH_CACHE_KEYS passes
 * of a net, and, in a settled net, where no graph of its kind is left.
 */
#pragma once

#include "run/device/cuda/cuda.h"

#define PD_CUDA_SPARES 64
#define PD_CUDA_JOB 3

struct pd_cuda_graphs;

/* A job is a forward or a backward, or both together, with an update before them or without. */
struct pd_cuda_job {
	struct pd_compiled *net;
	int count;
	const struct pd_work *works[PD_CUDA_JOB];
	/* these say when each work but the last is done; a graph puts its own events here */
	cudaEvent_t ends[PD_CUDA_JOB];
};

/* Returns the number of the forward, or of the backward if there is no forward. */
static inline int pd_cuda_job_forward(const struct pd_cuda_job *job)
{
	return job->count > 1 ? job->count - 2 : 0;
}

/* Returns NULL where no graphs are wanted. */
struct pd_cuda_graphs *pd_cuda_graphs_new(void);
void pd_cuda_graphs_free(struct pd_cuda_graphs *graphs);
/* Queues the job on the engine's stream: 0, or -1 with *err. */
int pd_cuda_graphs_run(struct pd_cuda_job *job, struct pd_error *err);
/*
 * Settles the graphs (see above), with `turns` for each kind of pass: nothing is instantiated
 * afterwards.  Nobody else may use stream meanwhile.  0, or -1.
 */
int pd_cuda_graphs_settle(struct pd_cuda_graphs *graphs, int64_t turns, cudaStream_t stream,
			  struct pd_error *err);
