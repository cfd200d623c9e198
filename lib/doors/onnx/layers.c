/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layers that nodes become.  They are called like the modules of PyTorch that they come of: by the names of
 * parameters, or by the scopes that nodes carry; a number follows where several would be called alike.
 */
#include "doors/onnx/graph.h"

#include "base/mem.h"
#include "base/names.h"
#include "doors/onnx/number.h"

#include <math.h>
#include <stdlib.h>

#define MOST_DIMS 4                     /* of a parameter */
#define MOST_LISTED 16384               /* numbers of a tensor in a document */

int layer_add(struct graph *g, const char *kind, const struct pd_onnx_node *node, int inputs,
	      const int *input, const struct extent *sample, json_t *attributes)
{
	const struct extent own = *sample;              /* perhaps that of a layer, which may move */
	struct layer *layer;
	int most = (int)PD_COUNT(layer->input);

	g->layers = pd_grow(g->layers, &g->layer_room, (size_t)g->layer_count + 1, sizeof(*g->layers));
	layer = &g->layers[g->layer_count];
	*layer = (struct layer){ .kind = kind, .node = node, .inputs = inputs, .attributes = attributes,
				 .shares = -1, .sample = own, .as_layer = -1, .placed = -1 };
	for (int i = 0; i < inputs && i < most; i++)
		layer->input[i] = input[i];
	if (inputs > most)
		layer->more = pd_memdup(input + most, (size_t)(inputs - most) * sizeof(*input));
	return g->layer_count++;
}

int layer_add_one(struct graph *g, const char *kind, const struct pd_onnx_node *node, int input,
		  const struct extent *sample, json_t *attributes)
{
	return layer_add(g, kind, node, 1, &input, sample, attributes);
}

static int input_of(const struct layer *layer, int i)
{
	int most = (int)PD_COUNT(layer->input);

	return i < most ? layer->input[i] : layer->more[i - most];
}

static bool ends_with(const char *text, size_t length, const char *end)
{
	size_t count = strlen(end);

	return length > count && strncmp(text + length - count, end, count) == 0;
}

/*
 * The module that a parameter is of.  Where a node of another module reads it, it has two names there (it is
 * tied), and the module's counts.
 */
static const char *module_of(struct graph *g, const struct pd_onnx_tensor *tensor, const char *parameter,
			     const char *scope)
{
	size_t length = strlen(tensor->name), inside = strlen(scope);
	const char *dotted = graph_text(g, ".%s", parameter), *joined = graph_text(g, "_%s", parameter);

	if (inside > 0 && (strncmp(tensor->name, scope, inside) != 0 || tensor->name[inside] != '.'))
		return scope;
	if (ends_with(tensor->name, length, dotted) || ends_with(tensor->name, length, joined))
		length -= strlen(dotted);
	return graph_text(g, "%.*s", (int)length, tensor->name);
}

static const struct owner *owner_of(const struct graph *g, const struct pd_onnx_tensor *tensor)
{
	for (int i = 0; i < g->owner_count; i++)
		if (g->owners[i].tensor == tensor)
			return &g->owners[i];
	return NULL;
}

int layer_owner(const struct graph *g, const struct pd_onnx_tensor *tensor)
{
	const struct owner *owner = owner_of(g, tensor);

	return owner ? owner->layer : -1;
}

/*
 * PyTorch has all names of a tied parameter, ONNX only one.  Others are those of the owner's module, and of one that
 * looks up rows; a product with a weight may be of a module that has none.
 */
static void share(struct graph *g, struct layer *layer, int owner, const char *parameter,
		  const struct pd_onnx_tensor *tensor)
{
	const char *other = graph_text(g, "%s.%s", g->layers[owner].own, parameter);
	const char *mine = strcmp(layer->kind, "embedding") == 0 ? graph_text(g, "%s.%s", layer->own, parameter) : other;
	json_t *name;

	layer->shares = owner;
	/* what is no module's parameter of that name is not looked for in one */
	if (!ends_with(tensor->name, strlen(tensor->name), graph_text(g, ".%s", parameter)) ||
	    (strcmp(other, tensor->name) == 0 && strcmp(mine, tensor->name) == 0))
		return;
	name = strcmp(mine, other) == 0 || strcmp(mine, tensor->name) == 0 ? json_string(other)
		: json_pack("{s:s, s:[s]}", "name", other, "also", mine);
	if (!layer->names)
		layer->names = json_object();
	pd_json_set(layer->names, parameter, name);
}

