/* SPDX-License-Identifier: Apache-2.0 */
/* The part of CUDA's runtime that lib/device/cuda uses.  The switch of stacks is for x86-64. */
#include "emulated.h"

#include <atomic>
#include <mutex>
#include <set>
#include <sstream>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <vector>

#define STACK_BYTES 65536

struct CUgraph_st {
	std::vector<std::function<void()>> work;
};

struct CUgraphExec_st {
	std::vector<std::function<void()>> work;
};

struct CUstream_st {
	CUgraph_st *captured;           /* NULL: what is queued is run */
	bool broken;                    /* by something that cannot be captured */
};

struct CUevent_st {
	int64_t ns;
	bool untimed;
	cudaStream_t behind;            /* what it was recorded on */
};

/* A stream whose events are not done, as if something on it waited; NULL: there is none. */
static std::atomic<cudaStream_t> held;

void emulated_hold(void *stream)
{
	held = (cudaStream_t)stream;
}

static thread_local cudaError_t last = cudaSuccess;

static cudaError_t say(cudaError_t status)
{
	if (status != cudaSuccess)
		last = status;
	return status;
}

static std::mutex firsts_lock;
static int firsts;

void emulated_count_first(void)
{
	std::lock_guard<std::mutex> held(firsts_lock);

	firsts++;
}

void emulated_count_kernel(void *kernel)
{
	static std::set<void *> known;
	std::lock_guard<std::mutex> held(firsts_lock);

	firsts += known.insert(kernel).second;
}

int emulated_firsts(void)
{
	std::lock_guard<std::mutex> held(firsts_lock);

	return firsts;
}

static std::atomic<int> kernels, launches;

int emulated_kernels(void)
{
	return kernels;
}

int emulated_launches(void)
{
	return launches;
}

void emulated_queue(cudaStream_t stream, std::function<void()> work)
{
	if (stream && stream->captured)
		stream->captured->work.push_back(std::move(work));
	else
		work();
}

/* ---- kernels: the threads of a block that meet at barriers have stacks, and take turns ---- */

thread_local emulated_index threadIdx, blockIdx, blockDim, gridDim;

struct fiber {
	void *at;
	char *stack;
	bool done;
	emulated_index index;
};

/* Of a host thread, kept from kernel to kernel. */
struct stacks {
	std::vector<fiber> all;

	~stacks()
	{
		for (fiber &f : all)
			munmap(f.stack, STACK_BYTES);
	}
};

static thread_local stacks fibers;
static thread_local fiber *current;
static thread_local void *outside;
static thread_local const std::function<void()> *body;

/* Leaves where it was in *from, and goes on where `to` was left. */
extern "C" void emulated_switch(void **from, void *to);
asm(R"(
	.text
	.globl emulated_switch
	.type emulated_switch,@function
emulated_switch:
	push %rbp
	push %rbx
	push %r12
	push %r13
	push %r14
	push %r15
	mov %rsp, (%rdi)
	mov %rsi, %rsp
	pop %r15
	pop %r14
	pop %r13
	pop %r12
	pop %rbx
	pop %rbp
	ret
)");

void emulated_barrier(void)
{
	if (!current) {
		fprintf(stderr, "emulated: a barrier in a kernel that was said to have none\n");
		abort();
	}
	emulated_switch(&current->at, outside);
	threadIdx = current->index;
}

static void fiber_main(void)
{
	fiber *me = current;

	(*body)();
	me->done = true;
	for (;;)
		emulated_switch(&me->at, outside);
}

static void fiber_begin(fiber *f, emulated_index index)
{
	uint64_t *top = (uint64_t *)(f->stack + STACK_BYTES - 64);

	f->done = false;
	f->index = index;
	*--top = 0;
	*--top = (uint64_t)fiber_main;
	for (int i = 0; i < 6; i++)
		*--top = 0;
	f->at = top;
}

