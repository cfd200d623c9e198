/* SPDX-License-Identifier: Apache-2.0 */
#include "model/layer.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMMON 7                        /* keys that every layer has */

enum attribute_type { COUNT, PAIR, SHAPE, FLAG, REAL, REALS, CHOICE };

static const char *const gelus[] = { "none", "tanh", NULL };     /* enum pd_gelu */

static const char *const modes[] = { "nearest", "bilinear", NULL };     /* enum pd_resize_mode */

static const struct attribute {
	const char *name;
	enum attribute_type type;
	size_t at;                      /* in struct pd_layer */
	double min, max;
	const char *const *choices;     /* of CHOICE, an int: NULL-terminated */
} attributes[] = {
	{ "out_channels", COUNT, offsetof(struct pd_layer, out_channels), 1, PD_MAX_EXTENT },
	{ "out_features", COUNT, offsetof(struct pd_layer, out_channels), 1, PD_MAX_EXTENT },
	{ "num_parameters", COUNT, offsetof(struct pd_layer, out_channels), 1, PD_MAX_EXTENT },
	{ "kernel", PAIR, offsetof(struct pd_layer, kernel), 1, PD_MAX_EXTENT },
	{ "stride", PAIR, offsetof(struct pd_layer, stride), 1, PD_MAX_EXTENT },
	{ "padding", PAIR, offsetof(struct pd_layer, padding), 0, PD_MAX_EXTENT },
	{ "output_padding", PAIR, offsetof(struct pd_layer, output_padding), 0, PD_MAX_EXTENT },
	{ "dilation", PAIR, offsetof(struct pd_layer, dilation), 1, PD_MAX_EXTENT },
	{ "output_size", PAIR, offsetof(struct pd_layer, output_size), 1, PD_MAX_EXTENT },
	{ "size", PAIR, offsetof(struct pd_layer, output_size), 1, PD_MAX_EXTENT },
	{ "scale_factor", REALS, offsetof(struct pd_layer, scale_factor), 0, 1e6 },
	{ "mode", CHOICE, offsetof(struct pd_layer, mode), .choices = modes },
	{ "align_corners", FLAG, offsetof(struct pd_layer, align_corners), 0, 0 },
	{ "normalized_shape", SHAPE, offsetof(struct pd_layer, normalized_shape), 1, PD_MAX_EXTENT },
	{ "groups", COUNT, offsetof(struct pd_layer, groups), 1, PD_MAX_EXTENT },
	{ "heads", COUNT, offsetof(struct pd_layer, heads), 1, PD_MAX_EXTENT },
	{ "kv_heads", COUNT, offsetof(struct pd_layer, kv_heads), 1, PD_MAX_EXTENT },
	{ "causal", FLAG, offsetof(struct pd_layer, causal), 0, 0 },
	{ "window", COUNT, offsetof(struct pd_layer, window), 0, PD_MAX_EXTENT },
	{ "scale", REAL, offsetof(struct pd_layer, scale), 0, 1e6 },
	{ "relative_buckets", COUNT, offsetof(struct pd_layer, relative_buckets), 0, PD_RELATIVE_BUCKETS },
	{ "max_distance", COUNT, offsetof(struct pd_layer, max_distance), 2, PD_MAX_EXTENT },
	{ "bias", FLAG, offsetof(struct pd_layer, bias), 0, 0 },
	{ "elementwise_affine", FLAG, offsetof(struct pd_layer, elementwise_affine), 0, 0 },
	{ "num_groups", COUNT, offsetof(struct pd_layer, num_groups), 1, PD_MAX_EXTENT },
	{ "affine", FLAG, offsetof(struct pd_layer, elementwise_affine), 0, 0 },
	{ "count_include_pad", FLAG, offsetof(struct pd_layer, count_include_pad), 0, 0 },
	{ "eps", REAL, offsetof(struct pd_layer, eps), 0, 1 },
	{ "momentum", REAL, offsetof(struct pd_layer, momentum), 0, 1 },
	{ "hidden_size", COUNT, offsetof(struct pd_layer, hidden_size), 1,
	  (PD_MAX_EXTENT) / 4 },
	{ "biases", COUNT, offsetof(struct pd_layer, biases), 1, 2 },
	{ "lanes", COUNT, offsetof(struct pd_layer, lanes), 0, PD_MAX_EXTENT },
	{ "bidirectional", FLAG, offsetof(struct pd_layer, bidirectional), 0, 0 },
	/* not 1: what is kept is divided by 1 - p */
	{ "p", REAL, offsetof(struct pd_layer, p), 0, 0.999 },
	{ "dropout", REAL, offsetof(struct pd_layer, p), 0, 0.999 },
	{ "negative_slope", REAL, offsetof(struct pd_layer, alpha), -1000000, 1e6 },
	{ "times", REAL, offsetof(struct pd_layer, alpha), -1e38, 1e38 },
	{ "plus", REAL, offsetof(struct pd_layer, beta), -1e38, 1e38 },
	{ "exponent", REAL, offsetof(struct pd_layer, alpha), -1000, 1000 },
	{ "min", REAL, offsetof(struct pd_layer, alpha), -1e38, 1e38 },
	{ "max", REAL, offsetof(struct pd_layer, beta), -1e38, 1e38 },
	{ "alpha", REAL, offsetof(struct pd_layer, alpha), -1000000, 1e6 },
	{ "approximate", CHOICE, offsetof(struct pd_layer, approximate), .choices = gelus },
	{ "num_embeddings", COUNT, offsetof(struct pd_layer, num_embeddings), 1, PD_MAX_EXTENT },
	{ "embedding_dim", COUNT, offsetof(struct pd_layer, embedding_dim), 1, PD_MAX_EXTENT },
	{ "numbered", FLAG, offsetof(struct pd_layer, numbered), 0, 0 },
	{ "padding_idx", COUNT, offsetof(struct pd_layer, padding_idx), 0, PD_MAX_EXTENT },
	{ "dim", COUNT, offsetof(struct pd_layer, dim), -PD_MAX_DIMS, PD_MAX_DIMS },
	{ "dim0", COUNT, offsetof(struct pd_layer, dim0), -PD_MAX_DIMS, PD_MAX_DIMS },
	{ "dim1", COUNT, offsetof(struct pd_layer, dim1), -PD_MAX_DIMS, PD_MAX_DIMS },
	{ "shared_dim", SHAPE, offsetof(struct pd_layer, mask), -PD_MAX_DIMS, PD_MAX_DIMS },
	{ "start", COUNT, offsetof(struct pd_layer, start), 0, PD_MAX_EXTENT },
	{ "end", COUNT, offsetof(struct pd_layer, end), 1, PD_MAX_EXTENT },
	{ "keepdim", FLAG, offsetof(struct pd_layer, keepdim), 0, 0 },
	{ "shape", SHAPE, offsetof(struct pd_layer, shape), 1, PD_MAX_EXTENT },
	{ "head_dim", COUNT, offsetof(struct pd_layer, head_dim), 1, PD_MAX_EXTENT },
	{ "rotary_dim", COUNT, offsetof(struct pd_layer, rotary_dim), 2, PD_MAX_EXTENT },
	{ "base", REAL, offsetof(struct pd_layer, base), 1, 1e12 },
	{ "factor", REAL, offsetof(struct pd_layer, factor), 1, 1e6 },
	{ "low_freq_factor", REAL, offsetof(struct pd_layer, low_freq_factor), 0, 1e6 },
	{ "high_freq_factor", REAL, offsetof(struct pd_layer, high_freq_factor), 0, 1e6 },
	{ "original_positions", COUNT, offsetof(struct pd_layer, original_positions), 0, PD_MAX_EXTENT },
	{ "interleaved", FLAG, offsetof(struct pd_layer, interleaved), 0, 0 },
	{ "ignore_index", COUNT, offsetof(struct pd_layer, ignore_index), INT32_MIN, INT32_MAX },
	{ "label_smoothing", REAL, offsetof(struct pd_layer, label_smoothing), 0, 1 },
	{ "weight", REAL, offsetof(struct pd_layer, weight), 0, 1e30 },
	{ "weight_dropout", REAL, offsetof(struct pd_layer, weight_dropout), 0, 0.999 },
};