/*
 * What modules of transformers have under two names, of which forward uses one, by endings.  beside: so is called
 * a parameter that such a network has.
 */
static const struct {
	const char *name, *other, *beside;
} twice[] = {
	{ "cls.predictions.decoder.bias", "cls.predictions.bias", "cls.predictions.transform.dense.weight" },
	{ "encoder.embed_tokens.weight", "shared.weight",
	  "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight" },
};

/* Returns the other name of a parameter, or NULL. */
static const char *other_name(struct graph *g, const char *name)
{
	for (size_t i = 0; i < PD_COUNT(twice); i++) {
		size_t length = strlen(name) - (pd_name_ends(name, twice[i].name) ? strlen(twice[i].name) : 0);
		const struct value *beside;

		if (length == strlen(name))
			continue;
		beside = graph_find(g, graph_text(g, "%.*s%s", (int)length, name, twice[i].beside));
		if (beside && beside->tensor)
			return graph_text(g, "%.*s%s", (int)length, name, twice[i].other);
	}
	return NULL;
}

bool layer_keeps(const struct pd_onnx_tensor *tensor)
{
	return tensor->role != PD_ONNX_PARAMETER;
}

/* The numbers of a tensor, as the layer has them, or NULL: there are too many, or they cannot be read. */
static json_t *list_numbers(const struct graph *g, const struct pd_onnx_tensor *tensor,
			    bool transposed)
{
	struct pd_onnx_tensor copy = *tensor;
	int64_t rows = transposed ? tensor->size[0] : 1, columns = tensor->elements / rows;
	struct pd_error err;
	json_t *list;
	float *numbers;

	if (tensor->elements > MOST_LISTED)
		return NULL;
	numbers = pd_calloc((size_t)tensor->elements, sizeof(*numbers));
	list = pd_onnx_read(g->onnx, &copy, numbers, &err) < 0 ? NULL : json_array();
	for (int64_t i = 0; list && i < tensor->elements; i++) {
		float number = numbers[i % rows * columns + i / rows];

		if (isfinite(number) && fabsf(number) < 1e38f) {
			pd_json_add(list, json_real(shortest(number)));
		} else {
			json_decref(list);
			list = NULL;
		}
	}
	free(numbers);
	return list;
}

/*
 * What is no parameter in PyTorch begins as it is, and stays so.  *more_p says how the tensor differs; *absent_p: the
 * outside has no such tensor.
 */
static void keep(struct graph *g, struct layer *layer, const char *parameter,
		 const struct pd_onnx_tensor *tensor, json_t **more_p, bool *absent_p)
{
	json_t *numbers = list_numbers(g, tensor, json_is_true(json_object_get(*more_p, "transpose")));

	layer->frozen = true;
	*absent_p = numbers && tensor->role == PD_ONNX_CONSTANT;
	if (!numbers && tensor->role == PD_ONNX_CONSTANT) {
		*more_p = *more_p ? *more_p : json_object();
		pd_json_set(*more_p, "export", json_false());
	}
	if (!layer->init)
		layer->init = json_object();
	pd_json_set(layer->init, parameter, numbers ? numbers : json_string("given"));
}

