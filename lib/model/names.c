/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the keys "names" and "source". */
#include "model/outside.h"

#include "base/mem.h"

#include <inttypes.h>
#include <string.h>

static const struct pd_layer_tensor *find_tensor(const struct pd_layer *layer, const char *name)
{
	for (int p = 0; p < layer->parameter_count; p++)
		if (strcmp(layer->parameters[p].name, name) == 0)
			return &layer->parameters[p];
	for (int s = 0; s < layer->state_count && layer->lanes == 0; s++)
		if (strcmp(layer->states[s].name, name) == 0)
			return &layer->states[s];
	return NULL;
}

static int check_shape(const struct pd_place *place, const struct pd_layer_tensor *tensor,
		       struct pd_error *err)
{
	int64_t elements = 1, extent;
	size_t count;

	if (pd_json_array(place, &count, err) < 0)
		return -1;
	if (count > PD_OUTSIDE_DIMS)
		return pd_place_expected(place, err, "at most %d dimensions", PD_OUTSIDE_DIMS);
	for (size_t d = 0; d < count; d++) {
		struct pd_place at = pd_place_index(place, d);

		if (pd_json_int(&at, 1, tensor->elements, &extent, err) < 0)
			return -1;
		if (!pd_mul(elements, extent, &elements))
			elements = -1;
		if (elements < 0 || elements > tensor->elements)
			break;
	}
	return elements == tensor->elements ? 0
		: pd_place_error(place, err, "expected a shape of %" PRId64 " elements, as \"%s\" has",
				 tensor->elements, tensor->name);
}

/* Further names of the same tensor. */
static int check_also(const struct pd_place *place, struct pd_error *err)
{
	struct pd_place also = pd_place_key(place, "also");
	const char *name;
	size_t count = 0;

	if (also.value && pd_json_array(&also, &count, err) < 0)
		return -1;
	for (size_t i = 0; i < count; i++) {
		struct pd_place at = pd_place_index(&also, i);

		if (pd_json_string(&at, &name, err) < 0)
			return -1;
	}
	return 0;
}

/* {"name": "c_attn.weight", "transpose": true, "start": 64} */
static int check_entry(const struct pd_place *place, const struct pd_layer_tensor *tensor,
		       struct pd_error *err)
{
	static const char *const known[] = { "name", "also", "transpose", "start", "shape", "export", NULL };
	struct pd_place shape = pd_place_key(place, "shape"), turn = pd_place_key(place, "transpose");
	bool transposed = false, exported = true;
	int64_t start = -1;
	const char *name;

	if (pd_json_keys(place, known, err) < 0 || pd_json_get_string(place, "name", &name, err) < 0 ||
	    pd_json_opt_bool(place, "transpose", &transposed, err) < 0 ||
	    pd_json_opt_bool(place, "export", &exported, err) < 0 ||
	    pd_json_opt_int(place, "start", 0, PD_MAX_EXTENT, &start, err) < 0 || check_also(place, err) < 0)
		return -1;
	if (transposed && tensor->dims != 2)
		return pd_place_error(&turn, err, "\"%s\" has %d axes: expected two, which change places",
				      tensor->name, tensor->dims);
	if (!shape.value)
		return 0;
	if (transposed || start >= 0)
		return pd_place_error(&shape, err, "expected no \"%s\" beside it", transposed ? "transpose"
				      : "start");
	return check_shape(&shape, tensor, err);
}

int pd_names_read(const struct pd_place *place, struct pd_layer *layer, struct pd_error *err)
{
	struct pd_place names = pd_place_key(place, "names");
	const char *key, *text;
	json_t *value;

	if (!names.value)
		return 0;
	if (!json_is_object(names.value))
		return pd_place_expected(&names, err, "an object");
	json_object_foreach(names.value, key, value) {
		struct pd_place at = pd_place_key(&names, key);
		const struct pd_layer_tensor *tensor = find_tensor(layer, key);

		if (!tensor)
			return pd_place_error(&names, err, "%s \"%.60s\" has no parameter or state \"%.40s\"",
					      pd_layer_kind_name[layer->kind], layer->name, key);
		if (json_is_object(value) ? check_entry(&at, tensor, err) < 0
					  : !json_is_null(value) && pd_json_string(&at, &text, err) < 0)
			return -1;
	}
	layer->names = names.value;
	return 0;
}

int pd_source_check(const struct pd_place *place, struct pd_error *err)
{
	static const char *const known[] = { "format", "config", "prefix", NULL };
	static const char *const formats[] = { "huggingface", "onnx", NULL };    /* enum pd_source_format */
	struct pd_place source = pd_place_key(place, "source"), config;
	const char *prefix;
	int format;

	if (!source.value)
		return 0;
	config = pd_place_key(&source, "config");
	if (pd_json_keys(&source, known, err) < 0 ||
	    pd_json_get_choice(&source, "format", formats, &format, err) < 0 ||
	    pd_json_opt_string(&source, "prefix", &prefix, err) < 0)
		return -1;
	if (!config.value)
		return 0;
	if (format != PD_SOURCE_HUGGINGFACE)
		return pd_place_error(&config, err, "expected none, since the format is \"%s\"", formats[format]);
	return json_is_object(config.value) ? 0 : pd_place_expected(&config, err, "an object");
}
