/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of CUDA's runtime that lib/device/cuda uses, but for memory: devices, streams, events, graphs.
 *
 * A stream is a list of work, which is done under one lock, in the thread that asks: for an event behind
 * it, or by waiting.  Nothing else moves it on, so what was queued long ago may still not be done, and
 * what another stream was not told to wait for may be done later than that one's.
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

/* What is recorded of an event: how often so far, and how many of these are done. */
struct mark {
	int64_t recorded, done, ns;
	cudaStream_t behind;            /* where it was recorded last */
	int device;
	bool untimed;
};

struct CUevent_st {
	std::shared_ptr<mark> of;
};

/* One piece of work; or `event` is recorded. */
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
	int64_t number;                 /* of the event's records, this one */
	bool waits;                     /* for the event, not recording it */
};

struct CUstream_st {
	int device;
	std::deque<item> items;
	CUgraph_st *captured;           /* NULL: what is queued is done */
	bool broken;                    /* by something that cannot be captured */
};

static thread_local int device;
static thread_local cudaStream_t capturing;     /* what this thread captures */
/* A stream on which nothing is done; NULL: there is none. */
static std::atomic<cudaStream_t> held;
static std::atomic<int> launches;

void emulated_hold(void *stream)
{
	held = (cudaStream_t)stream;
}

int emulated_launches(void)
{
	return launches;
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

/* A kernel is loaded when it is first launched, which must not happen while work is captured. */
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

/* ---- streams; all of this under the lock ---- */

/* These are never freed, since threads may run until the process ends. */
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

/* The stream itself; where that is 0, the default one of this thread's device. */
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

/* Does the stream's work until the event has been recorded so often, or all; or as far as that goes. */
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

/* Of what may not be done to a stream that is being captured: capturing fails in the end. */
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

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
	guard all(gpu());

	/* any other would wait for the default stream, and that for it */
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

/* External is for streams that are being captured: each launch of the graph records it. */
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

/* Others may do what this thread may not. */
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
	*made = new CUgraphExec_st{ graph->nodes };
	return cudaSuccess;
}

/* Of a graph with the same nodes, in the same order. */
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
	delete made;
	return cudaSuccess;
}
}
