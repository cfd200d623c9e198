/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/tensors/initial_found.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define COMPARED (1 << 20)              /* elements at once */

void pd_initial_close(struct pd_initial *initial)
{
	if (!initial)
		return;
	pd_tensors_close(initial->tensors);
	pd_outsides_release(&initial->outside);
	pd_outsides_release(&initial->ours);
	json_decref(initial->known);
	json_decref(initial->found);
	free(initial->places);
	free(initial);
}

int pd_initial_checksum(const struct pd_initial *initial, uint64_t *sum_p, struct pd_error *err)
{
	return pd_tensors_checksum(initial->tensors, sum_p, err);
}

/* ---- reading ---- */

/* Columns of theirs are rows of ours. */
static int read_turned(const struct pd_initial *initial, const struct pd_found *place, int64_t row, int64_t rows,
		       float *out, struct pd_error *err)
{
	int64_t width = place->outside->size[1], inputs = place->outside->size[0];
	float *column = pd_calloc((size_t)rows, sizeof(*column));
	int status = 0;

	for (int64_t i = 0; i < inputs && status == 0; i++) {
		status = pd_tensors_read(initial->tensors, place->tensor, i * width + place->part->start + row,
					 rows, column, err);
		for (int64_t r = 0; r < rows; r++)
			out[r * inputs + i] = column[r];
	}
	free(column);
	return status;
}

/* Reads rows of the first axis of ours. */
static int read_rows(const struct pd_initial *initial, const struct pd_found *place, int64_t row, int64_t rows,
		     float *out, struct pd_error *err)
{
	const struct pd_layer_tensor *ours = place->part->tensor;
	int64_t elements = ours->elements / ours->size[0];

	if (place->outside->transposed)
		return read_turned(initial, place, row, rows, out, err);
	return pd_tensors_read(initial->tensors, place->tensor, (place->part->start + row) * elements,
			       rows * elements, out, err);
}

static const struct pd_found *find_place(const struct pd_initial *initial, const char *name)
{
	json_t *number = json_object_get(initial->found, name);

	return number ? &initial->places[json_integer_value(number)] : NULL;
}

bool pd_initial_has(const struct pd_initial *initial, const char *name)
{
	return find_place(initial, name) && !pd_initial_is_anew(initial, name);
}

int pd_initial_read(const struct pd_initial *initial, const char *name, int64_t elements, float *out,
		    struct pd_error *err)
{
	const struct pd_found *place = find_place(initial, name);

	if (!place || place->part->tensor->elements != elements)
		return pd_error_input(err, "%s: no \"%.120s\" of %" PRId64 " elements",
				      pd_tensors_path(initial->tensors), name, elements);
	return read_rows(initial, place, 0, place->part->tensor->size[0], out, err);
}

/* ---- finding ---- */

/* Writes "[3, 2, 5, 5]" into buf. */
static void show_shape(const int64_t *size, int dims, char *buf, size_t bytes)
{
	size_t used = (size_t)snprintf(buf, bytes, "[");

	for (int i = 0; i < dims; i++)
		used += (size_t)snprintf(buf + used, bytes - used, "%s%" PRId64, i ? ", " : "",
					 size[i]);
	snprintf(buf + used, bytes - used, "]");
}

static int check_form(const struct pd_initial *initial, const struct pd_tensor *tensor,
		      const struct pd_outside *outside, struct pd_error *err)
{
	char is[PD_TENSOR_DIMS * 22 + 3], expected[PD_TENSOR_DIMS * 22 + 3];
	const char *path = pd_tensors_path(initial->tensors);

	if (tensor->dims != outside->dims ||
	    memcmp(tensor->size, outside->size, (size_t)tensor->dims * sizeof(*tensor->size)) != 0) {
		show_shape(tensor->size, tensor->dims, is, sizeof(is));
		show_shape(outside->size, outside->dims, expected, sizeof(expected));
		return pd_error_input(err, "%s: \"%.120s\": expected shape %s, found %s%s%.80s%s", path, tensor->name,
				      expected, is, initial->anew ? " (--init-new=" : "", initial->anew ?
				      initial->model->layers[outside->parts[0].layer].name : "",
				      initial->anew ? " has the layer begin anew)" : "");
	}
	return pd_tensor_is_float(tensor) ? 0
		: pd_error_input(err, "%s: \"%.120s\": expected type " PD_TENSOR_FLOATS ", found %s", path,
				 tensor->name, tensor->dtype);
}

static bool differ(const float *a, const float *b, int64_t count)
{
	return memcmp(a, b, (size_t)count * sizeof(*a)) != 0;
}

/* Checks that both have the same numbers of one tensor of ours. */
static int check_same(const struct pd_initial *initial, const struct pd_found *a, const struct pd_found *b,
		      struct pd_error *err)
{
	const struct pd_layer_tensor *ours = a->part->tensor;
	int64_t rows = ours->size[0], width = ours->elements / rows, some = 1 + COMPARED / width;
	float *first, *second;
	int status = 0;

	if (some > rows)
		some = rows;
	first = pd_calloc((size_t)(some * width), sizeof(*first));
	second = pd_calloc((size_t)(some * width), sizeof(*second));
	for (int64_t row = 0; row < rows && status == 0; row += some) {
		int64_t count = rows - row < some ? rows - row : some;

		status = read_rows(initial, a, row, count, first, err) < 0 ||
			 read_rows(initial, b, row, count, second, err) < 0 ? -1 : 0;
		if (status == 0 && differ(first, second, count * width))
			status = pd_error_input(err, "%s: \"%.100s\" and \"%.100s\" differ: expected the same, "
						"since the model's layers share them",
						pd_tensors_path(initial->tensors), a->tensor->name,
						b->tensor->name);
	}
	free(first);
	free(second);
	return status;
}

