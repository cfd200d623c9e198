/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/initial.h"

#include "base/mem.h"
#include "base/names.h"
#include "checkpoint/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct pd_initial {
	struct pd_safetensors *st;
	json_t *known;                  /* all names of the model -> the name under which the owner
					   has the tensor */
	json_t *found;                  /* these tensors -> a name in the file */
	int missing;
	char *first_missing;
};

void pd_initial_close(struct pd_initial *initial)
{
	if (!initial)
		return;
	pd_safetensors_close(initial->st);
	json_decref(initial->known);
	json_decref(initial->found);
	free(initial->first_missing);
	free(initial);
}

/* Writes "[3, 2, 5, 5]" into buf. */
static void show_shape(const int64_t *size, int dims, char *buf, size_t bytes)
{
	size_t used = (size_t)snprintf(buf, bytes, "[");

	for (int i = 0; i < dims; i++)
		used += (size_t)snprintf(buf + used, bytes - used, "%s%" PRId64, i ? ", " : "",
					 size[i]);
	snprintf(buf + used, bytes - used, "]");
}

static int check_shape(const struct pd_initial *initial, const struct pd_tensor *tensor,
		       const int64_t *size, int dims, struct pd_error *err)
{
	char is[PD_TENSOR_DIMS * 22 + 3], expected[PD_TENSOR_DIMS * 22 + 3];

	if (tensor->dims == dims && memcmp(tensor->size, size, (size_t)dims * sizeof(*size)) == 0)
		return 0;
	show_shape(tensor->size, tensor->dims, is, sizeof(is));
	show_shape(size, dims, expected, sizeof(expected));
	return pd_error_input(err, "%s: \"%.120s\": expected shape %s, found %s",
			      pd_safetensors_file(initial->st), tensor->name, expected, is);
}

/* Checks that two names of one tensor have the same numbers. */
static int check_same(const struct pd_initial *initial, const struct pd_tensor *a,
		      const struct pd_tensor *b, struct pd_error *err)
{
	float *first = pd_calloc((size_t)a->elements, sizeof(*first));
	float *second = pd_calloc((size_t)b->elements, sizeof(*second));
	int status = pd_safetensors_read(initial->st, a, first, err) < 0 ||
		     pd_safetensors_read(initial->st, b, second, err) < 0 ? -1 : 0;

	if (status == 0 && memcmp(first, second, (size_t)a->elements * sizeof(*first)) != 0)
		status = pd_error_input(err, "%s: \"%.100s\" and \"%.100s\" differ: expected the same, "
					"since the model's layers share them",
					pd_safetensors_file(initial->st), a->name, b->name);
	free(first);
	free(second);
	return status;
}

/* Looks for a tensor of the model, called name, which is the one called owner. */
static int look_for(struct pd_initial *initial, const char *name, const char *owner,
		    const int64_t *size, int dims, struct pd_error *err)
{
	const struct pd_tensor *tensor = pd_safetensors_find(initial->st, name), *before;
	json_t *found = json_object_get(initial->found, owner);

	pd_json_set(initial->known, name, json_true());
	if (!tensor)
		return 0;
	if (check_shape(initial, tensor, size, dims, err) < 0)
		return -1;
	if (strcmp(tensor->dtype, "F32") != 0 && strcmp(tensor->dtype, "F16") != 0 &&
	    strcmp(tensor->dtype, "BF16") != 0)
		return pd_error_input(err, "%s: \"%.120s\": expected type F32, F16 or BF16, found %s",
				      pd_safetensors_file(initial->st), name, tensor->dtype);
	if (!found) {
		pd_json_set(initial->found, owner, json_string(name));
		return 0;
	}
	before = pd_safetensors_find(initial->st, json_string_value(found));
	return check_same(initial, before, tensor, err);
}

static int look_for_layer(struct pd_initial *initial, const struct pd_model *model,
			  const struct pd_layer *layer, struct pd_error *err)
{
	const struct pd_layer *owner = layer->shares < 0 ? layer : &model->layers[layer->shares];
	int status = 0;

	for (int p = 0; p < layer->parameter_count && status == 0; p++) {
		const struct pd_layer_tensor *parameter = &layer->parameters[p];
		char *name = pd_format("%s.%s", layer->name, parameter->name);
		char *whose = pd_format("%s.%s", owner->name, parameter->name);

		status = look_for(initial, name, whose, parameter->size, parameter->dims, err);
		free(name);
		free(whose);
	}
	for (int s = 0; s < layer->state_count && status == 0; s++) {
		const struct pd_layer_tensor *state = &layer->states[s];
		char *name = pd_format("%s.%s", layer->name, state->name);

		status = look_for(initial, name, name, state->size, state->dims, err);
		free(name);
	}
	return status;
}

