/* SPDX-License-Identifier: Apache-2.0 */
#include "model/same.h"

#include "base/mem.h"
#include "model/layer.h"

#include <stdlib.h>
#include <string.h>

#define NONE "no such layer"

/* Attributes that only training reads. */
static const char *const of_training[] = {
	"p", "dropout", "weight_dropout", "label_smoothing", "momentum", NULL
};

static bool is_of_training(const char *attribute)
{
	const char *const *one = of_training;

	while (*one && strcmp(*one, attribute) != 0)
		one++;
	return *one;
}

/* Returns the names of a layer's inputs, with commas between them; free() it. */
static char *input_names(const struct pd_model *model, const struct pd_layer *layer)
{
	char *names = pd_strdup("");

	for (int i = 0; i < layer->input_count; i++) {
		char *more = pd_format("%s%s%s", names, i ? ", " : "",
				       pd_model_tensor_name(model, layer->inputs[i]));

		free(names);
		names = more;
	}
	return names;
}

static const char *owner_name(const struct pd_model *model, const struct pd_layer *layer)
{
	return layer->shares < 0 ? "its own" : model->layers[layer->shares].name;
}

static void compare_layer(const struct pd_model *was, const struct pd_layer *a,
			  const struct pd_model *is, const struct pd_layer *b,
			  pd_model_differs *differs, void *context)
{
	enum pd_difference how = pd_layer_is(a, PD_KIND_LOSS) && pd_layer_is(b, PD_KIND_LOSS)
		? PD_DIFFERS_TRAINING : PD_DIFFERS_FUNCTION;
	char *from_a = input_names(was, a), *from_b = input_names(is, b);
	char text_a[PD_ATTRIBUTE_TEXT], text_b[PD_ATTRIBUTE_TEXT];
	const char *list = pd_kinds[b->kind].attributes, *key;

	if (a->kind != b->kind)
		differs(context, how, b->name, "kind", pd_layer_kind_name[a->kind],
			pd_layer_kind_name[b->kind]);
	else if (strcmp(from_a, from_b) != 0)
		differs(context, how, b->name, "inputs", from_a, from_b);
	else if (strcmp(owner_name(was, a), owner_name(is, b)) != 0)
		differs(context, how, b->name, "parameters of", owner_name(was, a),
			owner_name(is, b));
	while (a->kind == b->kind && (key = pd_layer_difference(a, b, &list, text_a, text_b)))
		differs(context, is_of_training(key) ? PD_DIFFERS_TRAINING : how, b->name, key,
			text_a, text_b);
	free(from_a);
	free(from_b);
}

static int find_input(const struct pd_model *model, const char *name)
{
	for (int i = 0; i < model->input_count; i++)
		if (strcmp(model->inputs[i].name, name) == 0)
			return i;
	return -1;
}

static void compare_inputs(const struct pd_model *was, const struct pd_model *is,
			   pd_model_differs *differs, void *context)
{
	for (int i = 0; i < is->input_count; i++) {
		const struct pd_input *b = &is->inputs[i];
		int found = find_input(was, b->name);
		const struct pd_input *a = found < 0 ? NULL : &was->inputs[found];
		char form_a[PD_SHAPE_TEXT] = "no such input", form_b[PD_SHAPE_TEXT];

		pd_shape_text(&b->shape, form_b);
		if (a)
			pd_shape_text(&a->shape, form_a);
		if (strcmp(form_a, form_b) != 0)
			differs(context, PD_DIFFERS_LAYERS, b->name, "shape", form_a, form_b);
		else if (a->dtype != b->dtype)
			differs(context, PD_DIFFERS_LAYERS, b->name, "dtype",
				pd_dtype_name[a->dtype], pd_dtype_name[b->dtype]);
	}
}

void pd_model_compare(const struct pd_model *was, const struct pd_model *is,
		      pd_model_differs *differs, void *context)
{
	compare_inputs(was, is, differs, context);
	for (int l = 0; l < is->layer_count; l++) {
		const struct pd_layer *layer = &is->layers[l];
		int found = pd_model_find(was, layer->name);

		if (found < 0)
			differs(context, PD_DIFFERS_LAYERS, layer->name, "kind", NONE,
				pd_layer_kind_name[layer->kind]);
		else
			compare_layer(was, &was->layers[found], is, layer, differs, context);
	}
	for (int l = 0; l < was->layer_count; l++)
		if (pd_model_find(is, was->layers[l].name) < 0)
			differs(context, PD_DIFFERS_LAYERS, was->layers[l].name, "kind",
				pd_layer_kind_name[was->layers[l].kind], NONE);
}
