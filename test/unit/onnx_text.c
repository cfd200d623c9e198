/* SPDX-License-Identifier: Apache-2.0 */
#include "onnx_text.h"

#include "base/arena.h"
#include "base/mem.h"
#include "doors/onnx/proto/onnx.pb-c.h"
#include "scratch.h"

#include <stdlib.h>
#include <string.h>

#define MOST 64

static struct pd_arena arena;
static Onnx__GraphProto graph;
static Onnx__NodeProto *nodes[MOST];
static Onnx__TensorProto *tensors[MOST];
static Onnx__ValueInfoProto *inputs[MOST], *outputs[MOST], *values[MOST];
static int constants;

static char *copy(const char *text)
{
	return strcpy(pd_arena_take(&arena, strlen(text) + 1, 1), text);
}

#define NEW(type, init) memcpy(pd_arena_take(&arena, 1, sizeof(type)), &(type)init, sizeof(type))

static Onnx__TensorProto *new_tensor(const char *name, int type)
{
	Onnx__TensorProto *tensor = NEW(Onnx__TensorProto, ONNX__TENSOR_PROTO__INIT);

	tensor->name = copy(name);
	tensor->has_data_type = true;
	tensor->data_type = type;
	tensor->dims = pd_arena_take(&arena, 8, sizeof(*tensor->dims));
	return tensor;
}

/* Adds a value of a shape; a size that is no number is a symbol. */
static Onnx__ValueInfoProto *new_value(const char *name, int type, char *sizes)
{
	Onnx__ValueInfoProto *value = NEW(Onnx__ValueInfoProto, ONNX__VALUE_INFO_PROTO__INIT);
	Onnx__TypeProto__Tensor *tensor = NEW(Onnx__TypeProto__Tensor, ONNX__TYPE_PROTO__TENSOR__INIT);

	value->name = copy(name);
	value->type = NEW(Onnx__TypeProto, ONNX__TYPE_PROTO__INIT);
	value->type->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
	value->type->tensor_type = tensor;
	tensor->has_elem_type = true;
	tensor->elem_type = type;
	tensor->shape = NEW(Onnx__TensorShapeProto, ONNX__TENSOR_SHAPE_PROTO__INIT);
	tensor->shape->dim = pd_arena_take(&arena, 16, sizeof(*tensor->shape->dim));
	for (char *size = strtok_r(sizes, " ", &sizes); size; size = strtok_r(NULL, " ", &sizes)) {
		Onnx__TensorShapeProto__Dimension *dim = NEW(Onnx__TensorShapeProto__Dimension,
							     ONNX__TENSOR_SHAPE_PROTO__DIMENSION__INIT);

		dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
		dim->dim_value = atoll(size);
		if (dim->dim_value == 0) {
			dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
			dim->dim_param = copy(size);
		}
		tensor->shape->dim[tensor->shape->n_dim++] = dim;
	}
	return value;
}

static void add_tensor(const char *name, char *sizes)
{
	Onnx__TensorProto *tensor = new_tensor(name, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT);
	size_t count = 1;

	for (char *size = strtok_r(sizes, " ", &sizes); size; size = strtok_r(NULL, " ", &sizes)) {
		tensor->dims[tensor->n_dims++] = atoll(size);
		count *= (size_t)atoll(size);
	}
	tensor->n_float_data = count;
	tensor->float_data = pd_arena_take(&arena, count, sizeof(float));
	for (size_t i = 0; i < count; i++)
		tensor->float_data[i] = 0.5f;
	tensors[graph.n_initializer++] = tensor;
}

/* Adds a node Constant for "#..." and returns the name of its output. */
static char *add_constant(char *text)
{
	Onnx__NodeProto *node = NEW(Onnx__NodeProto, ONNX__NODE_PROTO__INIT);
	Onnx__AttributeProto *value = NEW(Onnx__AttributeProto, ONNX__ATTRIBUTE_PROTO__INIT);
	bool list = text[1] == '[';
	Onnx__TensorProto *tensor = new_tensor("", list ? ONNX__TENSOR_PROTO__DATA_TYPE__INT64
							: ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT);
	char name[16];

	tensor->int64_data = pd_arena_take(&arena, 16, sizeof(int64_t));
	tensor->float_data = pd_arena_take(&arena, 1, sizeof(float));
	if (list) {
		for (char *at = text + 2; *at && *at != ']'; at += *at == ';')
			tensor->int64_data[tensor->n_int64_data++] = strtoll(at, &at, 10);
		tensor->dims[tensor->n_dims++] = (int64_t)tensor->n_int64_data;
	} else {
		tensor->float_data[tensor->n_float_data++] = strtof(text + 1, NULL);
	}
	snprintf(name, sizeof(name), "constant%d", constants++);
	value->name = copy("value");
	value->has_type = true;
	value->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR;
	value->t = tensor;
	node->op_type = copy("Constant");
	node->n_attribute = node->n_output = 1;
	node->attribute = pd_arena_take(&arena, 1, sizeof(*node->attribute));
	node->attribute[0] = value;
	node->output = pd_arena_take(&arena, 1, sizeof(*node->output));
	node->output[0] = copy(name);
	nodes[graph.n_node++] = node;
	return node->output[0];
}