void layer_parameter(struct graph *g, int number, const char *parameter, const struct pd_onnx_tensor *tensor,
		     json_t *more)
{
	struct layer *layer = &g->layers[number];
	int owner = layer_owner(g, tensor);
	bool state = strncmp(parameter, "running_", 8) == 0, absent = false;
	bool turned = json_is_true(json_object_get(more, "transpose"));
	const char *other;

	if (!state && layer->owned && layer->frozen != layer_keeps(tensor))
		layer->wrong = graph_text(g, "%.100s: is a %s, and other parameters of its %s are not: expected the same "
					  "of all", tensor->name, layer->frozen ? "parameter" : "buffer", layer->kind);
	layer->owned |= !state;
	if (!layer->own)
		layer->own = module_of(g, tensor, parameter, layer->node->scope);
	if (owner >= 0 && owner != number) {
		if (owner_of(g, tensor)->turned != turned)
			layer->wrong = graph_text(g, "%.100s: is multiplied with as it is, and transposed: expected one of "
						  "both", tensor->name);
		json_decref(more);
		share(g, layer, owner, parameter, tensor);
		return;
	}
	if (!state && layer_keeps(tensor))
		keep(g, layer, parameter, tensor, &more, &absent);
	other = other_name(g, graph_text(g, "%s.%s", layer->own, parameter));
	g->owners = pd_grow(g->owners, &g->owner_room, (size_t)g->owner_count + 1, sizeof(*g->owners));
	g->owners[g->owner_count++] = (struct owner){ tensor, number, turned };
	if (!layer->names)
		layer->names = json_object();
	if (other) {
		more = more ? more : json_object();
		pd_json_set(more, "also", json_pack("[s]", other));
	}
	if (absent) {
		json_decref(more);
		pd_json_set(layer->names, parameter, json_null());
	} else if (more) {
		pd_json_set(more, "name", json_string(tensor->name));
		pd_json_set(layer->names, parameter, more);
	} else {
		pd_json_set(layer->names, parameter, json_string(tensor->name));
	}
}

static json_t *sizes(const int64_t *size, int dims)
{
	json_t *list = json_array();

	for (int d = 0; d < dims; d++)
		pd_json_add(list, json_integer(size[d]));
	return list;
}

void layer_of_parameter(struct graph *g, struct view *view, const struct pd_onnx_node *node,
			const struct extent *shape)
{
	struct pd_onnx_tensor *tensor = g->layers[view->base].tensor;
	int number = g->layers[view->base].as_layer;
	bool same = shape->dims == tensor->dims &&
		    memcmp(shape->size, tensor->size, (size_t)shape->dims * sizeof(*shape->size)) == 0;

	if (number < 0) {
		number = layer_add_one(g, "parameter", node, g->first_input, shape,
				       json_pack("{s:o}", "shape", sizes(shape->size, shape->dims)));
		layer_parameter(g, number, "weight", tensor, same ? NULL
				: json_pack("{s:o}", "shape", sizes(tensor->size, tensor->dims)));
		g->layers[view->base].as_layer = number;
	}
	view->base = number;
}

/* Counts the elements from each of an axis to the next, and tells whether they differ along it. */
static bool varies(const struct array *array, int axis)
{
	int64_t inner = array_part(array, axis + 1, array->dims), size = array->size[axis];

	for (int64_t i = 0; i < array->elements; i++)
		if (array_real(array, i) != array_real(array, i - i / inner % size * inner))
			return true;
	return false;
}

static int check_constant(const struct pd_onnx_node *node, const struct value *value,
			  const struct extent *shape, struct pd_error *err)
{
	const struct array *array = value->constant;
	int64_t elements = 1;

	for (int d = 0; d < shape->dims; d++)
		elements *= shape->size[d];
	if (elements > MOST_LISTED || array->elements == 0)
		return graph_error(node, err, "computes with a constant, %.100s, of %lld numbers: expected one that is a "
				   "buffer (register_buffer), or at most %d numbers", value->name, (long long)elements,
				   MOST_LISTED);
	for (int64_t i = 0; i < array->elements; i++)
		if (!(fabs(array_real(array, i)) < 1e38))
			return graph_error(node, err, "computes with a constant, %.100s, of which a number is not finite",
					   value->name);
	return 0;
}

int layer_of_constant(struct graph *g, const struct pd_onnx_node *node, const struct value *value,
		      struct view *view, struct pd_error *err)
{
	const struct array *array = value->constant;
	struct extent shape = { .dims = 0 };
	int64_t stride = 1;
	bool changes[PD_ONNX_DIMS] = { 0 };
	int layer;

