/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of CUDA's runtime that lib/run/device/cuda uses except for memory: devices, streams, events,
 * graphs.
 *
 * A stream is a list of work, which is done under one lock in the thread that asks for an event behind
 * it, or waits for it.  Nothing else does the work, so work that was queued long ago may still not be
 * done, and a stream that was not told to wait for another's work may do its own first.
 */
#include "emulated.h"

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <time.h>
#include <unistd.h>
#include <vector>

/* The state of an event: how often it was recorded, and how many of these records are done. */
struct mark {
	int64_t recorded, done, ns;
	cudaStream_t behind;            /* the stream in which it was recorded last */
	int device;
	bool untimed;
};

struct CUevent_st {
	std::shared_ptr<mark> of;
};

/* A piece of work, or, without one, the record of an event. */
struct node {
	std::function<void()> work;
	std::shared_ptr<mark> event;
};

struct CUgraph_st {
	std::vector<node> nodes;
};

struct CUgraphExec_st {
	std::vector<node> nodes;
};

struct item {
	node what;
	int64_t number;                 /* the number of the event's record */
	bool waits;                     /* waits for the event instead of recording it */
};

struct CUstream_st {
	int device;
	std::deque<item> items;
	CUgraph_st *captured;           /* NULL: the stream is not captured */
	bool broken;                    /* a call was made that cannot be captured */
};

static thread_local int device;
static thread_local cudaStream_t capturing;     /* the stream that this thread captures */
/* The stream on which no work is done, or NULL. */
static std::atomic<cudaStream_t> held;
static std::atomic<int> launches, graphs;

void emulated_hold(void *stream)
{
	held = (cudaStream_t)stream;
}

int emulated_launches(void)
{
	return launches;
}

int emulated_graphs(void)
{
	return graphs;
}

static thread_local cudaError_t last = cudaSuccess;

cudaError_t emulated_say(cudaError_t status)
{
	if (status != cudaSuccess)
		last = status;
	return status;
}

bool emulated_uncapturable(void)
{
	if (capturing)
		capturing->broken = true;
	return capturing;
}

static std::mutex firsts_lock;
static int firsts;

void emulated_count_first(void)
{
	std::lock_guard<std::mutex> guard(firsts_lock);

	firsts++;
}

/* Counts a kernel's first launch, which loads it and so must not happen while work is captured. */
void emulated_count_kernel(void *kernel)
{
	static auto *known = new std::set<void *>;
	std::lock_guard<std::mutex> guard(firsts_lock);

	if (!known->insert(kernel).second)
		return;
	firsts++;
	emulated_uncapturable();
}

int emulated_firsts(void)
{
	std::lock_guard<std::mutex> guard(firsts_lock);

	return firsts;
}

/* ---- streams; all of these are called under the lock ---- */

/* Returns the lock, which like the streams is never freed, since threads may run until the process ends. */
static std::recursive_mutex &gpu()
{
	static auto *lock = new std::recursive_mutex;

	return *lock;
}

typedef std::lock_guard<std::recursive_mutex> guard;

static std::set<cudaStream_t> &streams()
{
	static auto *all = new std::set<cudaStream_t>;

	return *all;
}

static cudaStream_t new_stream(int of)
{
	cudaStream_t stream = new CUstream_st();

	stream->device = of;
	streams().insert(stream);
	return stream;
}

/* Returns the stream itself, or, if it is 0, the default stream of this thread's device. */
static cudaStream_t actual(cudaStream_t stream)
{
	static auto *defaults = new std::map<int, cudaStream_t>;

	if (stream)
		return stream;
	if (!(*defaults)[device])
		(*defaults)[device] = new_stream(device);
	return (*defaults)[device];
}

static void note_time(const std::shared_ptr<mark> &m, int64_t number)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	m->ns = now.tv_sec * 1000000000 + now.tv_nsec;
	m->done = number;
}