/* Takes a part of theirs as the tensor of ours that it is, unless that was found before. */
static int take_part(struct pd_initial *initial, const struct pd_found *place, struct pd_error *err)
{
	char *name = pd_format("%s.%s", initial->model->layers[place->part->layer].name,
			       place->part->tensor->name);
	const struct pd_found *before = find_place(initial, name);
	int status = 0;

	if (before) {
		status = check_same(initial, before, place, err);
	} else {
		initial->places = pd_grow(initial->places, &initial->room, initial->count + 1,
					  sizeof(*initial->places));
		initial->places[initial->count] = *place;
		pd_json_set(initial->found, name, json_integer((json_int_t)initial->count++));
	}
	free(name);
	return status;
}

static int look_for(struct pd_initial *initial, const char *name, const struct pd_outside *outside,
		    struct pd_error *err)
{
	const struct pd_tensor *tensor = pd_tensors_find(initial->tensors, name);

	if (json_object_get(initial->known, name))
		return 0;
	pd_json_set(initial->known, name, json_true());
	if (!tensor || pd_initial_outside_is_anew(initial, outside))
		return 0;
	if (check_form(initial, tensor, outside, err) < 0)
		return -1;
	for (int p = 0; p < outside->part_count; p++) {
		struct pd_found place = { tensor, outside, &outside->parts[p] };

		if (take_part(initial, &place, err) < 0)
			return -1;
	}
	return 0;
}

/* Names that were given up, by their endings: of normalisations, and of a parameter with two names. */
static const struct {
	const char *now, *before;
	bool normalises;
} renamed[] = {
	{ ".weight", ".gamma", true }, { ".bias", ".beta", true },
	{ "cls.predictions.bias", "cls.predictions.decoder.bias", false },
};

/* Returns the text with another ending, or NULL; free() it. */
static char *with_ending(const char *text, const char *ending, const char *other)
{
	return !pd_name_ends(text, ending) ? NULL
		: pd_format("%.*s%s", (int)(strlen(text) - strlen(ending)), text, other);
}

static int look_for_old(struct pd_initial *initial, const char *name, const struct pd_outside *outside,
			struct pd_error *err)
{
	bool normalises = initial->model->layers[outside->parts[0].layer].kind == PD_LAYER_layernorm;
	int status = look_for(initial, name, outside, err);

	for (size_t i = 0; i < PD_COUNT(renamed) && status == 0; i++) {
		char *old = renamed[i].normalises && !normalises ? NULL
			: with_ending(name, renamed[i].now, renamed[i].before);

		if (old)
			status = look_for(initial, old, outside, err);
		free(old);
	}
	return status;
}

/* Under its name, with and without what names may begin with. */
static int look_for_all(struct pd_initial *initial, const struct pd_outsides *outsides, struct pd_error *err)
{
	const char *prefix = pd_model_prefix(initial->model);
	size_t length = strlen(prefix);

	for (int i = 0; i < outsides->count; i++) {
		const struct pd_outside *outside = &outsides->all[i];

		if (look_for_old(initial, outside->name, outside, err) < 0)
			return -1;
		if (length > 0 && strncmp(outside->name, prefix, length) == 0 &&
		    look_for_old(initial, outside->name + length, outside, err) < 0)
			return -1;
	}
	return 0;
}

bool pd_initial_has_all(const struct pd_initial *initial, const struct pd_outside *outside)
{
	bool whole = true;

	for (int p = 0; p < outside->part_count && whole; p++) {
		char *name = pd_format("%s.%s", initial->model->layers[outside->parts[p].layer].name,
				       outside->parts[p].tensor->name);

		whole = find_place(initial, name);
		free(name);
	}
	return whole;
}

/* What is not there under the outside's name may be there under ours. */
static int look_for_ours(struct pd_initial *initial, struct pd_error *err)
{
	for (int i = 0; i < initial->ours.count; i++) {
		const struct pd_outside *ours = &initial->ours.all[i];

		if (!pd_initial_has_all(initial, ours) && look_for(initial, ours->name, ours, err) < 0)
			return -1;
	}
	return 0;
}

/* ---- opening ---- */

/* State of lanes begins with zeros, whatever is there. */
static void know_lanes(struct pd_initial *initial)
{
	for (int l = 0; l < initial->model->layer_count; l++) {
		const struct pd_layer *layer = &initial->model->layers[l];

		for (int s = 0; s < layer->state_count && layer->lanes > 0; s++) {
			char *name = pd_format("%s.%s", layer->name, layer->states[s].name);

			pd_json_set(initial->known, name, json_true());
			free(name);
		}
	}
}

static int open_all(struct pd_initial *initial, const char *path, struct pd_error *err)
{
	initial->tensors = pd_tensors_open(path, err);
	if (!initial->tensors ||
	    pd_outsides_make(initial->model, true, &initial->ours, err) < 0 ||
	    pd_outsides_make(initial->model, pd_tensors_are_ours(initial->tensors), &initial->outside, err) < 0 ||
	    look_for_all(initial, &initial->outside, err) < 0 || look_for_ours(initial, err) < 0)
		return -1;
	know_lanes(initial);
	return pd_initial_check_anew(initial, err) < 0 ? -1 : pd_initial_check(initial, err);
}

struct pd_initial *pd_initial_open(const char *path, const struct pd_model *model, const char *anew,
				   struct pd_error *err)
{
	struct pd_initial *initial = pd_zalloc(sizeof(*initial));

	initial->model = model;
	initial->anew = anew;
	initial->known = json_object();
	initial->found = json_object();
	if (open_all(initial, path, err) == 0)
		return initial;
	pd_initial_close(initial);
	return NULL;
}
