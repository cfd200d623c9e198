/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a GPU does, done by the processor: streams run their work at once, in the thread that
 * queues it; captured work is kept and run when its graph is launched; kernels are loops over
 * blocks and threads, and a thread that comes to a barrier lets the next one run.  For tests of
 * lib/device/cuda on machines without a GPU (contrib/emulate-cuda.sh): what is computed from
 * what, and where it lies, is that of a GPU; the libraries' bits, times and limits are not.
 */
#ifndef PD_TEST_EMULATED_H
#define PD_TEST_EMULATED_H

#include <cuda_runtime_api.h>

#include <functional>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <tuple>

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#define __global__
#define __device__
#define __host__
#define __shared__ static thread_local

struct emulated_index {
	unsigned x, y, z;
};
extern thread_local emulated_index threadIdx, blockIdx, blockDim, gridDim;

void emulated_barrier(void);
#define __syncthreads() emulated_barrier()

/* What says in words how a call went, and makes and ends what a library is known by. */
#define EMULATED_LIBRARY(Status, success, words, create, destroy, Handle, Context) \
	const char *words(Status status) \
	{ \
		return status == success ? "success" : "an emulated failure"; \
	} \
	Status create(Handle *handle) \
	{ \
		*handle = new Context(); \
		return success; \
	} \
	Status destroy(Handle handle) \
	{ \
		delete handle; \
		return success; \
	}

/* Runs it, or keeps it in the graph that the stream is being captured in. */
void emulated_queue(cudaStream_t stream, std::function<void()> work);
/* barrier: threads meet in it, so that each needs a stack of its own. */
void emulated_grid(dim3 grid, dim3 block, bool barrier, const std::function<void()> &thread);

/*
 * What a real GPU may have to be idle for was done once more: memory was allocated, a graph
 * instantiated, an event or a stream made, or this kernel launched for the first time.
 */
void emulated_count_first(void);
void emulated_count_kernel(void *kernel);
/* How often so far.  For tests, which look for it by name. */
extern "C" int emulated_firsts(void);
/* For tests, too: how many kernels have run, and those of graphs; how many graphs. */
extern "C" int emulated_kernels(void);
extern "C" int emulated_launches(void);
/* For tests, too: events on that stream are not done until another, or NULL, is held. */
extern "C" void emulated_hold(void *stream);

/* kernel<<<grid, block, 0, stream>>>(arguments); bin/nvcc makes this of that. */
template <typename Kernel, typename... Arguments>
void emulated_launch(bool barrier, dim3 grid, dim3 block, cudaStream_t stream, Kernel kernel,
		     Arguments... arguments)
{
	std::tuple<Arguments...> values(arguments...);

	emulated_count_kernel((void *)kernel);
	emulated_queue(stream, [=]() {
		emulated_grid(grid, block, barrier, [&]() { std::apply(kernel, values); });
	});
}

#endif
