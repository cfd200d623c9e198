/* SPDX-License-Identifier: Apache-2.0 */
#include "model/layer.h"

#include "base/mem.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

const char *const pd_layer_kind_name[PD_LAYER_KINDS + 1] = {
#define LAYER_KIND(name, inputs, attributes, what) #name,
#include "model/layer_kind.def"
#undef LAYER_KIND
	NULL
};

static const char *const kind_attributes[PD_LAYER_KINDS] = {
#define LAYER_KIND(name, inputs, attributes, what) attributes,
#include "model/layer_kind.def"
#undef LAYER_KIND
};

enum attribute_type { COUNT, PAIR, FLAG, REAL };

static const struct attribute {
	const char *name;
	enum attribute_type type;
	size_t at;                      /* in struct pd_layer */
	int64_t min;
	double max;
} attributes[] = {
	{ "out_channels", COUNT, offsetof(struct pd_layer, out_channels), 1, PD_MAX_EXTENT },
	{ "out_features", COUNT, offsetof(struct pd_layer, out_channels), 1, PD_MAX_EXTENT },
	{ "kernel", PAIR, offsetof(struct pd_layer, kernel), 1, PD_MAX_EXTENT },
	{ "stride", PAIR, offsetof(struct pd_layer, stride), 1, PD_MAX_EXTENT },
	{ "padding", PAIR, offsetof(struct pd_layer, padding), 0, PD_MAX_EXTENT },
	{ "dilation", PAIR, offsetof(struct pd_layer, dilation), 1, PD_MAX_EXTENT },
	{ "output_size", PAIR, offsetof(struct pd_layer, output_size), 1, PD_MAX_EXTENT },
	{ "groups", COUNT, offsetof(struct pd_layer, groups), 1, PD_MAX_EXTENT },
	{ "bias", FLAG, offsetof(struct pd_layer, bias), 0, 0 },
	{ "count_include_pad", FLAG, offsetof(struct pd_layer, count_include_pad), 0, 0 },
	{ "eps", REAL, offsetof(struct pd_layer, eps), 0, 1 },
	{ "momentum", REAL, offsetof(struct pd_layer, momentum), 0, 1 },
	/* not 1: what is kept is divided by 1 - p */
	{ "p", REAL, offsetof(struct pd_layer, p), 0, 0.999 },
};

int pd_layer_kind_find(const char *name)
{
	for (int kind = 0; kind < PD_LAYER_KINDS; kind++)
		if (strcmp(pd_layer_kind_name[kind], name) == 0)
			return kind;
	return -1;
}

/* [h, w], or one number for both */
static int read_pair(const struct pd_place *place, const struct attribute *attribute,
		     int64_t pair[2], struct pd_error *err)
{
	size_t count;

	if (json_is_integer(place->value)) {
		if (pd_json_int(place, attribute->min, (int64_t)attribute->max, &pair[0], err) < 0)
			return -1;
		pair[1] = pair[0];
		return 0;
	}
	if (!json_is_array(place->value) || pd_json_array(place, &count, err) < 0 || count != 2)
		return pd_place_expected(place, err, "[height, width] or one whole number for "
					 "both");
	for (size_t i = 0; i < 2; i++) {
		struct pd_place element = pd_place_index(place, i);

		if (pd_json_int(&element, attribute->min, (int64_t)attribute->max, &pair[i],
				err) < 0)
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
		return pd_json_int(place, attribute->min, (int64_t)attribute->max, at, err);
	case PAIR:
		return read_pair(place, attribute, at, err);
	case FLAG:
		return pd_json_bool(place, at, err);
	case REAL:
		return pd_json_real(place, (double)attribute->min, attribute->max, at, err);
	}
	pd_bug("attribute \"%s\" has no type", attribute->name);
}

/* PyTorch's, where the kind has the attribute; the stride of a pool is its kernel (below). */
static void set_defaults(struct pd_layer *layer)
{
	switch (layer->kind) {
	case PD_LAYER_conv2d:
		layer->stride[0] = layer->stride[1] = layer->dilation[0] = layer->dilation[1] = 1;
		layer->groups = 1;
		layer->bias = true;
		break;
	case PD_LAYER_linear:
		layer->bias = true;
		break;
	case PD_LAYER_avgpool2d:
		layer->count_include_pad = true;
		break;
	case PD_LAYER_batchnorm2d:
		layer->eps = 1e-5;
		layer->momentum = 0.1;
		break;
	case PD_LAYER_dropout:
		layer->p = 0.5;
		break;
	default:
		break;
	}
}

static const struct attribute *find_attribute(const char *name)
{
	for (size_t a = 0; a < PD_COUNT(attributes); a++)
		if (strcmp(attributes[a].name, name) == 0)
			return &attributes[a];
	pd_bug("attribute \"%s\" of layer_kind.def is not in the table", name);
}

int pd_layer_read(const struct pd_place *place, struct pd_layer *layer, struct pd_error *err)
{
	const char *known[24] = { "name", "kind", "inputs", "shares" };
	char names[128], *rest = names, *name;
	bool required[PD_COUNT(known)] = { false };
	int count = 4;

	snprintf(names, sizeof(names), "%s", kind_attributes[layer->kind]);
	while ((name = strsep(&rest, " ")))
		if (*name) {
			size_t length = strlen(name);

			required[count] = name[length - 1] == '!';
			name[length - required[count]] = 0;
			known[count++] = name;
		}
	known[count] = NULL;
	if (pd_json_keys(place, known, err) < 0)
		return -1;
	set_defaults(layer);
	for (int k = 4; k < count; k++) {
		struct pd_place at = pd_place_key(place, known[k]);

		if ((required[k] || at.value) &&
		    read_attribute(&at, find_attribute(known[k]), layer, err) < 0)
			return -1;
	}
	if ((layer->kind == PD_LAYER_maxpool2d || layer->kind == PD_LAYER_avgpool2d) &&
	    layer->stride[0] == 0)
		memcpy(layer->stride, layer->kernel, sizeof(layer->stride));
	return 0;
}
