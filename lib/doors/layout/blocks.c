/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/layout/blocks.h"

#include "base/mem.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Returns the length of a name up to and with its first component that is a number, or 0. */
static size_t block_length(const char *name)
{
	for (const char *part = name; *part;) {
		size_t length = strcspn(part, ".");

		if (strspn(part, "0123456789") == length && length > 0)
			return (size_t)(part - name) + length;
		part += length + (part[length] == '.');
	}
	return 0;
}

bool pd_blocks_is_block(const struct pd_blocks *blocks, int module)
{
	return block_length(blocks->own[module]) > 0;
}

static bool has_parameters(const struct pd_profile *profile, int layer)
{
	return profile->layers[layer].parameter_bytes > 0 || pd_profile_owner(profile, layer) != layer;
}

/* Returns what the outside calls a parameter of the layer, or NULL. */
static const char *outside_parameter(const struct pd_profile *profile, int layer)
{
	const json_t *names = profile->model ? profile->model->layers[layer].names : NULL;
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)(uintptr_t)names, key, value) {
		const char *name = json_string_value(json_is_object(value) ? json_object_get(value, "name") : value);

		if (name)
			return name;
	}
	return NULL;
}

/* Returns the outside's name for the module of a layer; free() it. */
static char *outside_name(const struct pd_profile *profile, int layer)
{
	const char *own = profile->layers[layer].name, *parameter = outside_parameter(profile, layer);
	const char *name = parameter ? parameter : own, *end = parameter ? strrchr(name, '.') : NULL;
	size_t length = block_length(own) > 0 ? block_length(name) : 0;

	if (length == 0)
		length = end ? (size_t)(end - name) : strlen(name);
	return pd_format("%.*s", (int)length, name);
}

/* Tells whether a layer goes on with the module that has begun. */
static bool goes_on(const struct pd_profile *profile, int layer, const char *own, bool known)
{
	const char *name = profile->layers[layer].name;
	size_t length = block_length(name);

	if (length > 0)
		return strlen(own) == length && strncmp(own, name, length) == 0;
	return !has_parameters(profile, layer) || !known;
}

/* Returns the length of the name of the list in which a block is, or 0. */
static size_t list_length(const char *own)
{
	size_t length = block_length(own);

	while (length > 0 && own[length - 1] != '.')
		length--;
	return length;
}

static bool in_one_list(const char *a, const char *b)
{
	size_t length = list_length(a);

	return length == list_length(b) && strncmp(a, b, length) == 0;
}

/* Finds the longest run of blocks of one list. */
static void find_decoder(struct pd_blocks *blocks)
{
	for (int from = 0, to; from < blocks->count; from = to) {
		to = from + 1;
		if (block_length(blocks->own[from]) == 0)
			continue;
		while (to < blocks->count && block_length(blocks->own[to]) > 0 &&
		       in_one_list(blocks->own[from], blocks->own[to]))
			to++;
		if (to - from > blocks->decoder_count) {
			blocks->decoder_first = from;
			blocks->decoder_count = to - from;
		}
	}
}

void pd_blocks_init(struct pd_blocks *blocks, const struct pd_profile *profile)
{
	size_t room = (size_t)profile->layer_count + 1;
	bool known = false;             /* the module has a layer that gives it its name */
	int m = -1;

	*blocks = (struct pd_blocks){ .first = pd_calloc(room, sizeof(int)),
				      .names = pd_calloc(room, sizeof(char *)),
				      .own = pd_calloc(room, sizeof(char *)) };
	for (int l = 0; l < profile->layer_count; l++) {
		const char *name = profile->layers[l].name;
		size_t length = block_length(name);

		if (m < 0 || !goes_on(profile, l, blocks->own[m], known || block_length(blocks->own[m]) > 0)) {
			blocks->first[++m] = l;
			known = false;
		}
		if (!blocks->own[m] || (!known && has_parameters(profile, l))) {
			free(blocks->own[m]);
			free(blocks->names[m]);
			blocks->own[m] = pd_format("%.*s", (int)(length > 0 ? length : strlen(name)), name);
			blocks->names[m] = outside_name(profile, l);
			known = has_parameters(profile, l);
		}
	}
	blocks->count = m + 1;
	blocks->first[blocks->count] = profile->layer_count;
	find_decoder(blocks);
}

void pd_blocks_release(struct pd_blocks *blocks)
{
	for (int m = 0; m < blocks->count; m++) {
		free(blocks->names[m]);
		free(blocks->own[m]);
	}
	free(blocks->names);
	free(blocks->own);
	free(blocks->first);
	*blocks = (struct pd_blocks){ 0 };
}

int pd_blocks_check_decoder(const struct pd_blocks *blocks, const char *name, const char *who,
			    struct pd_error *err)
{
	if (blocks->decoder_count == 0)
		return pd_error_input(err, "%s: %s counts the blocks of a transformer, and no layer has a number in its "
				      "name, as \"layers.0.mlp\" has", name, who);
	for (int m = 0; m < blocks->count; m++)
		if ((m < blocks->decoder_first || m >= blocks->decoder_first + blocks->decoder_count) &&
		    block_length(blocks->own[m]) > 0)
			return pd_error_input(err, "%s: %s knows one list of blocks, and there is \"%.60s\" beside "
					      "\"%.60s\"", name, who, blocks->own[m],
					      blocks->own[blocks->decoder_first]);
	return 0;
}

int pd_blocks_at(const struct pd_blocks *blocks, int layer)
{
	int m = 0;

	while (m < blocks->count && blocks->first[m] < layer)
		m++;
	return blocks->first[m] == layer ? m : blocks->count;
}
