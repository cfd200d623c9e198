/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a pass puts on a CUDA stream, captured as a graph when the same pass comes for the
 * second time, and launched as one from then on: the GPU does not wait for the host between
 * small kernels.  The kernels and their order stay the same, so do the bits.  An update, a forward
 * and a backward that come together (pd_device_ops.net.iterate) are one graph.  Events that the
 * graph records say when the first two are done; if it is launched again before, they say it later.
 *
 * A graph has its kernels' arguments in it.  What changes from minibatch to minibatch while the
 * addresses stay (first sample, samples that count, where the loss goes, the learning rate)
 * therefore lies in device memory, struct pd_pass_numbers, which a kernel of its own sets before.
 *
 * To instantiate a graph may have to wait until the GPU is idle.  A net that has been rehearsed
 * (device/rehearse.h) is settled: for each kind of pass that was seen, as many graphs are
 * instantiated as may be used, and from then on what is captured only updates one of those.
 *
 * PD_CUDA_GRAPHS=no in the environment: every pass is queued kernel by kernel.  The same where
 * capturing fails, which is said once, of passes over some of a stage's layers, and of those
 * beyond the first PD_GRAPH_CACHE_KEYS of a net; in one that is settled, of each kind beyond the
 * first PD_CUDA_SPARES.
 */
#ifndef PD_DEVICE_CUDA_GRAPH_H
#define PD_DEVICE_CUDA_GRAPH_H

#include "device/cuda/cuda.h"

#define PD_CUDA_SPARES 64
#define PD_CUDA_JOB 3

struct pd_cuda_graphs;

/* A forward or a backward; or an update, where there is one, a forward and a backward. */
struct pd_cuda_job {
	struct pd_compiled *net;
	int count;
	const struct pd_work *works[PD_CUDA_JOB];
	/* These events say when each work but the last is done.  A graph puts its own here. */
	cudaEvent_t ends[PD_CUDA_JOB];
};

/* Returns the number of the forward, or of the backward if there is no forward. */
static inline int pd_cuda_job_forward(const struct pd_cuda_job *job)
{
	return job->count > 1 ? job->count - 2 : 0;
}

/* NULL: none are wanted. */
struct pd_cuda_graphs *pd_cuda_graphs_new(void);
void pd_cuda_graphs_free(struct pd_cuda_graphs *graphs);
/* Queues the job on the engine's stream: 0, or -1 with *err. */
int pd_cuda_graphs_run(struct pd_cuda_job *job, struct pd_error *err);
/* Nothing is instantiated from now on; see above.  stream: nobody else's meanwhile.  0, or -1. */
int pd_cuda_graphs_settle(struct pd_cuda_graphs *graphs, cudaStream_t stream,
			  struct pd_error *err);

#endif
