/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the emulated GPU, pinned memory, and copies.  All of it is the processor's memory, but each
 * piece has its kind, and arguments of kernels and copies must be in memory that a GPU reaches.
 */
#include "emulated.h"

#include <map>
#include <mutex>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

struct piece {
	size_t bytes;
	enum emulated_memory what;
	bool ours;                      /* allocated here, and freed here */
};

static std::mutex lock;

/* Returns the pieces by address; the map is never freed, since threads may run until the process ends. */
static std::map<uintptr_t, piece> &pieces()
{
	static auto *all = new std::map<uintptr_t, piece>;

	return *all;
}

static bool is_mapped(uintptr_t address)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	unsigned char in_core;

	return mincore((void *)(address / page * page), 1, &in_core) == 0;
}

enum emulated_memory emulated_where(const void *address)
{
	uintptr_t at = (uintptr_t)address;

	if (at < 4096 || at >> 47)
		return EMULATED_NOWHERE;
	{
		std::lock_guard<std::mutex> held(lock);
		auto behind = pieces().upper_bound(at);

		/* The address of a piece's end belongs to it, too, since it may be an argument. */
		if (behind != pieces().begin()) {
			auto found = std::prev(behind);

			if (at - found->first <= found->second.bytes)
				return found->second.what;
		}
	}
	return is_mapped(at) ? EMULATED_PAGEABLE : EMULATED_NOWHERE;
}

void emulated_check_argument(const void *argument, size_t bytes)
{
	for (size_t at = 0; at + sizeof(void *) <= bytes; at += sizeof(void *)) {
		const void *word;

		memcpy(&word, (const char *)argument + at, sizeof(word));
		if (emulated_where(word) == EMULATED_PAGEABLE)
			emulated_bug("a kernel's argument has an address that is not in the GPU's "
				     "memory, nor pinned: %p, %zu bytes from its beginning", word, at);
	}
}

void emulated_check_array(const void *array, size_t alignment, const char *what)
{
	enum emulated_memory where = emulated_where(array);

	if (where != EMULATED_DEVICE && where != EMULATED_PINNED)
		emulated_bug("%s: %p is not in the GPU's memory", what, array);
	if ((uintptr_t)array % alignment)
		emulated_bug("%s: %p is no multiple of %zu", what, array, alignment);
}

static void note(const void *memory, size_t bytes, enum emulated_memory what, bool ours)
{
	std::lock_guard<std::mutex> held(lock);

	pieces()[(uintptr_t)memory] = { bytes, what, ours };
}

/* Forgets the piece that begins there; returns false if there is none of that kind. */
static bool forget(const void *memory, enum emulated_memory what, bool ours)
{
	std::lock_guard<std::mutex> held(lock);
	auto found = pieces().find((uintptr_t)memory);

	if (found == pieces().end() || found->second.what != what || found->second.ours != ours)
		return false;
	pieces().erase(found);
	return true;
}

/* Allocates memory of a kind, which is not zero until it is written. */
static cudaError_t take(void **memory, size_t bytes, enum emulated_memory what)
{
	emulated_count_first();
	if (emulated_uncapturable())
		return emulated_say(cudaErrorStreamCaptureUnsupported);
	if (bytes == 0) {
		*memory = nullptr;
		return cudaSuccess;
	}
	if (posix_memalign(memory, 512, bytes) != 0)
		return emulated_say(cudaErrorMemoryAllocation);
	memset(*memory, 0xff, bytes);
	note(*memory, bytes, what, true);
	return cudaSuccess;
}

/* Frees memory, for which it waits, as CUDA does, for all work that may use it. */
static cudaError_t give(void *memory, enum emulated_memory what)
{
	if (!memory)
		return cudaSuccess;
	if (emulated_uncapturable())
		return emulated_say(cudaErrorStreamCaptureUnsupported);
	emulated_run_all();
	if (!forget(memory, what, true))
		emulated_bug("%p is freed, which is no such memory", memory);
	free(memory);
	return cudaSuccess;
}

/* Tells whether source and destination are in the memories that `kind` names. */
static bool is_right(const void *dst, const void *src, enum cudaMemcpyKind kind)
{
	bool to_device = emulated_where(dst) == EMULATED_DEVICE;
	bool from_device = emulated_where(src) == EMULATED_DEVICE;

	switch (kind) {
	case cudaMemcpyHostToDevice:
		return to_device && !from_device;
	case cudaMemcpyDeviceToHost:
		return from_device && !to_device;
	case cudaMemcpyDeviceToDevice:
		return from_device && to_device;
	default:
		return true;
	}
}

extern "C" {

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
	return take(memory, bytes, EMULATED_DEVICE);
}

cudaError_t cudaFree(void *memory)
{
	return give(memory, EMULATED_DEVICE);
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned)
{
	return take(memory, bytes, EMULATED_PINNED);
}

cudaError_t cudaFreeHost(void *memory)
{
	return give(memory, EMULATED_PINNED);
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned)
{
	if (emulated_uncapturable())
		return emulated_say(cudaErrorStreamCaptureUnsupported);
	note(memory, bytes, EMULATED_PINNED, false);
	return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *memory)
{
	emulated_run_all();
	return forget(memory, EMULATED_PINNED, false)
		? cudaSuccess : emulated_say(cudaErrorHostMemoryNotRegistered);
}

/*
 * Copies from or to pageable memory before the call returns, but from or to pinned memory when the GPU
 * comes to it.
 */
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
			    cudaStream_t stream)
{
	if (bytes == 0)
		return cudaSuccess;
	if (!is_right(dst, src, kind))
		return emulated_say(cudaErrorInvalidValue);
	if (emulated_where(src) == EMULATED_PAGEABLE) {
		std::vector<char> staged((const char *)src, (const char *)src + bytes);

		emulated_queue(stream, [=]() { memcpy(dst, staged.data(), staged.size()); });
		return cudaSuccess;
	}
	emulated_queue(stream, [=]() { memmove(dst, src, bytes); });
	return emulated_where(dst) == EMULATED_PAGEABLE ? cudaStreamSynchronize(stream) : cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
			      size_t width, size_t height, enum cudaMemcpyKind kind,
			      cudaStream_t stream)
{
	if (width > dst_pitch || width > src_pitch)
		return emulated_say(cudaErrorInvalidPitchValue);
	if (!is_right(dst, src, kind) || kind != cudaMemcpyDeviceToDevice)
		return emulated_say(cudaErrorInvalidValue);
	emulated_queue(stream, [=]() {
		for (size_t row = 0; row < height; row++)
			memmove((char *)dst + row * dst_pitch, (const char *)src + row * src_pitch,
				width);
	});
	return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *dst, int value, size_t bytes, cudaStream_t stream)
{
	if (bytes > 0 && emulated_where(dst) != EMULATED_DEVICE)
		return emulated_say(cudaErrorInvalidValue);
	emulated_queue(stream, [=]() { memset(dst, value, bytes); });
	return cudaSuccess;
}
}
