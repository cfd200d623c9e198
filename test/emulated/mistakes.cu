/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mistakes that a GPU may not punish for years, each with its correct counterpart, for
 * test/t9008-emulated.sh: `mistakes NAME` makes a mistake, `mistakes NAME right` does it right.  The exit
 * status is 0 if nothing was noticed and 1 if a call was refused or the result is wrong; otherwise the
 * program was ended.
 */
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 128
#define BLOCKS 8

/* Outputs what the thread before in the block wrote; unless `right` there is no barrier in between. */
__global__ static void block_neighbour(int *out, bool right)
{
	__shared__ int sum[THREADS];
	int t = threadIdx.x;

	sum[t] = -1;
	__syncthreads();
	sum[t] = t;
	if (right)
		__syncthreads();
	out[blockIdx.x * THREADS + t] = sum[(t + THREADS - 1) % THREADS];
}

__global__ static void warp_neighbour(int *out, bool right)
{
	__shared__ int sum[THREADS];
	int t = threadIdx.x;

	sum[t] = -1;
	__syncthreads();
	sum[t] = t;
	if (right)
		__syncwarp();
	out[blockIdx.x * THREADS + t] = sum[t / 32 * 32 + (t + 31) % 32];
}

/* Lets some threads end, unless `right`, while the others meet. */
__global__ static void diverge(int *out, bool right)
{
	if (!right && threadIdx.x >= 64)
		return;
	__syncthreads();
	out[blockIdx.x * THREADS + threadIdx.x] = threadIdx.x;
}

struct four {
	alignas(16) int v[4];
};

__global__ static void read_four(int *out, const int *from)
{
	const struct four four = *(const struct four *)from;

	out[threadIdx.x] = four.v[threadIdx.x % 4];
}

struct pair {
	int *out;
	const int *from;
};

__global__ static void read_one(struct pair p)
{
	p.out[threadIdx.x] = *p.from;
}

__global__ static void put(int *out, int value)
{
	out[threadIdx.x] = value;
}

static cudaStream_t stream, other;
static int *device_memory, *pinned;

static int fetch(int *to, size_t count)
{
	return cudaMemcpyAsync(to, device_memory, count * sizeof(int), cudaMemcpyDeviceToHost,
			       stream) != cudaSuccess || cudaStreamSynchronize(stream) != cudaSuccess;
}

static int neighbours(bool warp, bool right)
{
	static int out[BLOCKS * THREADS];
	int wrong = 0;

	if (warp)
		warp_neighbour<<<BLOCKS, THREADS, 0, stream>>>(device_memory, right);
	else
		block_neighbour<<<BLOCKS, THREADS, 0, stream>>>(device_memory, right);
	wrong += fetch(out, BLOCKS * THREADS);
	for (int i = 0; i < BLOCKS * THREADS; i++)
		wrong += out[i] != (warp ? i % THREADS / 32 * 32 + (i + 31) % 32
				    : (i + THREADS - 1) % THREADS);
	return wrong > 0;
}

static int diverging(bool right)
{
	int out[1];

	diverge<<<1, THREADS, 0, stream>>>(device_memory, right);
	return fetch(out, 1);
}

static int launching(dim3 grid, size_t shared_bytes)
{
	int out[1];

	put<<<grid, 1, shared_bytes, stream>>>(device_memory, 1);
	return cudaGetLastError() != cudaSuccess || fetch(out, 1);
}

static int misaligned(bool right)
{
	int out[1];

	read_four<<<1, 4, 0, stream>>>(device_memory, device_memory + 512 + !right);
	return fetch(out, 1);
}

static int unreachable(bool right)
{
	int *pageable = (int *)malloc(sizeof(int)), out[1];
	const struct pair p = { device_memory, right ? pinned : pageable };

	*pageable = *pinned = 1;
	read_one<<<1, 1, 0, stream>>>(p);
	free(pageable);
	return fetch(out, 1);
}

/* Reads the result of another stream, for which it waits only if `right`. */
static int order(bool right)
{
	cudaEvent_t made;
	int out[1] = { 0 };

	put<<<1, 1, 0, stream>>>(device_memory, 1);
	if (cudaStreamSynchronize(stream) != cudaSuccess || cudaEventCreate(&made) != cudaSuccess)
		return 2;
	put<<<1, 1, 0, other>>>(device_memory, 2);
	if (cudaEventRecord(made, other) != cudaSuccess ||
	    (right && cudaStreamWaitEvent(stream, made, 0) != cudaSuccess))
		return 2;
	return fetch(out, 1) || out[0] != 2;
}