static int read_number(const struct pd_place *place, const struct attribute *attribute, void *at,
		       struct pd_error *err)
{
	return attribute->type == REALS
		? pd_json_real(place, attribute->min, attribute->max, at, err)
		: pd_json_int(place, (int64_t)attribute->min, (int64_t)attribute->max, at, err);
}

/* Reads [h, w], or one number that stands for both. */
static int read_pair(const struct pd_place *place, const struct attribute *attribute, char *pair,
		     struct pd_error *err)
{
	const size_t each = attribute->type == REALS ? sizeof(double) : sizeof(int64_t);
	const char *number = attribute->type == REALS ? "number" : "whole number";
	size_t count;

	if (attribute->type == REALS ? json_is_number(place->value) : json_is_integer(place->value)) {
		if (read_number(place, attribute, pair, err) < 0)
			return -1;
		memcpy(pair + each, pair, each);
		return 0;
	}
	if (!json_is_array(place->value) || pd_json_array(place, &count, err) < 0 || count != 2)
		return pd_place_expected(place, err, "[height, width] or one %s for both", number);
	for (size_t i = 0; i < 2; i++) {
		struct pd_place element = pd_place_index(place, i);

		if (read_number(&element, attribute, pair + i * each, err) < 0)
			return -1;
	}
	return 0;
}