/* Does the stream's work until the event has been recorded so often, or all of it, as far as possible. */
static void run(cudaStream_t stream, const mark *until, int64_t number)
{
	while (!stream->items.empty() && stream != held && !(until && until->done >= number)) {
		item &first = stream->items.front();

		if (first.waits && first.what.event->done < first.number) {
			run(first.what.event->behind, first.what.event.get(), first.number);
			if (first.what.event->done < first.number)
				return;
		}
		item next = std::move(first);

		stream->items.pop_front();
		if (next.what.work)
			next.what.work();
		else if (!next.waits)
			note_time(next.what.event, next.number);
	}
}

void emulated_run_all(void)
{
	guard all(gpu());

	for (cudaStream_t stream : streams())
		run(stream, nullptr, 0);
}

/* Refuses a call on a stream that is being captured; the capture fails in the end. */
static cudaError_t refuse(cudaStream_t stream)
{
	if (!stream || !stream->captured)
		return cudaSuccess;
	stream->broken = true;
	return emulated_say(cudaErrorStreamCaptureUnsupported);
}

static void record(cudaStream_t stream, const std::shared_ptr<mark> &event)
{
	event->behind = stream;
	stream->items.push_back({ { nullptr, event }, ++event->recorded, false });
}

void emulated_queue(cudaStream_t wanted, std::function<void()> work)
{
	guard all(gpu());
	cudaStream_t stream = actual(wanted);

	if (stream->device != device)
		emulated_bug("work for a stream of device %d, while the thread's is %d",
			     stream->device, device);
	if (stream->captured)
		stream->captured->nodes.push_back({ std::move(work), nullptr });
	else
		stream->items.push_back({ { std::move(work), nullptr }, 0, false });
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

/* Returns the numbers of the GPUs that CUDA_VISIBLE_DEVICES names, or of one GPU if it is not set. */
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

cudaError_t cudaSetDevice(int ordinal)
{
	if (ordinal < 0 || (size_t)ordinal >= visible().size())
		return emulated_say(cudaErrorInvalidDevice);
	device = ordinal;
	return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int)
{
	memset(properties, 0, sizeof(*properties));
	strcpy(properties->name, "no GPU: emulated by the processor");
	properties->totalGlobalMem = (size_t)4 << 30;
	return cudaSuccess;
}

/* Reports kernels of a GPU with tensor cores, unless PD_EMULATED_NO_TENSOR_CORES is set. */
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

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
	guard all(gpu());

	/* Any other stream would wait for the default stream, and the default stream for it. */
	if (flags != cudaStreamNonBlocking)
		emulated_bug("a stream that is not cudaStreamNonBlocking");
	emulated_count_first();
	*stream = new_stream(device);
	return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	guard all(gpu());

	run(stream, nullptr, 0);
	if (!stream->items.empty())
		emulated_bug("a stream is destroyed whose work cannot end");
	streams().erase(stream);
	delete stream;
	return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t wanted)
{
	cudaStream_t stream;

	{
		guard all(gpu());

		stream = actual(wanted);
	}
	if (refuse(stream) != cudaSuccess)
		return cudaErrorStreamCaptureUnsupported;
	for (;; usleep(1000)) {
		guard all(gpu());

		run(stream, nullptr, 0);
		if (stream->items.empty())
			return cudaSuccess;
	}
}

cudaError_t cudaStreamWaitEvent(cudaStream_t wanted, cudaEvent_t event, unsigned)
{
	guard all(gpu());
	cudaStream_t stream = actual(wanted);

	if (refuse(stream) != cudaSuccess)
		return cudaErrorStreamCaptureUnsupported;
	if (event->of->recorded > 0)
		stream->items.push_back({ { nullptr, event->of }, event->of->recorded, true });
	return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
	emulated_count_first();
	*event = new CUevent_st{ std::make_shared<mark>() };
	(*event)->of->untimed = flags & cudaEventDisableTiming;
	(*event)->of->device = device;
	return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
	return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	guard all(gpu());

	delete event;
	return cudaSuccess;
}