static Onnx__AttributeProto *new_attribute(char *text)
{
	Onnx__AttributeProto *attribute = NEW(Onnx__AttributeProto, ONNX__ATTRIBUTE_PROTO__INIT);
	char *value = strchr(text, '=') + 1, *end;
	double number = strtod(value, &end);

	value[-1] = '\0';
	attribute->name = copy(text);
	attribute->has_type = true;
	if (*end == ',') {
		attribute->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS;
		attribute->ints = pd_arena_take(&arena, 16, sizeof(int64_t));
		for (char *at = value; *at; at += *at == ',')
			attribute->ints[attribute->n_ints++] = strtoll(at, &at, 10);
	} else if (*end || end == value) {
		attribute->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING;
		attribute->has_s = true;
		attribute->s = (ProtobufCBinaryData){ strlen(value), (uint8_t *)copy(value) };
	} else if (strpbrk(value, ".e")) {
		attribute->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT;
		attribute->has_f = true;
		attribute->f = (float)number;
	} else {
		attribute->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
		attribute->has_i = true;
		attribute->i = (int64_t)number;
	}
	return attribute;
}

static char **names(char *text, size_t *count_p)
{
	char **list = pd_arena_take(&arena, 16, sizeof(*list)), *name;

	while ((name = strsep(&text, ",")))
		list[(*count_p)++] = *name == '#' ? add_constant(name) : copy(name);
	return list;
}

/* Says something of a node or value, in a field that the definition of ONNX does not have yet. */
static void add_metadata(ProtobufCMessage *base, unsigned tag, const char *key, char *value)
{
	Onnx__StringStringEntryProto entry = ONNX__STRING_STRING_ENTRY_PROTO__INIT;
	ProtobufCMessageUnknownField *field = &base->unknown_fields[base->n_unknown_fields++];
	size_t size;

	entry.key = (char *)(uintptr_t)key;
	entry.value = value;
	size = onnx__string_string_entry_proto__get_packed_size(&entry);
	field->tag = tag;
	field->wire_type = PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED;
	field->len = size + 2;
	field->data = pd_arena_take(&arena, size + 2, 1);
	field->data[0] = (uint8_t)(size | 128);
	field->data[1] = (uint8_t)(size >> 7);
	onnx__string_string_entry_proto__pack(&entry, field->data + 2);
	free(value);
}

#define SPEC "pkg.torch.export.graph_signature.InputSpec."

/* Says of a tensor that it was no parameter. */
static void add_role(const char *name, const char *role)
{
	Onnx__ValueInfoProto *value = new_value(name, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, copy(""));

	value->base.unknown_fields = pd_arena_take(&arena, 2, sizeof(*value->base.unknown_fields));
	add_metadata(&value->base, 4, SPEC "kind", pd_strdup(strcmp(role, "constant") == 0 ? "CONSTANT_TENSOR" : "BUFFER"));
	add_metadata(&value->base, 4, SPEC "persistent", pd_strdup(strcmp(role, "buffer") == 0 ? "True" : "False"));
	values[graph.n_value_info++] = value;
}

static void set_module(Onnx__NodeProto *node, char *module)
{
	const char *name = strsep(&module, ":");

	node->base.unknown_fields = pd_arena_take(&arena, 2, sizeof(*node->base.unknown_fields));
	add_metadata(&node->base, 9, "pkg.torch.onnx.name_scopes", pd_format("['', '%s', 'operation']", name));
	if (module)
		add_metadata(&node->base, 9, "pkg.torch.onnx.fx_node",
			     pd_format("%%e : [num_users=1] = call_function[target=torch.ops.aten.embedding.default]"
				       "(args = (%%w, %%x, %s), kwargs = {})", module));
}

static void add_node(char *op, char *rest)
{
	Onnx__NodeProto *node = NEW(Onnx__NodeProto, ONNX__NODE_PROTO__INIT);
	char *in = strsep(&rest, " "), *word;

	node->op_type = copy(strsep(&op, "@"));
	if (op)
		set_module(node, op);
	node->input = names(in, &node->n_input);
	strsep(&rest, " ");
	node->output = names(strsep(&rest, " "), &node->n_output);
	node->attribute = pd_arena_take(&arena, 16, sizeof(*node->attribute));
	while ((word = strsep(&rest, " ")))
		node->attribute[node->n_attribute++] = new_attribute(word);
	nodes[graph.n_node++] = node;
}

static void add_line(char *line)
{
	char *word = strsep(&line, " "), *name;

	bool kept = strcmp(word, "buffer") == 0 || strcmp(word, "transient") == 0 || strcmp(word, "constant") == 0;

	if (!kept && strcmp(word, "input") != 0 && strcmp(word, "tokens") != 0 && strcmp(word, "tensor") != 0 &&
	    strcmp(word, "output") != 0) {
		add_node(word, line);
		return;
	}
	name = strsep(&line, " ");
	if (kept)
		add_role(name, word);
	if (*word == 'o')
		outputs[graph.n_output++] = new_value(name, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, copy(""));
	else if (kept || strcmp(word, "tensor") == 0)
		add_tensor(name, line ? line : copy(""));
	else
		inputs[graph.n_input++] = new_value(name, *word == 'i' ? ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT
						    : ONNX__TENSOR_PROTO__DATA_TYPE__INT64, line);
}

void onnx_write(const char *file, const char *text)
{
	Onnx__ModelProto model = ONNX__MODEL_PROTO__INIT;
	char *all, *rest, *line;
	uint8_t *bytes;

	graph = (Onnx__GraphProto)ONNX__GRAPH_PROTO__INIT;
	constants = 0;
	graph.node = nodes;
	graph.initializer = tensors;
	graph.input = inputs;
	graph.output = outputs;
	graph.value_info = values;
	all = rest = copy(text);
	while ((line = strsep(&rest, "\n")))
		if (*line)
			add_line(line);
	model.has_ir_version = true;
	model.ir_version = 10;
	model.graph = &graph;
	bytes = pd_zalloc(onnx__model_proto__get_packed_size(&model) + 1);
	scratch_write(file, bytes, onnx__model_proto__pack(&model, bytes));
	free(bytes);
	pd_arena_release(&arena);
	(void)all;
}
