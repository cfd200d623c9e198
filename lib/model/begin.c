/* SPDX-License-Identifier: Apache-2.0 */
/* Initialises parameters. */
#include "model/layer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "NAME(NUMBER)", with a number that a f32 holds and that is not negative. */
static bool read_call(const char *text, const char *name, float *number_p)
{
	size_t length = strlen(name);
	char *end;

	if (strncmp(text, name, length) != 0 || text[length] != '(')
		return false;
	*number_p = strtof(text + length + 1, &end);
	return end > text + length + 1 && strcmp(end, ")") == 0 && *number_p >= 0 &&
	       isfinite(*number_p);
}

bool pd_beginning_read(const char *text, struct pd_layer_tensor *tensor)
{
	float number;
	char *end;

	if (strcmp(text, "fan_in") == 0) {
		tensor->begins = PD_BEGINS_UNIFORM;
		tensor->value = sqrtf(6 / (float)(tensor->elements / tensor->size[0]));
		return true;
	}
	if (read_call(text, "normal", &number)) {
		tensor->begins = PD_BEGINS_NORMAL;
	} else if (read_call(text, "uniform", &number)) {
		tensor->begins = PD_BEGINS_UNIFORM;
	} else if (strcmp(text, "given") == 0) {
		tensor->begins = PD_BEGINS_GIVEN;
		number = 1;
	} else {
		tensor->begins = PD_BEGINS_CONSTANT;
		number = strtof(text, &end);
		if (end == text || *end || !isfinite(number))
			return false;
	}
	tensor->value = number;
	return true;
}

static struct pd_layer_tensor *find_tensor(struct pd_layer *layer, const char *name)
{
	for (int p = 0; p < layer->parameter_count; p++)
		if (strcmp(layer->parameters[p].name, name) == 0)
			return &layer->parameters[p];
	return NULL;
}

/* A number for each element, in the order in which they lie. */
static int read_list(const struct pd_place *place, struct pd_layer_tensor *tensor,
		     struct pd_error *err)
{
	double number;
	size_t count;

	if (pd_json_array(place, &count, err) < 0)
		return -1;
	if ((int64_t)count != tensor->elements)
		return pd_place_expected(place, err, "%" PRId64 " numbers, as \"%s\" has elements",
					 tensor->elements, tensor->name);
	for (size_t i = 0; i < count; i++) {
		struct pd_place at = pd_place_index(place, i);

		if (pd_json_real(&at, -1e38, 1e38, &number, err) < 0)
			return -1;
	}
	tensor->begins = PD_BEGINS_LISTED;
	tensor->listed = place->value;
	return 0;
}

/* A number, several, or a word. */
static int read_one(const struct pd_place *place, struct pd_layer_tensor *tensor,
		    struct pd_error *err)
{
	double number;

	if (json_is_array(place->value))
		return read_list(place, tensor, err);
	if (json_is_string(place->value) &&
	    pd_beginning_read(json_string_value(place->value), tensor))
		return 0;
	if (!json_is_number(place->value))
		return pd_place_expected(place, err, "a number or a list of them, \"normal(S)\", \"uniform(B)\", "
					 "\"fan_in\" or \"given\"");
	if (pd_json_real(place, -1e30, 1e30, &number, err) < 0)
		return -1;
	tensor->begins = PD_BEGINS_CONSTANT;
	tensor->value = (float)number;
	return 0;
}

int pd_beginnings_read(const struct pd_place *place, struct pd_layer *layer, struct pd_error *err)
{
	struct pd_place init = pd_place_key(place, "init");
	const char *name;
	json_t *value;

	if (!init.value)
		return 0;
	if (!json_is_object(init.value))
		return pd_place_expected(&init, err, "an object");
	json_object_foreach(init.value, name, value) {
		struct pd_place at = pd_place_key(&init, name);
		struct pd_layer_tensor *tensor = find_tensor(layer, name);

		if (!tensor)
			return pd_place_error(&init, err, "%s \"%.60s\" has no parameter \"%.40s\"",
					      pd_layer_kind_name[layer->kind], layer->name, name);
		if (read_one(&at, tensor, err) < 0)
			return -1;
	}
	return 0;
}