	for (int d = 0; d < array->dims; d++) {
		changes[d] = array->elements > 0 && varies(array, d);
		if (changes[d] || shape.dims > 0)
			shape.size[shape.dims++] = changes[d] ? array->size[d] : 1;
	}
	if (check_constant(node, value, &shape, err) < 0)
		return -1;
	for (int d = 0; d < shape.dims; d++)
		stride *= shape.size[d];
	if (shape.dims == 0 || shape.dims > MOST_DIMS)
		shape = (struct extent){ 1, { stride } };
	layer = layer_add_one(g, "parameter", value->node ? value->node : node, g->first_input, &shape,
			      json_pack("{s:o}", "shape", sizes(shape.size, shape.dims)));
	g->layers[layer].numbers = array;
	g->layers[layer].frozen = g->layers[layer].owned = true;
	g->layers[layer].names = json_pack("{s:n}", "weight");
	*view = (struct view){ .base = layer };
	for (int d = 0; d < array->dims; d++) {
		stride /= changes[d] ? array->size[d] : 1;
		if (!view_axis(view) || !view_factor(view, array->size[d], changes[d] ? stride : REPEATED))
			return graph_error(node, err, "computes with a constant of too many axes");
	}
	return 0;
}

void layer_needed(struct graph *g, int number)
{
	int *stack = NULL, count = 0;
	size_t room = 0;

	stack = pd_grow(stack, &room, 1, sizeof(*stack));
	stack[count++] = number;
	while (count > 0) {
		struct layer *layer = &g->layers[stack[--count]];

		if (layer->live)
			continue;
		layer->live = true;
		stack = pd_grow(stack, &room, (size_t)(count + layer->inputs + 1), sizeof(*stack));
		for (int i = 0; i < layer->inputs; i++)
			stack[count++] = input_of(layer, i);
		if (layer->shares >= 0)
			stack[count++] = layer->shares;
	}
	free(stack);
}

/* What is known of the layers of one scope. */
static bool inside(const char *name, const char *scope)
{
	size_t length = strlen(scope);

	return strncmp(name, scope, length) == 0 && name[length] == '.';
}

static const char *scope_of(const struct layer *layer)
{
	return layer->own ? layer->own : layer->node ? layer->node->scope : "";
}

static int by_scope(const void *a, const void *b)
{
	return strcmp(scope_of(*(const struct layer *const *)a), scope_of(*(const struct layer *const *)b));
}

/* Is there another kind of layer in the scope of a layer, or one further inside?  The list is sorted by scope. */
static bool has_more(struct layer *const *list, int count, int i)
{
	const char *scope = scope_of(list[i]);
	int begin = i;

	while (begin > 0 && strcmp(scope_of(list[begin - 1]), scope) == 0)
		begin--;
	for (int k = begin; k < count; k++) {
		const char *other = scope_of(list[k]);

		if (inside(other, scope))
			return true;
		if (strcmp(other, scope) == 0 ? strcmp(list[k]->kind, list[i]->kind) != 0 || list[k]->own
					      : strncmp(other, scope, strlen(scope)) != 0)
			return strcmp(other, scope) == 0;
	}
	return false;
}

/* Sets a name that no other layer has. */
static void set_name(struct graph *g, struct layer *layer, const char *name, json_t *taken)
{
	int64_t uses = json_integer_value(json_object_get(taken, name));

	layer->name = uses == 0 ? name : graph_text(g, "%s_%d", name, (int)uses + 1);
	pd_json_set(taken, name, json_integer(uses + 1));
	if (uses > 0) {
		if (json_object_get(taken, layer->name))
			set_name(g, layer, name, taken);
		else
			pd_json_set(taken, layer->name, json_integer(1));
	}
}

