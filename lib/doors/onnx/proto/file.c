/* SPDX-License-Identifier: Apache-2.0 */
/*
 * protobuf-c takes what a message takes in the file, and more for each small message, and calls itself for
 * messages within messages.  So that no file, however it was made, takes much more memory than it has bytes,
 * or ends the stack, its allocator refuses what is too much or too deep.
 */
#include "doors/onnx/proto/memory.h"

#include "base/file_kind.h"
#include "base/mem.h"

#include <malloc.h>
#include <stdlib.h>

#define LEAST_BYTES (16 << 20)          /* that any file may take */
#define MOST_STACK_BYTES (1 << 20)

static void *allocate(void *data, size_t size)
{
	struct pd_onnx_memory *memory = data;
	const char *stack = __builtin_frame_address(0);
	void *piece;

	memory->deep |= memory->stack - stack > MOST_STACK_BYTES;
	memory->large |= size > memory->most_bytes - memory->bytes;
	if (memory->deep || memory->large)
		return NULL;
	piece = malloc(size);
	if (!piece)
		pd_mem_exhausted(size);
	memory->bytes += malloc_usable_size(piece);
	if (memory->bytes > memory->most_bytes)
		memory->bytes = memory->most_bytes;
	return piece;
}

static void give(void *data, void *piece)
{
	struct pd_onnx_memory *memory = data;
	size_t bytes = piece ? malloc_usable_size(piece) : 0;

	memory->bytes -= bytes < memory->bytes ? bytes : memory->bytes;
	free(piece);
}

static int unreadable(const struct pd_onnx_memory *memory, const char *file, struct pd_error *err)
{
	char found[PD_FILE_KIND_TEXT];
	const struct pd_file_kind *kind = pd_file_kind_of(file);

	if (memory->deep)
		return pd_error_input(err, "%s: expected an ONNX model, found one whose messages are nested too "
				      "deep", file);
	if (memory->large)
		return pd_error_input(err, "%s: expected an ONNX model, found one that takes more than twice the "
				      "file's bytes in memory", file);
	if (kind && (kind->sure || kind->text))
		return pd_error_input(err, "%s: expected an ONNX model%s", file, pd_file_kind_say(kind, found));
	return pd_error_input(err, "%s: expected an ONNX model, found a file that is none, or is damaged", file);
}

static int parse(struct pd_onnx *onnx, struct pd_error *err)
{
	struct pd_onnx_memory *memory = onnx->memory;
	struct pd_file_map map;

	if (pd_file_map_open(&map, onnx->file, "an ONNX model", err) < 0)
		return -1;
	memory->most_bytes = LEAST_BYTES + 2 * (size_t)map.count;
	memory->allocator = (ProtobufCAllocator){ allocate, give, memory };
	memory->stack = __builtin_frame_address(0);
	memory->model = onnx__model_proto__unpack(&memory->allocator, (size_t)map.count, map.bytes);
	pd_file_map_close(&map);
	return memory->model ? 0 : unreadable(memory, onnx->file, err);
}

struct pd_onnx *pd_onnx_open(const char *file, struct pd_error *err)
{
	struct pd_onnx *onnx = pd_zalloc(sizeof(*onnx));

	onnx->memory = pd_zalloc(sizeof(*onnx->memory));
	onnx->file = pd_strdup(file);
	if (parse(onnx, err) < 0 || pd_onnx_graph(onnx, err) < 0) {
		pd_onnx_close(onnx);
		return NULL;
	}
	return onnx;
}

static void free_beside(struct pd_onnx_beside *beside)
{
	while (beside) {
		struct pd_onnx_beside *next = beside->next;

		pd_file_map_close(&beside->map);
		free(beside);
		beside = next;
	}
}

void pd_onnx_close(struct pd_onnx *onnx)
{
	if (!onnx)
		return;
	if (onnx->memory->model)
		onnx__model_proto__free_unpacked(onnx->memory->model, &onnx->memory->allocator);
	free_beside(onnx->memory->beside);
	pd_arena_release(&onnx->memory->arena);
	free(onnx->memory);
	free((char *)onnx->file);
	free(onnx);
}
