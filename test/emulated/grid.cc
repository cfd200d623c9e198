/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The blocks of a kernel, and their threads.  Threads that meet have stacks, and take turns: a warp goes
 * on until it waits for the others of its block, or has ended, before another warp begins, and a thread
 * goes on until it waits for the others of its warp.  The order changes from block to block, so that a
 * kernel that lacks a barrier goes wrong.  The switch of stacks is for x86-64.
 */
#include "emulated.h"

#include <atomic>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <vector>

#define STACK_BYTES 65536
#define WARP 32u
#define THREADS_MOST 1024
#define SHARED_MOST 49152u      /* bytes without an opt-in, which no kernel here needs */

thread_local emulated_index threadIdx, blockIdx, blockDim, gridDim;

enum state { RUNS, IN_WARP, IN_BLOCK, DONE };

struct fiber {
	void *at;
	char *stack;
	enum state state;
	emulated_index index;
};

/* The stacks of a host thread, kept from kernel to kernel. */
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
static std::atomic<int> kernels;

int emulated_kernels(void)
{
	return kernels;
}

void emulated_bug(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fputs("emulated: ", stderr);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	va_end(arguments);
	abort();
}

/* Saves the current stack in *from, and goes on where `to` was saved. */
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

static void wait_as(enum state state)
{
	if (!current)
		emulated_bug("a barrier in a kernel that was said to have none");
	current->state = state;
	emulated_switch(&current->at, outside);
	threadIdx = current->index;
}

void emulated_block_barrier(void)
{
	wait_as(IN_BLOCK);
}

void emulated_warp_barrier(void)
{
	wait_as(IN_WARP);
}

static void fiber_main(void)
{
	fiber *me = current;

	(*body)();
	me->state = DONE;
	for (;;)
		emulated_switch(&me->at, outside);
}

static void fiber_begin(fiber *f, emulated_index index)
{
	uint64_t *top = (uint64_t *)(f->stack + STACK_BYTES - 64);

	f->state = RUNS;
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

/* Returns number i of n in an order that begins anywhere and goes upwards or downwards, by `order`. */
static unsigned in_order(unsigned i, unsigned n, unsigned order)
{
	unsigned first = order / 2 % n;

	return order % 2 ? (first + i) % n : (first + n - i) % n;
}

/* Runs the warp until all of its threads wait for the block, or have ended. */
static void run_warp(unsigned first, unsigned count, unsigned order)
{
	for (;;) {
		unsigned in[DONE + 1] = { 0 };

		for (unsigned i = 0; i < count; i++) {
			fiber *f = &fibers.all[first + in_order(i, count, order)];

			if (f->state == RUNS) {
				current = f;
				threadIdx = f->index;
				emulated_switch(&outside, f->at);
			}
			in[f->state]++;
		}
		if (in[IN_WARP] == 0)
			break;
		if (in[IN_WARP] < count)
			emulated_bug("%u of %u threads meet in their warp, the others do not",
				     in[IN_WARP], count);
		for (unsigned i = 0; i < count; i++)
			fibers.all[first + i].state = RUNS;
	}
}

/* Runs every warp as far as the next barrier of the block, until all threads have ended. */
static void run_block(dim3 block, unsigned order, const std::function<void()> &thread)
{
	unsigned count = block.x * block.y * block.z, warps = (count + WARP - 1) / WARP, met;

	while (fibers.all.size() < count)
		fibers.all.push_back({ nullptr, (char *)mmap(nullptr, STACK_BYTES,
							     PROT_READ | PROT_WRITE,
							     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
				       DONE, {} });
	body = &thread;
	for (unsigned t = 0; t < count; t++)
		fiber_begin(&fibers.all[t], index_of(t, block));
	do {
		for (unsigned w = 0; w < warps; w++) {
			unsigned first = in_order(w, warps, order) * WARP;

			run_warp(first, count - first < WARP ? count - first : WARP, order / 7);
		}
		met = 0;
		for (unsigned t = 0; t < count; t++)
			if (fibers.all[t].state == IN_BLOCK) {
				fibers.all[t].state = RUNS;
				met++;
			}
		if (met > 0 && met < count)
			emulated_bug("%u of a block's %u threads meet, the others have ended",
				     met, count);
		order = order * 1664525 + 1013904223;
	} while (met > 0);
	current = nullptr;
}

cudaError_t emulated_launchable(dim3 grid, dim3 block, size_t shared_bytes)
{
	if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > INT32_MAX || grid.y > 65535 ||
	    grid.z > 65535 || block.x == 0 || block.y == 0 || block.z == 0 || block.z > 64 ||
	    (uint64_t)block.x * block.y * block.z > THREADS_MOST)
		return cudaErrorInvalidConfiguration;
	return shared_bytes > SHARED_MOST ? cudaErrorInvalidValue : cudaSuccess;
}

void emulated_grid(dim3 grid, dim3 block, bool barrier, const std::function<void()> &thread)
{
	unsigned blocks = grid.x * grid.y * grid.z, threads = block.x * block.y * block.z;
	unsigned order = (unsigned)kernels++ * 2654435761u, first = order >> 8;

	gridDim = { grid.x, grid.y, grid.z };
	blockDim = { block.x, block.y, block.z };
	for (unsigned b = 0; b < blocks; b++, order = order * 1664525 + 1013904223) {
		blockIdx = index_of(in_order(b, blocks, first), grid);
		if (barrier)
			run_block(block, order >> 8, thread);
		for (unsigned t = 0; t < threads && !barrier; t++) {
			threadIdx = index_of(t, block);
			thread();
		}
	}
}
