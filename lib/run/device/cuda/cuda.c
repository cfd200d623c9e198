/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA device: its table of functions, memory, and the sentences for its errors. */
#include "run/device/cuda/cuda.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int pd_cuda_check(cudaError_t status, const char *what, struct pd_error *err)
{
	if (status == cudaSuccess)
		return 0;
	return pd_error_failed(err, "the GPU failed: %s: %s", what, cudaGetErrorString(status));
}

int pd_cudnn_check(cudnnStatus_t status, const char *what, struct pd_error *err)
{
	if (status == CUDNN_STATUS_SUCCESS)
		return 0;
	return pd_error_failed(err, "cuDNN: %s: %s", what, cudnnGetErrorString(status));
}

int pd_cublas_check(cublasStatus_t status, const char *what, struct pd_error *err)
{
	if (status == CUBLAS_STATUS_SUCCESS)
		return 0;
	return pd_error_failed(err, "cuBLAS: %s: %s", what, cublasLtGetStatusString(status));
}

int pd_cuda_queued(const struct pd_compiled_layer *l, cudaError_t status, struct pd_error *err)
{
	if (status == cudaSuccess)
		return 0;
	return pd_error_failed(err, "layer \"%s\": the GPU failed: %s", l->layer->name,
			       cudaGetErrorString(status));
}

static int cuda_count(struct pd_error *why)
{
	int count = 0, driver = 0;
	cudaError_t status = cudaGetDeviceCount(&count);
	const char *reason;

	if (status == cudaSuccess && count > 0)
		return count;
	reason = status == cudaSuccess ? "there is none" : cudaGetErrorString(status);
	if (cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0)
		reason = "this machine has no NVIDIA driver";
	cudaGetLastError();     /* clears the error, which is reported here */
	pd_error_failed(why, "no GPU can be used: %s", reason);
	return 0;
}

/* Opens what times are measured with. */
static int open_origin(struct pd_cuda_device *cuda, struct pd_error *err)
{
	struct pd_cuda_clock *origin = &cuda->origin;
	int64_t now_ns;
	int verdict;

	if (pd_cuda_check(cudaEventCreate(&origin->base), "an event", err) < 0 ||
	    pd_cuda_check(cudaEventCreate(&cuda->look.now), "an event", err) < 0 ||
	    pd_cuda_check(cudaEventRecord(origin->base, cuda->look.side), "an event", err) < 0 ||
	    pd_cuda_check(cudaEventSynchronize(origin->base), "an event", err) < 0)
		return -1;
	now_ns = pd_now_ns();
	verdict = pd_cuda_look(&cuda->look, origin->base, &origin->base_ns, err);
	if (verdict == 0)
		origin->base_ns = now_ns;       /* a rough value */
	return verdict < 0 ? -1 : 0;
}

static void cuda_close(struct pd_device *device)
{
	struct pd_cuda_device *cuda = (struct pd_cuda_device *)device;

	if (!cuda)
		return;
	cudaSetDevice(cuda->number);
	pd_cuda_poller_close(cuda);
	if (cuda->origin.base)
		cudaEventDestroy(cuda->origin.base);
	if (cuda->look.now)
		cudaEventDestroy(cuda->look.now);
	if (cuda->look.side)
		cudaStreamDestroy(cuda->look.side);
	pthread_cond_destroy(&cuda->work);
	pthread_mutex_destroy(&cuda->side_lock);
	pthread_mutex_destroy(&cuda->lock);
	free(cuda);
}

/* Opens the GPU of a rank; ranks share GPUs if there are more ranks. */
static struct pd_device *cuda_open(const struct pd_device_config *config, struct pd_error *err)
{
	struct pd_cuda_device *cuda;
	int count = cuda_count(err);

	if (count == 0)
		return NULL;
	cuda = pd_zalloc(sizeof(*cuda));
	cuda->base.ops = &pd_device_cuda;
	cuda->number = config->ordinal % count;
	cuda->tf32 = config->tf32;
	cuda->untimed = config->untimed;
	cuda->gate = config->gate;
	pthread_cond_init(&cuda->work, NULL);
	pthread_mutex_init(&cuda->lock, NULL);
	pthread_mutex_init(&cuda->side_lock, NULL);
	if (pd_cuda_check(cudaSetDevice(cuda->number), "it cannot be opened", err) < 0 ||
	    pd_cuda_check(cudaStreamCreateWithFlags(&cuda->look.side, cudaStreamNonBlocking),
			  "a stream", err) < 0 ||
	    (!cuda->untimed && open_origin(cuda, err) < 0) ||
	    pd_cuda_poller_open(cuda, err) < 0) {
		cuda_close(&cuda->base);
		return NULL;
	}
	return &cuda->base;
}

static void cuda_place(int ordinal, char place[PD_DEVICE_PLACE])
{
	if (cudaDeviceGetPCIBusId(place, PD_DEVICE_PLACE, ordinal) != cudaSuccess)
		place[0] = '\0';
}

