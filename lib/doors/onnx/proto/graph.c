/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/onnx/proto/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *text_of(const char *text)
{
	return text ? text : "";
}

static void *allocate(struct pd_onnx *onnx, size_t count, size_t bytes)
{
	return pd_arena_take(&onnx->memory->arena, count ? count : 1, bytes);
}

/* A copy that ends with a zero byte, as the bytes of an attribute do not. */
static const char *text_of_bytes(struct pd_onnx *onnx, ProtobufCBinaryData bytes)
{
	char *text = allocate(onnx, bytes.len + 1, 1);

	if (bytes.len > 0)
		memcpy(text, bytes.data, bytes.len);
	return text;
}

static int read_attribute(struct pd_onnx *onnx, const Onnx__AttributeProto *from,
			  struct pd_onnx_attribute *attribute, struct pd_error *err)
{
	attribute->name = text_of(from->name);
	attribute->kind = PD_ONNX_OTHER;
	switch (from->type) {
	case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT:
		attribute->kind = PD_ONNX_NUMBER;
		attribute->number = from->f;
		break;
	case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT:
		attribute->kind = PD_ONNX_INTEGER;
		attribute->integer = from->i;
		break;
	case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING:
		attribute->kind = PD_ONNX_TEXT;
		attribute->text = text_of_bytes(onnx, from->s);
		break;
	case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS:
		attribute->kind = PD_ONNX_NUMBERS;
		attribute->numbers = from->floats;
		attribute->count = from->n_floats;
		break;
	case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS:
		attribute->kind = PD_ONNX_INTEGERS;
		attribute->integers = from->ints;
		attribute->count = from->n_ints;
		break;
	case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR:
		if (!from->t)
			break;
		attribute->kind = PD_ONNX_TENSOR;
		attribute->tensor = allocate(onnx, 1, sizeof(*attribute->tensor));
		return pd_onnx_tensor_of(onnx, from->t, attribute->tensor, err);
	default:
		break;
	}
	return 0;
}

static const char *const *read_names(struct pd_onnx *onnx, char *const *from, size_t count)
{
	const char **names = allocate(onnx, count, sizeof(*names));

	for (size_t i = 0; i < count; i++)
		names[i] = text_of(from[i]);
	return names;
}

static int read_node(struct pd_onnx *onnx, const Onnx__NodeProto *from, struct pd_onnx_node *node,
		     struct pd_error *err)
{
	struct pd_onnx_attribute *attributes = allocate(onnx, from->n_attribute, sizeof(*attributes));

	node->op = text_of(from->op_type);
	node->domain = text_of(from->domain);
	node->name = text_of(from->name);
	node->inputs = from->n_input;
	node->outputs = from->n_output;
	node->attributes = from->n_attribute;
	node->input = read_names(onnx, from->input, from->n_input);
	node->output = read_names(onnx, from->output, from->n_output);
	node->attribute = attributes;
	for (size_t i = 0; i < from->n_attribute; i++)
		if (read_attribute(onnx, from->attribute[i], &attributes[i], err) < 0)
			return -1;
	pd_onnx_scope(onnx, from, node);
	return 0;
}

static int read_value(const struct pd_onnx *onnx, const Onnx__ValueInfoProto *from,
		      struct pd_onnx_value *value, struct pd_error *err)
{
	const Onnx__TypeProto__Tensor *tensor =
		from->type && from->type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE
		? from->type->tensor_type : NULL;
	const Onnx__TensorShapeProto *shape = tensor ? tensor->shape : NULL;

	value->name = text_of(from->name);
	value->type = tensor ? tensor->elem_type : 0;
	value->dims = -1;
	if (!shape)
		return 0;
	if (shape->n_dim > PD_ONNX_DIMS)
		return pd_error_input(err, "%s: %s: expected at most %d axes, found %zu", onnx->file, value->name,
				      PD_ONNX_DIMS, shape->n_dim);
	value->dims = (int)shape->n_dim;
	for (int d = 0; d < value->dims; d++) {
		const Onnx__TensorShapeProto__Dimension *dim = shape->dim[d];
		bool known = dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE &&
			     dim->dim_value >= 0;

		value->size[d] = known ? dim->dim_value : -1;
		if (!known && !value->symbol)
			value->symbol =
				dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM &&
				dim->dim_param ? dim->dim_param : "?";
	}
	return 0;
}