/* Reads [size, ...], or one number that stands for one axis. */
static int read_shape(const struct pd_place *place, const struct attribute *attribute,
		      struct pd_shape *shape, struct pd_error *err)
{
	size_t count;

	shape->dims = 1;
	if (json_is_integer(place->value))
		return pd_json_int(place, (int64_t)attribute->min, (int64_t)attribute->max,
				   &shape->size[0], err);
	if (!json_is_array(place->value) || pd_json_array(place, &count, err) < 0 || count < 1 ||
	    count > PD_MAX_DIMS)
		return pd_place_expected(place, err, "an array of 1 to %d whole numbers or one "
					 "whole number", PD_MAX_DIMS);
	shape->dims = (int)count;
	for (size_t i = 0; i < count; i++) {
		struct pd_place element = pd_place_index(place, i);

		if (pd_json_int(&element, (int64_t)attribute->min, (int64_t)attribute->max,
				&shape->size[i], err) < 0)
			return -1;
	}
	return 0;
}

static int read_attribute(const struct pd_place *place, const struct attribute *attribute,
			  struct pd_layer *layer, struct pd_error *err)
{
	void *at = (char *)layer + attribute->at;

	switch (attribute->type) {
	case COUNT:
		return pd_json_int(place, (int64_t)attribute->min, (int64_t)attribute->max, at, err);
	case PAIR:
	case REALS:
		return read_pair(place, attribute, at, err);
	case SHAPE:
		return read_shape(place, attribute, at, err);
	case FLAG:
		return pd_json_bool(place, at, err);
	case REAL:
		return pd_json_real(place, attribute->min, attribute->max, at, err);
	case CHOICE:
		return pd_json_get_choice(place->up, place->key, attribute->choices, at, err);
	}
	pd_bug("attribute \"%s\" has no type", attribute->name);
}

static const struct attribute *find_attribute(const char *name)
{
	for (size_t a = 0; a < PD_COUNT(attributes); a++)
		if (strcmp(attributes[a].name, name) == 0)
			return &attributes[a];
	return NULL;
}

static int choice_called(const struct attribute *attribute, const char *name)
{
	int choice = 0;

	while (strcmp(attribute->choices[choice], name) != 0)
		if (!attribute->choices[++choice])
			pd_bug("layer_kind.def: %s has no choice \"%s\"", attribute->name, name);
	return choice;
}

/* Gives an attribute that the document leaves out its default: a value, or another attribute. */
static void set_default(const struct attribute *attribute, const char *value,
			struct pd_layer *layer)
{
	const struct attribute *other = find_attribute(value);
	void *at = (char *)layer + attribute->at;
	int64_t *pair = at;