/* Overwrites pinned memory while, unless `right`, a copy from it may be in progress. */
static int reuse(bool right)
{
	int out[1];

	*pinned = 1;
	if (cudaMemcpyAsync(device_memory, pinned, sizeof(int), cudaMemcpyHostToDevice, stream) !=
	    cudaSuccess || (right && cudaStreamSynchronize(stream) != cudaSuccess))
		return 2;
	*pinned = 2;
	return fetch(out, 1) || out[0] != 1;
}

/* Makes a call during capture that is not allowed there, unless `right`. */
static int capture(const char *what, bool right)
{
	cudaGraph_t graph;
	void *more = NULL;

	if (right)
		put<<<1, 1, 0, stream>>>(device_memory, 1);
	if (cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) != cudaSuccess)
		return 2;
	if (strcmp(what, "kernel") == 0)
		put<<<1, 1, 0, stream>>>(device_memory, 1);
	else if (strcmp(what, "allocate") == 0)
		(void)(right ? cudaSuccess : cudaMalloc(&more, 1));
	else
		(void)(right ? cudaSuccess : cudaStreamSynchronize(stream));
	return cudaStreamEndCapture(stream, &graph) != cudaSuccess;
}

/* Computes a product in 16 bits with, unless `right`, a misplaced matrix, workspace or result, a step that
 * is too small, or the arithmetic of f32. */
static int product(const char *what, bool right)
{
	bool badly = !right;
	cublasLtMatmulDescOpaque_t how;
	cublasLtMatrixLayoutOpaque_t m;
	cublasLtMatmulPreferenceOpaque_t wish;
	cublasLtMatmulHeuristicResult_t found;
	cublasLtHandle_t handle;
	const uint64_t workspace = 4096;
	const uint32_t alignment = 64;
	const float one = 1, zero = 0;
	char *a = (char *)device_memory, *d = a + 2048, *room = a + 4096;
	int n = 0;

	if (cublasLtCreate(&handle) || cublasLtMatmulPreferenceInit(&wish) ||
	    cublasLtMatmulDescInit(&how, badly && strcmp(what, "arithmetic") == 0
				   ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F) ||
	    cublasLtMatrixLayoutInit(&m, CUDA_R_16BF, 8, 8, badly && strcmp(what, "step") == 0 ? 4 : 8) ||
	    cublasLtMatmulPreferenceSetAttribute(&wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
						 &workspace, sizeof(workspace)) ||
	    cublasLtMatmulPreferenceSetAttribute(&wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
						 &alignment, sizeof(alignment)) ||
	    cublasLtMatmulAlgoGetHeuristic(handle, &how, &m, &m, &m, &m, &wish, 1, &found, &n) || n < 1)
		return 1;
	if (badly && strcmp(what, "matrix") == 0)
		a += 32;
	if (badly && strcmp(what, "workspace") == 0)
		room += 64;
	if (badly && strcmp(what, "overlap") == 0)
		d = a + 64;
	return cublasLtMatmul(handle, &how, &one, a, &m, a, &m, &zero, d, &m, d, &m, &found.algo, room,
			      found.workspaceSize, stream) || cudaStreamSynchronize(stream);
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";
	bool right = argc > 2;
	int out[1], *pageable = (int *)calloc(1, sizeof(int));

	if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess ||
	    cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking) != cudaSuccess ||
	    cudaMalloc((void **)&device_memory, 65536) != cudaSuccess ||
	    cudaHostAlloc((void **)&pinned, sizeof(int), cudaHostAllocMapped) != cudaSuccess)
		return 2;
	if (strcmp(name, "block-barrier") == 0)
		return neighbours(false, right);
	if (strcmp(name, "warp-barrier") == 0)
		return neighbours(true, right);
	if (strcmp(name, "divergence") == 0)
		return diverging(right);
	if (strcmp(name, "grid-of-none") == 0)
		return launching(dim3(right ? 1 : 0), 0);
	if (strcmp(name, "grid-too-high") == 0)
		return launching(dim3(1, right ? 65535 : 65536), 0);
	if (strcmp(name, "shared-memory") == 0)
		return launching(dim3(1), right ? 49152 : 49153);
	if (strcmp(name, "alignment") == 0)
		return misaligned(right);
	if (strcmp(name, "host-memory") == 0)
		return unreachable(right);
	if (strcmp(name, "copy-kind") == 0)
		return cudaMemcpyAsync(device_memory, right ? (int *)device_memory + 1 : pageable,
				       sizeof(int), cudaMemcpyDeviceToDevice, stream) != cudaSuccess ||
		       fetch(out, 1);
	if (strcmp(name, "stream-order") == 0)
		return order(right);
	if (strcmp(name, "pinned-reuse") == 0)
		return reuse(right);
	if (strncmp(name, "capture-", 8) == 0)
		return capture(name + 8, right);
	if (strncmp(name, "product-", 8) == 0)
		return product(name + 8, right);
	fprintf(stderr, "%s: no such mistake\n", name);
	return 2;
}
