/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a GPU does, done by the processor, as badly as a GPU may.  Work on a stream is done as late as
 * can be: when somebody asks for an event behind it, or waits; so streams are in no order but that of
 * events (runtime.cc).  A warp of a block runs as far as it can before another begins, in an order that
 * changes from block to block, and so do its threads (grid.cc).  What CUDA refuses is refused, and what
 * it leaves undefined ends the program with a message.  For tests of lib/device/cuda on machines without a
 * GPU (contrib/emulate-cuda.sh): what is computed from what, and where it lies, is that of a GPU; the
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

/* All threads of the block meet, or all of the warp. */
void emulated_block_barrier(void);
void emulated_warp_barrier(void);
#define __syncthreads() emulated_block_barrier()
#define __syncwarp() emulated_warp_barrier()

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

/* Says what is wrong, and ends the program. */
[[noreturn]] void emulated_bug(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Sets what cudaGetLastError() says; returns it. */
cudaError_t emulated_say(cudaError_t status);

/* Puts it on the stream, or into the graph that the stream is being captured in. */
void emulated_queue(cudaStream_t stream, std::function<void()> work);
/* Breaks what this thread is capturing; returns whether it is. */
bool emulated_uncapturable(void);
/* Does all work of all streams, as far as it waits for nothing. */
void emulated_run_all(void);

/* --- grid.cc */
/* Returns why CUDA launches no kernel so. */
cudaError_t emulated_launchable(dim3 grid, dim3 block, size_t shared_bytes);
/* barrier: threads meet in it, so that each needs a stack of its own. */
void emulated_grid(dim3 grid, dim3 block, bool barrier, const std::function<void()> &thread);

/* --- memory.cc */
enum emulated_memory { EMULATED_NOWHERE, EMULATED_DEVICE, EMULATED_PINNED, EMULATED_PAGEABLE };
/* Tells what memory an address is in; PAGEABLE: it is some other of this process. */
enum emulated_memory emulated_where(const void *address);
/* Ends the program if an argument of a kernel has an address that no GPU reaches. */
void emulated_check_argument(const void *argument, size_t bytes);
/* The same of an array that a library is given; it begins at such a multiple. */
void emulated_check_array(const void *array, size_t alignment, const char *what);

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

/* kernel<<<grid, block, shared, stream>>>(arguments); bin/nvcc makes this of that. */
template <typename Kernel, typename... Arguments>
void emulated_launch(bool barrier, dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
		     Kernel kernel, Arguments... arguments)
{
	std::tuple<Arguments...> values(arguments...);

	if (emulated_say(emulated_launchable(grid, block, shared_bytes)) != cudaSuccess)
		return;
	(__builtin_clear_padding(&arguments), ...);     /* which may have part of an old address */
	(emulated_check_argument(&arguments, sizeof(arguments)), ...);
	emulated_count_kernel((void *)kernel);
	emulated_queue(stream, [=]() {
		emulated_grid(grid, block, barrier, [&]() { std::apply(kernel, values); });
	});
}