	switch (attribute->type) {
	case COUNT:
		*(int64_t *)at = other ? *(int64_t *)((char *)layer + other->at)
				       : strtoll(value, NULL, 10);
		return;
	case PAIR:
		pair[0] = pair[1] = strtoll(value, NULL, 10);
		if (other)
			memcpy(pair, (char *)layer + other->at, 2 * sizeof(*pair));
		return;
	case SHAPE:
	case REALS:
		return;                 /* a scalar, or zeros, which no document can say */
	case FLAG:
		*(bool *)at = strcmp(value, "true") == 0;
		return;
	case REAL:
		*(double *)at = strtod(value, NULL);
		return;
	case CHOICE:
		*(int *)at = choice_called(attribute, value);
		return;
	}
}

static int read_one(const struct pd_place *place, const struct pd_word *word,
		    struct pd_layer *layer, struct pd_error *err)
{
	struct pd_place at = pd_place_key(place, word->name);
	const struct attribute *attribute = find_attribute(word->name);

	if (!attribute)
		pd_bug("attribute \"%s\" of layer_kind.def is not in the table", word->name);
	if (word->required || at.value)
		return read_attribute(&at, attribute, layer, err);
	set_default(attribute, word->value, layer);
	return 0;
}

int pd_layer_read(const struct pd_place *place, struct pd_layer *layer, struct pd_error *err)
{
	const char *known[COMMON + PD_COUNT(attributes) + 1] = { "name", "kind", "inputs", "shares",
								   "init", "frozen", "names" };
	struct pd_word words[PD_COUNT(attributes)];
	const char *list = pd_kinds[layer->kind].attributes;
	int count = 0;

	while (pd_word_next(&list, &words[count])) {
		known[COMMON + count] = words[count].name;
		count++;
	}
	if (pd_json_keys(place, known, err) < 0)
		return -1;
	for (int w = 0; w < count; w++)
		if (read_one(place, &words[w], layer, err) < 0)
			return -1;
	return 0;
}

/* Writes the value that a layer has of an attribute. */
static void write_attribute(const struct attribute *attribute, const struct pd_layer *layer,
			    char text[PD_ATTRIBUTE_TEXT])
{
	const void *at = (const char *)layer + attribute->at;
	const int64_t *pair = at;
	const double *reals = at;
	char shape[PD_SHAPE_TEXT];

	switch (attribute->type) {
	case COUNT:
		snprintf(text, PD_ATTRIBUTE_TEXT, "%" PRId64, *pair);
		return;
	case PAIR:
		snprintf(text, PD_ATTRIBUTE_TEXT, "%" PRId64 " x %" PRId64, pair[0], pair[1]);
		return;
	case REALS:
		snprintf(text, PD_ATTRIBUTE_TEXT, "%.17g x %.17g", reals[0], reals[1]);
		return;
	case SHAPE:
		snprintf(text, PD_ATTRIBUTE_TEXT, "%s", pd_shape_text(at, shape));
		return;
	case FLAG:
		snprintf(text, PD_ATTRIBUTE_TEXT, "%s", *(const bool *)at ? "true" : "false");
		return;
	case REAL:
		snprintf(text, PD_ATTRIBUTE_TEXT, "%.15g", *reals);
		return;
	case CHOICE:
		snprintf(text, PD_ATTRIBUTE_TEXT, "%s", attribute->choices[*(const int *)at]);
		return;
	}
}

const char *pd_layer_difference(const struct pd_layer *a, const struct pd_layer *b,
				const char **from_p, char a_text[PD_ATTRIBUTE_TEXT],
				char b_text[PD_ATTRIBUTE_TEXT])
{
	struct pd_word word;

	while (pd_word_next(from_p, &word)) {
		const struct attribute *attribute = find_attribute(word.name);

		write_attribute(attribute, a, a_text);
		write_attribute(attribute, b, b_text);
		if (strcmp(a_text, b_text) != 0)
			return attribute->name;
	}
	return NULL;
}
