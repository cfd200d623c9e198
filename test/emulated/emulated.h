/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GPU emulated by the processor, for tests of lib/run/device/cuda on machines without one
 * (contrib/emulate-cuda.sh).  It behaves as badly as a GPU may.  Work on a stream is done as late as
 * possible, when somebody asks for an event behind it, or waits; so streams are in no order except that
 * of events (runtime.cc).  A warp of a block runs as far as it can before another begins, in an order
 * that changes from block to block, and so do its threads (grid.cc).  Calls that CUDA refuses are refused,
 * and undefined behaviour ends the program with a message.  Data flow and memory are as on a GPU; the
 * libraries' bits and times are not.
 */
#pragma once

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
#undef __launch_bounds__
#define __global__
#define __device__
#define __host__
#define __shared__ static thread_local
#define __launch_bounds__(...)

struct emulated_index {
	unsigned x, y, z;
};
extern thread_local emulated_index threadIdx, blockIdx, blockDim, gridDim;

/* Wait until all threads of the block, or of the warp, have called it. */
void emulated_block_barrier(void);
void emulated_warp_barrier(void);
#define __syncthreads() emulated_block_barrier()
#define __syncwarp() emulated_warp_barrier()

/* Defines the functions of a library that describe a status, and create and destroy its handle. */
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

/* Prints an error, and ends the program. */
[[noreturn]] void emulated_bug(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Sets the status that cudaGetLastError() returns, unless it is a success; returns the status. */
cudaError_t emulated_say(cudaError_t status);

/* Queues work on the stream, or adds it to the graph that the stream is captured into. */
void emulated_queue(cudaStream_t stream, std::function<void()> work);
/* Invalidates the capture of this thread, if there is one; returns whether there is. */
bool emulated_uncapturable(void);
/* Does the work of all streams, as far as it waits for nothing. */
void emulated_run_all(void);

/* --- grid.cc */
/* Returns the error with which CUDA refuses to launch such a kernel, or cudaSuccess. */
cudaError_t emulated_launchable(dim3 grid, dim3 block, size_t shared_bytes);
/* Runs a kernel's grid; with `barrier` its threads meet, so that each gets a stack of its own. */
void emulated_grid(dim3 grid, dim3 block, bool barrier, const std::function<void()> &thread);

/* --- memory.cc */
enum emulated_memory { EMULATED_NOWHERE, EMULATED_DEVICE, EMULATED_PINNED, EMULATED_PAGEABLE };
/* Tells what memory an address is in; PAGEABLE is other memory of this process. */
enum emulated_memory emulated_where(const void *address);
/* Ends the program if an argument of a kernel has an address that no GPU reaches. */
void emulated_check_argument(const void *argument, size_t bytes);
/* Ends the program if a library's array is not in memory that a GPU reaches, or is not so aligned. */
void emulated_check_array(const void *array, size_t alignment, const char *what);

/*
 * Count operations for which a real GPU may have to be idle: memory is allocated, a graph instantiated,
 * an event or a stream made, or this kernel is launched for the first time.
 */
void emulated_count_first(void);
void emulated_count_kernel(void *kernel);
/* Returns how many operations emulated_count_*() have counted; tests look this function up by name. */
extern "C" int emulated_firsts(void);
/*
 * Return how many kernels have run, those of graphs included, how many graphs were launched, and how many
 * are instantiated now.
 */
extern "C" int emulated_kernels(void);
extern "C" int emulated_launches(void);
extern "C" int emulated_graphs(void);
/* Holds a stream, whose work is not done until another, or NULL, is held. */
extern "C" void emulated_hold(void *stream);

/* Does kernel<<<grid, block, shared, stream>>>(arguments); bin/nvcc replaces such a launch by this call. */
template <typename Kernel, typename... Arguments>
void emulated_launch(bool barrier, dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
		     Kernel kernel, Arguments... arguments)
{
	std::tuple<Arguments...> values(arguments...);

	if (emulated_say(emulated_launchable(grid, block, shared_bytes)) != cudaSuccess)
		return;
	(__builtin_clear_padding(&arguments), ...);     /* padding may have part of an old address */
	(emulated_check_argument(&arguments, sizeof(arguments)), ...);
	emulated_count_kernel((void *)kernel);
	emulated_queue(stream, [=]() {
		emulated_grid(grid, block, barrier, [&]() { std::apply(kernel, values); });
	});
}
