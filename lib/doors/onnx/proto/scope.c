/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes that torch.onnx writes carry the modules that they were made in, and PyTorch's own operation.
 * metadata_props, which has both, is younger than the definition of ONNX that is compiled in, so protobuf-c
 * keeps it as an unknown field.  The first is a list as Python writes one, ['', 'layer1', 'layer1.0',
 * 'layer1.0.conv1', 'conv2d'], whose last element is the operation; the other is a call,
 * call_function[target=torch.ops.aten.embedding.default](args = (%weight, %tokens, 0), kwargs = {}).
 * Values carry what they were: a tensor is listed with these, as its initializer has no such field.
 */
#include "doors/onnx/proto/memory.h"

#include <stdlib.h>
#include <string.h>

/* Tags of metadata_props. */
#define NODE_METADATA 9
#define VALUE_METADATA 4
#define SPEC "pkg.torch.export.graph_signature.InputSpec"

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

/* Takes what one entry of the metadata says. */
typedef void take_entry(struct pd_onnx *onnx, const Onnx__StringStringEntryProto *entry, void *to);

static void set_said(struct pd_onnx *onnx, const Onnx__StringStringEntryProto *entry, void *to)
{
	struct pd_onnx_node *node = to;

	if (strcmp(entry->key, "pkg.torch.onnx.name_scopes") == 0)
		node->scope = before_last(onnx, entry->value);
	else if (strcmp(entry->key, "pkg.torch.onnx.fx_node") == 0)
		node->padding = padding_of(entry->value);
}

/* Takes the entries of a message, which are the field of this tag. */
static void read_metadata(struct pd_onnx *onnx, const ProtobufCMessage *from, unsigned tag,
			  take_entry *take, void *to)
{
	ProtobufCAllocator *allocator = &onnx->memory->allocator;

	for (unsigned i = 0; i < from->n_unknown_fields; i++) {
		const ProtobufCMessageUnknownField *field = &from->unknown_fields[i];
		Onnx__StringStringEntryProto *entry;
		size_t prefix = 0;

		if (field->tag != tag || field->wire_type != PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED)
			continue;
		while (prefix < field->len && field->data[prefix] & 0x80)
			prefix++;
		if (prefix++ >= field->len)
			continue;
		entry = onnx__string_string_entry_proto__unpack(allocator, field->len - prefix,
								field->data + prefix);
		if (!entry)
			continue;
		if (entry->key && entry->value)
			take(onnx, entry, to);
		onnx__string_string_entry_proto__free_unpacked(entry, allocator);
	}
}

void pd_onnx_scope(struct pd_onnx *onnx, const Onnx__NodeProto *from, struct pd_onnx_node *node)
{
	static char none[] = "";

	node->scope = none;
	node->padding = -1;
	read_metadata(onnx, &from->base, NODE_METADATA, set_said, node);
}

/* What PyTorch's export says of an input of the graph that it made. */
struct spec {
	bool buffer, constant, transient;
};

static void set_spec(struct pd_onnx *onnx, const Onnx__StringStringEntryProto *entry, void *to)
{
	struct spec *spec = to;

	(void)onnx;
	if (strcmp(entry->key, SPEC ".kind") == 0) {
		spec->buffer = strcmp(entry->value, "BUFFER") == 0;
		spec->constant = strcmp(entry->value, "CONSTANT_TENSOR") == 0;
	} else if (strcmp(entry->key, SPEC ".persistent") == 0) {
		spec->transient = strcmp(entry->value, "False") == 0;
	}
}

enum pd_onnx_role pd_onnx_role_of(struct pd_onnx *onnx, const Onnx__ValueInfoProto *from)
{
	struct spec spec = { 0 };

	read_metadata(onnx, &from->base, VALUE_METADATA, set_spec, &spec);
	return spec.constant || (spec.buffer && spec.transient) ? PD_ONNX_CONSTANT
		: spec.buffer ? PD_ONNX_BUFFER : PD_ONNX_PARAMETER;
}