static emulated_index index_of(unsigned t, dim3 size)
{
	return { t % size.x, t / size.x % size.y, t / size.x / size.y };
}

/* Every thread as far as the next barrier, again and again. */
static void run_block(dim3 block, const std::function<void()> &thread)
{
	unsigned count = block.x * block.y * block.z;
	bool more = true;

	while (fibers.all.size() < count)
		fibers.all.push_back({ nullptr, (char *)mmap(nullptr, STACK_BYTES,
							     PROT_READ | PROT_WRITE,
							     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
				       false, {} });
	body = &thread;
	for (unsigned t = 0; t < count; t++)
		fiber_begin(&fibers.all[t], index_of(t, block));
	while (more) {
		more = false;
		for (unsigned t = 0; t < count; t++) {
			current = &fibers.all[t];
			if (current->done)
				continue;
			threadIdx = current->index;
			emulated_switch(&outside, current->at);
			more = more || !current->done;
		}
	}
	current = nullptr;
}

void emulated_grid(dim3 grid, dim3 block, bool barrier, const std::function<void()> &thread)
{
	unsigned blocks = grid.x * grid.y * grid.z, threads = block.x * block.y * block.z;

	kernels++;
	gridDim = { grid.x, grid.y, grid.z };
	blockDim = { block.x, block.y, block.z };
	for (unsigned b = 0; b < blocks; b++) {
		blockIdx = index_of(b, grid);
		if (barrier)
			run_block(block, thread);
		for (unsigned t = 0; t < threads && !barrier; t++) {
			threadIdx = index_of(t, block);
			thread();
		}
	}
}

/* ---- the functions, as in cuda_runtime_api.h ---- */

extern "C" {

const char *cudaGetErrorString(cudaError_t status)
{
	return status == cudaSuccess ? "no error" : "an emulated failure";
}

cudaError_t cudaGetLastError(void)
{
	cudaError_t status = last;

	last = cudaSuccess;
	return status;
}

/* The GPUs of this machine are as many as CUDA_VISIBLE_DEVICES names; where it is not set, one. */
static std::vector<int> visible()
{
	const char *text = getenv("CUDA_VISIBLE_DEVICES");
	std::istringstream list(text ? text : "0");
	std::vector<int> numbers;

	for (std::string number; std::getline(list, number, ',');)
		numbers.push_back(atoi(number.c_str()));
	return numbers;
}

cudaError_t cudaGetDeviceCount(int *count)
{
	*count = (int)visible().size();
	return *count ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaDriverGetVersion(int *version)
{
	*version = CUDART_VERSION;
	return cudaSuccess;
}

cudaError_t cudaSetDevice(int)
{
	return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int)
{
	memset(properties, 0, sizeof(*properties));
	strcpy(properties->name, "no GPU: emulated by the processor");
	properties->totalGlobalMem = (size_t)4 << 30;
	return cudaSuccess;
}

/* Kernels are those of a GPU that has tensor cores. */
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *)
{
	memset(attributes, 0, sizeof(*attributes));
	attributes->ptxVersion = getenv("PD_EMULATED_NO_TENSOR_CORES") ? 75 : 80;
	return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int size, int ordinal)
{
	snprintf(id, (size_t)size, "0000:%02x:00.0", (unsigned)visible().at((size_t)ordinal));
	return cudaSuccess;
}

/* What nobody wrote is not zero. */
cudaError_t cudaMalloc(void **memory, size_t bytes)
{
	emulated_count_first();
	if (posix_memalign(memory, 512, bytes) != 0)
		return say(cudaErrorMemoryAllocation);
	memset(*memory, 0xff, bytes);
	return cudaSuccess;
}

cudaError_t cudaFree(void *memory)
{
	free(memory);
	return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned)
{
	return cudaMalloc(memory, bytes);
}

cudaError_t cudaFreeHost(void *memory)
{
	return cudaFree(memory);
}

cudaError_t cudaHostRegister(void *, size_t, unsigned)
{
	return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *)
{
	return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind,
			    cudaStream_t stream)
{
	emulated_queue(stream, [=]() { memmove(dst, src, bytes); });
	return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
			      size_t width, size_t height, enum cudaMemcpyKind,
			      cudaStream_t stream)
{
	if (width > dst_pitch || width > src_pitch)
		return say(cudaErrorInvalidPitchValue);
	emulated_queue(stream, [=]() {
		for (size_t row = 0; row < height; row++)
			memmove((char *)dst + row * dst_pitch, (const char *)src + row * src_pitch,
				width);
	});
	return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *dst, int value, size_t bytes, cudaStream_t stream)
{
	emulated_queue(stream, [=]() { memset(dst, value, bytes); });
	return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
	emulated_count_first();
	*stream = new CUstream_st();
	return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	delete stream;
	return cudaSuccess;
}

/* Of what may not be done to a stream that is being captured: capturing fails in the end. */
static cudaError_t refuse(cudaStream_t stream)
{
	if (!stream || !stream->captured)
		return cudaSuccess;
	stream->broken = true;
	return say(cudaErrorStreamCaptureUnsupported);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	return refuse(stream);
}

/* Whatever was queued has been run. */
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned)
{
	return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
	emulated_count_first();
	*event = new CUevent_st();
	return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
	cudaError_t status = cudaEventCreate(event);

	(*event)->untimed = flags & cudaEventDisableTiming;
	return status;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	delete event;
	return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	event->ns = now.tv_sec * 1000000000 + now.tv_nsec;
	event->behind = stream;
	return refuse(stream);
}

/* External, which is for streams that are being captured: each launch of the graph records it. */
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags)
{
	if (flags != cudaEventRecordExternal)
		return cudaEventRecord(event, stream);
	if (!stream->captured)
		return say(cudaErrorInvalidValue);
	emulated_queue(stream, [=]() { cudaEventRecord(event, stream); });
	return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
	return event->behind && event->behind == held ? say(cudaErrorNotReady) : cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
	while (cudaEventQuery(event) == cudaErrorNotReady)
		usleep(1000);
	cudaGetLastError();
	return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
	if (begin->untimed || end->untimed)
		return say(cudaErrorInvalidResourceHandle);
	*ms = (float)(end->ns - begin->ns) / 1e6f;
	return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode)
{
	const char *wish = getenv("PD_EMULATED_NO_CAPTURE");

	if (stream->captured)
		return say(cudaErrorIllegalState);
	if (wish && strcmp(wish, "begin") == 0)
		return say(cudaErrorStreamCaptureUnsupported);
	stream->captured = new CUgraph_st();
	stream->broken = wish != NULL;
	return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
	if (!stream->captured)
		return say(cudaErrorIllegalState);
	*graph = stream->captured;
	stream->captured = nullptr;
	if (!stream->broken)
		return cudaSuccess;
	delete *graph;
	*graph = nullptr;
	return say(cudaErrorStreamCaptureInvalidated);
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *, size_t *count)
{
	*count = graph->work.size();
	return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *made, cudaGraph_t graph,
					  unsigned long long)
{
	emulated_count_first();
	*made = new CUgraphExec_st{ graph->work };
	return cudaSuccess;
}

/* Of a graph with the same nodes, in the same order. */
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t made, cudaGraph_t graph,
				cudaGraphExecUpdateResultInfo *)
{
	if (made->work.size() != graph->work.size())
		return say(cudaErrorGraphExecUpdateFailure);
	made->work = graph->work;
	return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t stream)
{
	return refuse(stream);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t made, cudaStream_t stream)
{
	launches++;
	for (const auto &work : made->work)
		emulated_queue(stream, work);
	return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
	delete graph;
	return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t made)
{
	delete made;
	return cudaSuccess;
}
}
