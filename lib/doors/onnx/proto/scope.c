/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes that torch.onnx writes carry the modules that they were made in, and PyTorch's own operation.
 * metadata_props, which has both, is younger than the definition of ONNX that is compiled in, so protobuf-c
 * keeps it as an unknown field.  The first is a list as Python writes one, ['', 'layer1', 'layer1.0',
 * 'layer1.0.conv1', 'conv2d'], whose last element is the operation; the other is a call,
 * call_function[target=torch.ops.aten.embedding.default](args = (%weight, %tokens, 0), kwargs = {}).
 */
#include "doors/onnx/proto/memory.h"

#include <stdlib.h>
#include <string.h>

#define METADATA_TAG 9

/* Copies the element of such a list before the last one, or "". */
static char *before_last(struct pd_onnx *onnx, const char *list)
{
	const char *last = strrchr(list, ','), *begin = last, *end;
	char *text;
	size_t length;

	while (begin && begin > list && *--begin != ',')
		;
	begin = begin ? strpbrk(begin, "'\"") : NULL;
	end = begin && begin < last ? strpbrk(begin + 1, "'\"") : NULL;
	length = end && end < last ? (size_t)(end - begin - 1) : 0;
	text = pd_arena_take(&onnx->memory->arena, length + 1, 1);
	if (length > 0)
		memcpy(text, begin + 1, length);
	return text;
}

/* Returns the third argument of an embedding, or -1. */
static int64_t padding_of(const char *call)
{
	const char *at = strstr(call, "aten.embedding.default](args = (");
	char *end;
	long long row;

	for (int comma = 0; at && comma < 2; comma++)
		at = strchr(at + 1, ',');
	if (!at)
		return -1;
	row = strtoll(at + 1, &end, 10);
	return end > at + 1 && (*end == ',' || *end == ')') && row >= 0 ? row : -1;
}

static void set_said(struct pd_onnx *onnx, const Onnx__StringStringEntryProto *entry, struct pd_onnx_node *node)
{
	if (!entry->key || !entry->value)
		return;
	if (strcmp(entry->key, "pkg.torch.onnx.name_scopes") == 0)
		node->scope = before_last(onnx, entry->value);
	else if (strcmp(entry->key, "pkg.torch.onnx.fx_node") == 0)
		node->padding = padding_of(entry->value);
}

void pd_onnx_scope(struct pd_onnx *onnx, const Onnx__NodeProto *from, struct pd_onnx_node *node)
{
	static char none[] = "";
	ProtobufCAllocator *allocator = &onnx->memory->allocator;

	node->scope = none;
	node->padding = -1;
	for (unsigned i = 0; i < from->base.n_unknown_fields; i++) {
		const ProtobufCMessageUnknownField *field = &from->base.unknown_fields[i];
		Onnx__StringStringEntryProto *entry;
		size_t prefix = 0;

		if (field->tag != METADATA_TAG || field->wire_type != PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED)
			continue;
		while (prefix < field->len && field->data[prefix] & 0x80)
			prefix++;
		if (prefix++ >= field->len)
			continue;
		entry = onnx__string_string_entry_proto__unpack(allocator, field->len - prefix,
								field->data + prefix);
		if (!entry)
			continue;
		set_said(onnx, entry, node);
		onnx__string_string_entry_proto__free_unpacked(entry, allocator);
	}
}