/* Records an event; an external record in a captured stream is done by each launch of the graph. */
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t wanted, unsigned flags)
{
	guard all(gpu());
	cudaStream_t stream = actual(wanted);

	if (event->of->device != stream->device)
		return emulated_say(cudaErrorInvalidResourceHandle);
	if (flags == cudaEventRecordExternal) {
		if (!stream->captured)
			return emulated_say(cudaErrorInvalidValue);
		stream->captured->nodes.push_back({ nullptr, event->of });
		return cudaSuccess;
	}
	if (refuse(stream) != cudaSuccess)
		return cudaErrorStreamCaptureUnsupported;
	record(stream, event->of);
	return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
	guard all(gpu());
	const std::shared_ptr<mark> m = event->of;

	if (m->done < m->recorded)
		run(m->behind, m.get(), m->recorded);
	return m->done < m->recorded ? emulated_say(cudaErrorNotReady) : cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
	if (emulated_uncapturable())
		return emulated_say(cudaErrorStreamCaptureUnsupported);
	while (cudaEventQuery(event) == cudaErrorNotReady)
		usleep(1000);
	cudaGetLastError();
	return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
	guard all(gpu());
	const mark &from = *begin->of, &to = *end->of;

	if (from.untimed || to.untimed || from.recorded == 0 || to.recorded == 0 ||
	    from.device != to.device)
		return emulated_say(cudaErrorInvalidResourceHandle);
	if (from.done < from.recorded || to.done < to.recorded)
		return emulated_say(cudaErrorNotReady);
	*ms = (float)(to.ns - from.ns) / 1e6f;
	return cudaSuccess;
}

/* Begins a capture during which only this thread may not make the calls that break it. */
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
	const char *wish = getenv("PD_EMULATED_NO_CAPTURE");
	guard all(gpu());

	if (mode != cudaStreamCaptureModeThreadLocal)
		emulated_bug("captured in a mode in which other threads may not allocate");
	if (!stream || stream->captured || capturing)
		return emulated_say(cudaErrorIllegalState);
	if (wish && strcmp(wish, "begin") == 0)
		return emulated_say(cudaErrorStreamCaptureUnsupported);
	stream->captured = new CUgraph_st();
	stream->broken = wish != NULL;
	capturing = stream;
	return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
	guard all(gpu());

	if (capturing != stream)
		return emulated_say(stream->captured ? cudaErrorStreamCaptureWrongThread
						     : cudaErrorIllegalState);
	*graph = stream->captured;
	stream->captured = nullptr;
	capturing = nullptr;
	if (!stream->broken)
		return cudaSuccess;
	delete *graph;
	*graph = nullptr;
	return emulated_say(cudaErrorStreamCaptureInvalidated);
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *, size_t *count)
{
	*count = graph->nodes.size();
	return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *made, cudaGraph_t graph,
					  unsigned long long)
{
	emulated_count_first();
	graphs++;
	*made = new CUgraphExec_st{ graph->nodes };
	return cudaSuccess;
}

/* Updates an executable graph to another graph with the same kinds of nodes in the same order. */
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t made, cudaGraph_t graph,
				cudaGraphExecUpdateResultInfo *info)
{
	bool alike = made->nodes.size() == graph->nodes.size() && !getenv("PD_EMULATED_NO_UPDATE");

	for (size_t i = 0; i < made->nodes.size() && alike; i++)
		alike = !made->nodes[i].event == !graph->nodes[i].event;
	info->result = alike ? cudaGraphExecUpdateSuccess : cudaGraphExecUpdateErrorTopologyChanged;
	if (!alike)
		return emulated_say(cudaErrorGraphExecUpdateFailure);
	made->nodes = graph->nodes;
	return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t stream)
{
	return refuse(stream);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t made, cudaStream_t wanted)
{
	guard all(gpu());
	cudaStream_t stream = actual(wanted);

	if (refuse(stream) != cudaSuccess)
		return cudaErrorStreamCaptureUnsupported;
	launches++;
	for (const node &n : made->nodes)
		if (n.event)
			record(stream, n.event);
		else
			stream->items.push_back({ n, 0, false });
	return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
	delete graph;
	return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t made)
{
	graphs--;
	delete made;
	return cudaSuccess;
}
}