static int compare_tensors(const void *a, const void *b)
{
	const struct pd_onnx_tensor *x = a, *y = b;

	return strcmp(x->name, y->name);
}

struct pd_onnx_tensor *pd_onnx_find(const struct pd_onnx *onnx, const char *name)
{
	struct pd_onnx_tensor key = { .name = name };

	return bsearch(&key, onnx->tensor, onnx->tensors, sizeof(key), compare_tensors);
}

static int read_tensors(struct pd_onnx *onnx, const Onnx__GraphProto *graph, struct pd_error *err)
{
	onnx->tensors = graph->n_initializer;
	onnx->tensor = allocate(onnx, onnx->tensors, sizeof(*onnx->tensor));
	for (size_t i = 0; i < onnx->tensors; i++)
		if (pd_onnx_tensor_of(onnx, graph->initializer[i], &onnx->tensor[i], err) < 0)
			return -1;
	qsort(onnx->tensor, onnx->tensors, sizeof(*onnx->tensor), compare_tensors);
	for (size_t i = 1; i < onnx->tensors; i++)
		if (strcmp(onnx->tensor[i - 1].name, onnx->tensor[i].name) == 0)
			return pd_error_input(err, "%s: %s: expected one tensor of that name, found two",
					      onnx->file, onnx->tensor[i].name);
	return 0;
}

static int read_values(struct pd_onnx *onnx, Onnx__ValueInfoProto *const *from, size_t count,
		       struct pd_onnx_value **values_p, size_t *count_p, struct pd_error *err)
{
	*values_p = allocate(onnx, count, sizeof(**values_p));
	for (size_t i = 0; i < count; i++) {
		struct pd_onnx_value *value = &(*values_p)[*count_p];

		if (read_value(onnx, from[i], value, err) < 0)
			return -1;
		/* Old files name tensors among the inputs, too. */
		if (values_p != &onnx->input || !pd_onnx_find(onnx, value->name))
			++*count_p;
	}
	return 0;
}

static void set_roles(struct pd_onnx *onnx, Onnx__ValueInfoProto *const *from, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct pd_onnx_tensor *tensor = pd_onnx_find(onnx, text_of(from[i]->name));

		if (tensor)
			tensor->role = pd_onnx_role_of(onnx, from[i]);
	}
}

static int read_nodes(struct pd_onnx *onnx, const Onnx__GraphProto *graph, struct pd_error *err)
{
	onnx->nodes = graph->n_node;
	onnx->node = allocate(onnx, onnx->nodes, sizeof(*onnx->node));
	for (size_t i = 0; i < onnx->nodes; i++)
		if (read_node(onnx, graph->node[i], &onnx->node[i], err) < 0)
			return -1;
	return 0;
}

int pd_onnx_graph(struct pd_onnx *onnx, struct pd_error *err)
{
	const Onnx__ModelProto *model = onnx->memory->model;
	const Onnx__GraphProto *graph = model->graph;

	if (!graph)
		return pd_error_input(err, "%s: expected an ONNX model, found one without a graph", onnx->file);
	onnx->producer = text_of(model->producer_name);
	for (size_t i = 0; i < model->n_opset_import; i++)
		if (!*text_of(model->opset_import[i]->domain))
			onnx->opset = model->opset_import[i]->version;
	if (read_tensors(onnx, graph, err) < 0)
		return -1;
	set_roles(onnx, graph->value_info, graph->n_value_info);
	return read_values(onnx, graph->input, graph->n_input, &onnx->input, &onnx->inputs, err) < 0 ||
	       read_values(onnx, graph->output, graph->n_output, &onnx->output, &onnx->outputs, err) < 0 ||
	       read_values(onnx, graph->value_info, graph->n_value_info, &onnx->value, &onnx->values, err) < 0 ||
	       read_nodes(onnx, graph, err) < 0 ? -1 : 0;
}

const struct pd_onnx_attribute *pd_onnx_attribute(const struct pd_onnx_node *node, const char *name,
						  enum pd_onnx_attribute_kind kind)
{
	for (size_t i = 0; i < node->attributes; i++)
		if (node->attribute[i].kind == kind && strcmp(node->attribute[i].name, name) == 0)
			return &node->attribute[i];
	return NULL;
}