static void name_layers(struct graph *g, json_t *taken)
{
	struct layer **list = pd_calloc((size_t)g->layer_count + 1, sizeof(struct layer *));
	const char **names = pd_calloc((size_t)g->layer_count + 1, sizeof(*names));
	int count = 0;

	for (int i = 0; i < g->layer_count; i++)
		if (g->layers[i].live && g->layers[i].kind)
			list[count++] = &g->layers[i];
	qsort(list, (size_t)count, sizeof(*list), by_scope);
	for (int i = 0; i < count; i++) {
		const char *scope = scope_of(list[i]);

		names[list[i] - g->layers] = list[i]->own ? list[i]->own : !*scope ? list[i]->kind
			: has_more(list, count, i) ? graph_text(g, "%s.%s", scope, list[i]->kind) : scope;
	}
	/* Names of parameters count first, then each layer in its turn. */
	for (int own = 1; own >= 0; own--)
		for (int i = 0; i < g->layer_count; i++)
			if (names[i] && !own == !g->layers[i].own)
				set_name(g, &g->layers[i], names[i], taken);
	free(list);
	free(names);
}

/* Leaves out names that are what they would be anyway. */
static json_t *other_names(struct layer *layer)
{
	const char *parameter;
	json_t *name;
	void *next;

	json_object_foreach_safe(layer->names, next, parameter, name) {
		char *usual = pd_format("%s.%s", layer->name, parameter);

		if (json_is_string(name) && strcmp(json_string_value(name), usual) == 0)
			json_object_del(layer->names, parameter);
		free(usual);
	}
	return json_object_size(layer->names) > 0 ? layer->names : NULL;
}

/* What a constant begins with: of axes along which its numbers are the same the first. */
static json_t *constant_init(const struct array *array)
{
	json_t *list = json_array();
	bool changes[PD_ONNX_DIMS];

	for (int d = 0; d < array->dims; d++)
		changes[d] = varies(array, d);
	for (int64_t i = 0; i < array->elements; i++) {
		bool first = true;

		for (int d = 0; first && d < array->dims; d++)
			first = changes[d] || i / array_part(array, d + 1, array->dims) % array->size[d] == 0;
		if (first)
			pd_json_add(list, json_real(shortest(array_real(array, i))));
	}
	return json_pack("{s:o}", "weight", list);
}

static json_t *layer_json(const struct graph *g, struct layer *layer)
{
	json_t *inputs = json_array(), *json;

	for (int i = 0; i < layer->inputs; i++)
		pd_json_add(inputs, json_string(g->layers[input_of(layer, i)].name));
	json = json_pack("{s:s, s:s, s:o}", "name", layer->name, "kind", layer->kind, "inputs", inputs);
	if (layer->attributes)
		json_object_update(json, layer->attributes);
	if (layer->shares >= 0)
		pd_json_set(json, "shares", json_string(g->layers[layer->shares].name));
	if (layer->frozen && layer->shares < 0)
		pd_json_set(json, "frozen", json_true());
	if (layer->numbers)
		pd_json_set(json, "init", constant_init(layer->numbers));
	if (layer->init && layer->shares < 0)
		pd_json_set(json, "init", json_incref(layer->init));
	if (layer->names && other_names(layer))
		pd_json_set(json, "names", json_incref(layer->names));
	return json;
}

static json_t *input_json(const struct layer *input)
{
	return json_pack("{s:s, s:s, s:o}", "name", input->name, "dtype", input->whole ? "i32" : "f32", "shape",
			 sizes(input->sample.size, input->sample.dims));
}

void layers_finish(struct graph *g, json_t **inputs_p, json_t **layers_p)
{
	json_t *taken = json_object();

	*inputs_p = json_array();
	*layers_p = json_array();
	for (int i = 0; i < g->layer_count; i++)
		if (!g->layers[i].kind && !g->layers[i].tensor && g->layers[i].live)
			pd_json_set(taken, g->layers[i].name, json_integer(1));
	name_layers(g, taken);
	json_decref(taken);
	for (int i = 0; i < g->layer_count; i++) {
		struct layer *layer = &g->layers[i];

		if (layer->live && layer->kind)
			pd_json_add(*layers_p, layer_json(g, layer));
		else if (layer->live && !layer->tensor)
			pd_json_add(*inputs_p, input_json(layer));
	}
}