static void note_missing(struct pd_initial *initial, const char *layer, const char *what)
{
	char *name = pd_format("%s.%s", layer, what);

	if (json_object_get(initial->found, name)) {
		free(name);
		return;
	}
	if (initial->missing++ == 0)
		initial->first_missing = name;
	else
		free(name);
}

/*
 * Tells whether the name is of something that PyTorch saves with a normalisation's statistics and
 * nothing here uses.
 */
static bool overlooked(const struct pd_model *model, const char *name)
{
	static const char what[] = ".num_batches_tracked";
	size_t length = strlen(name), ending = strlen(what);
	char *layer;
	int l;

	if (length <= ending || strcmp(name + length - ending, what) != 0)
		return false;
	layer = pd_format("%.*s", (int)(length - ending), name);
	l = pd_model_find(model, layer);
	free(layer);
	return l >= 0 && model->layers[l].state_count > 0;
}

/*
 * Returns the tensor of the file, of those that the model has no place for, whose name is most like the
 * one that is wanted, else the first of them; NULL: there is none.
 */
static const char *stranger(const struct pd_initial *initial, const struct pd_model *model,
			    const char *wanted)
{
	struct pd_likeness likeness = { .word = wanted };
	const struct pd_tensor *list;
	size_t count = pd_safetensors_list(initial->st, &list);
	const char *first = NULL;

	for (size_t i = 0; i < count; i++)
		if (!json_object_get(initial->known, list[i].name) && !overlooked(model, list[i].name)) {
			pd_likeness_try(&likeness, list[i].name);
			first = first ? first : list[i].name;
		}
	return likeness.name ? likeness.name : first;
}

static int check_complete(struct pd_initial *initial, const struct pd_model *model,
			  struct pd_error *err)
{
	const char *other;
	char more[64] = "", but[160] = "";

	for (int l = 0; l < model->layer_count; l++) {
		const struct pd_layer *layer = &model->layers[l];

		for (int p = 0; layer->shares < 0 && p < layer->parameter_count; p++)
			note_missing(initial, layer->name, layer->parameters[p].name);
		/* lanes begin with zeros */
		for (int s = 0; layer->lanes == 0 && s < layer->state_count; s++)
			note_missing(initial, layer->name, layer->states[s].name);
	}
	if (initial->missing == 0)
		return 0;
	if (initial->missing > 1)
		snprintf(more, sizeof(more), " and %d more tensors", initial->missing - 1);
	other = stranger(initial, model, initial->first_missing);
	if (other)
		snprintf(but, sizeof(but), ", but \"%.120s\"", other);
	return pd_error_input(err, "%s: expected \"%.120s\"%s of model \"%.80s\", found nothing of that "
			      "name%s", pd_safetensors_file(initial->st), initial->first_missing, more,
			      model->name ? model->name : "", but);
}

static int check_nothing_else(const struct pd_initial *initial, const struct pd_model *model,
			      struct pd_error *err)
{
	const char *other = stranger(initial, model, "");

	if (!other)
		return 0;
	return pd_error_input(err, "%s: \"%.120s\": model \"%.80s\" has no such parameter",
			      pd_safetensors_file(initial->st), other, model->name ? model->name : "");
}

struct pd_initial *pd_initial_open(const char *file, const struct pd_model *model,
				   struct pd_error *err)
{
	struct pd_initial *initial = pd_zalloc(sizeof(*initial));
	int status;

	initial->known = json_object();
	initial->found = json_object();
	initial->st = pd_safetensors_open(file, err);
	status = initial->st ? 0 : -1;
	for (int l = 0; l < model->layer_count && status == 0; l++)
		status = look_for_layer(initial, model, &model->layers[l], err);
	if (status < 0 || check_complete(initial, model, err) < 0 ||
	    check_nothing_else(initial, model, err) < 0) {
		pd_initial_close(initial);
		return NULL;
	}
	return initial;
}

int pd_initial_read(const struct pd_initial *initial, const char *name, int64_t elements, float *out,
		    struct pd_error *err)
{
	const char *found = pd_member_text(initial->found, name);
	const struct pd_tensor *tensor = found ? pd_safetensors_find(initial->st, found) : NULL;

	if (!tensor || tensor->elements != elements)
		return pd_error_input(err, "%s: no \"%.120s\" of %" PRId64 " elements",
				      pd_safetensors_file(initial->st), name, elements);
	return pd_safetensors_read(initial->st, tensor, out, err);
}