static void cuda_describe(struct pd_device *device, struct pd_device_info *info_p)
{
	struct pd_cuda_device *cuda = (struct pd_cuda_device *)device;
	struct cudaDeviceProp properties;

	memset(info_p, 0, sizeof(*info_p));
	if (cudaGetDeviceProperties(&properties, cuda->number) != cudaSuccess)
		return;
	snprintf(info_p->name, sizeof(info_p->name), "%.127s", properties.name);
	info_p->memory_bytes = (int64_t)properties.totalGlobalMem;
	cuda_place(cuda->number, info_p->place);
}

/* Clears memory and waits, so that work queued on any stream afterwards finds zeros. */
static int clear_now(struct pd_cuda_device *cuda, void *ptr, size_t bytes, struct pd_error *err)
{
	int status;

	pthread_mutex_lock(&cuda->side_lock);
	status = pd_cuda_check(cudaMemsetAsync(ptr, 0, bytes, cuda->look.side), "clearing memory",
			       err);
	if (status == 0)
		status = pd_cuda_check(cudaStreamSynchronize(cuda->look.side), "clearing memory",
				       err);
	pthread_mutex_unlock(&cuda->side_lock);
	return status;
}

static void *cuda_alloc(struct pd_device *device, size_t bytes, struct pd_error *err)
{
	struct pd_cuda_device *cuda = (struct pd_cuda_device *)device;
	size_t size = bytes ? bytes : 1;
	cudaError_t status;
	void *ptr;

	cudaSetDevice(cuda->number);
	status = cudaMalloc(&ptr, size);
	if (status != cudaSuccess) {
		cudaGetLastError();
		pd_error_failed(err, "GPU %d: cannot allocate %zu bytes: %s", cuda->number, bytes,
				cudaGetErrorString(status));
		return NULL;
	}
	if (clear_now(cuda, ptr, size, err) < 0) {
		cudaFree(ptr);
		return NULL;
	}
	return ptr;
}

static void cuda_free(struct pd_device *device, void *ptr)
{
	cudaSetDevice(((struct pd_cuda_device *)device)->number);
	cudaFree(ptr);
}

/*
 * Allocates pinned memory, from which the GPU copies by itself.  It is ordinary memory in pages of
 * its own that CUDA is told of, not CUDA's: a transport lets other processes read it, which the
 * system always allows for ordinary memory, but not everywhere for memory that a driver has mapped.
 * Where pinning fails, copies are slower, but right.
 */
static void *cuda_host_alloc(struct pd_device *device, size_t bytes, struct pd_error *err)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), size = (bytes / page + 1) * page;
	void *ptr;

	cudaSetDevice(((struct pd_cuda_device *)device)->number);
	if (bytes > PTRDIFF_MAX || posix_memalign(&ptr, page, size) != 0) {
		pd_error_failed(err, "cannot allocate %zu bytes of host memory", bytes);
		return NULL;
	}
	memset(ptr, 0, size);
	if (cudaHostRegister(ptr, size, cudaHostRegisterPortable) != cudaSuccess)
		cudaGetLastError();
	return ptr;
}

static void cuda_host_free(struct pd_device *device, void *ptr)
{
	cudaSetDevice(((struct pd_cuda_device *)device)->number);
	/* no copy from or to it is pending */
	if (cudaHostUnregister(ptr) != cudaSuccess)
		cudaGetLastError();
	free(ptr);
}

int pd_cuda_copy_blocking(struct pd_cuda_device *cuda, void *dst, const void *src, size_t bytes,
			  struct pd_error *err)
{
	int status;

	cudaSetDevice(cuda->number);
	pthread_mutex_lock(&cuda->side_lock);
	status = pd_cuda_check(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, cuda->look.side),
			       "a copy", err);
	if (status == 0)
		status = pd_cuda_check(cudaStreamSynchronize(cuda->look.side), "a copy", err);
	pthread_mutex_unlock(&cuda->side_lock);
	return status;
}

const struct pd_device_ops pd_device_cuda = {
	.name = "cuda",
	.splits = true,
	.calls = true,
	.joins = true,
	.separate_memory = true,
	.count = cuda_count,
	.place = cuda_place,
	.open = cuda_open,
	.close = cuda_close,
	.describe = cuda_describe,
	.memory.alloc = cuda_alloc,
	.memory.free = cuda_free,
	.memory.host_alloc = cuda_host_alloc,
	.memory.host_free = cuda_host_free,
	.stream.open = pd_cuda_stream_open,
	.stream.close = pd_cuda_stream_close,
	.stream.submit = pd_queue_submit,
	.net.open = pd_cuda_net_open,
	.net.close = pd_cuda_net_close,
	.net.sizes = pd_compiled_sizes,
	.net.layer = pd_compiled_layer_sizes,
	.net.init = pd_compiled_init,
	.net.settle = pd_cuda_net_settle,
	.net.named = pd_compiled_named,
	.net.tied_layers = pd_compiled_tied_layers,
	.net.export = pd_cuda_net_export,
	.net.import = pd_cuda_net_import,
};
