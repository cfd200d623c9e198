/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/layout/segments.h"

#include "base/mem.h"
#include "base/names.h"
#include "doors/layout/blocks.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BLOCK (1 << 20)

/* Sets the number of each layer's block; -1: it is in none.  Returns how many there are. */
static int find_blocks(const struct pd_profile *profile, int **block_p)
{
	struct pd_blocks blocks;
	int *block = pd_calloc((size_t)profile->layer_count, sizeof(*block)), count = 0;

	pd_blocks_init(&blocks, profile);
	for (int m = 0; m < blocks.count; m++) {
		bool is = pd_blocks_is_block(&blocks, m);

		for (int l = blocks.first[m]; l < blocks.first[m + 1]; l++)
			block[l] = is ? count : -1;
		count += is;
	}
	pd_blocks_release(&blocks);
	*block_p = block;
	return count;
}

int *pd_layout_block_segments(const struct pd_profile *profile)
{
	int *block;

	if (find_blocks(profile, &block) > 1)
		return block;
	free(block);
	return NULL;
}

/* A range of blocks: FIRST, FIRST-LAST, FIRST-LAST/STEP, or /STEP. */
struct range {
	long first, last, step;
};

static bool parse_number(const char **at, long *out_p)
{
	char *end;

	if (!isdigit((unsigned char)**at))
		return false;
	*out_p = strtol(*at, &end, 10);
	*at = end;
	return *out_p <= MOST_BLOCK;
}

/* Parses a range, and moves *at behind it. */
static bool parse_range(const char **at, struct range *out_p)
{
	struct range range = { 0, MOST_BLOCK, 1 };

	if (**at != '/') {
		if (!parse_number(at, &range.first))
			return false;
		range.last = range.first;
		if (**at == '-') {
			(*at)++;
			if (!parse_number(at, &range.last))
				return false;
		}
	}
	if (**at == '/') {
		(*at)++;
		if (!parse_number(at, &range.step) || range.step == 0)
			return false;
	}
	*out_p = range;
	return range.first <= range.last;
}

/* Leaves only the blocks of a list. */
static int choose_blocks(int *block, int layers, int count, const char *list, struct pd_error *err)
{
	bool *chosen = pd_calloc((size_t)count, sizeof(*chosen));
	const char *at = list;
	bool good = true;

	while (good) {
		struct range range = { 0, 0, 1 };

		good = parse_range(&at, &range) && (*at == ',' || !*at) &&
		       (range.last < count || range.last == MOST_BLOCK);
		for (long b = range.first; good && b <= range.last && b < count; b += range.step)
			chosen[b] = true;
		if (!*at)
			break;
		at++;
	}
	for (int l = 0; l < layers && good; l++)
		block[l] = block[l] >= 0 && chosen[block[l]] ? block[l] : -1;
	free(chosen);
	if (good)
		return 0;
	return pd_error_input(err, "expected numbers of blocks from 0 to %d, such as 0-7,9 or 0-%d/2 or /2, "
			      "found \"%.60s\"", count - 1, count - 1, list);
}

/* The words of a list; each is NUL-terminated. */
struct words {
	char *text, **list;
	int count;
};

static void words_init(struct words *words, const char *list)
{
	words->text = pd_strdup(list);
	words->list = pd_calloc(strlen(list) + 1, sizeof(*words->list));
	words->count = 0;
	for (char *word = words->text, *next; word; word = next) {
		next = strchr(word, ',');
		if (next)
			*next++ = '\0';
		words->list[words->count++] = word;
	}
}

static void words_release(struct words *words)
{
	free(words->text);
	free(words->list);
}

/* Returns the length of the beginning of a name that ends with components which fit a pattern; 0: there are none. */
static size_t module_length(const char *name, const char *pattern)
{
	char part[256];
	size_t length = strlen(name);

	if (length >= sizeof(part))
		return 0;
	for (size_t from = 0; from < length; from++) {
		if (from > 0 && name[from - 1] != '.')
			continue;
		for (size_t to = from + 1; to <= length; to++) {
			if (name[to] != '.' && name[to])
				continue;
			memcpy(part, name + from, to - from);
			part[to - from] = '\0';
			if (fnmatch(pattern, part, 0) == 0)
				return to;
		}
	}
	return 0;
}

/* Tells whether a layer is meant by a word, and sets the length of the name that it has with others. */
typedef bool fits(const struct pd_profile *profile, int layer, const char *word, size_t *length_p);

static bool fits_module(const struct pd_profile *profile, int layer, const char *word,
			size_t *length_p)
{
	*length_p = module_length(profile->layers[layer].name, word);
	return *length_p > 0;
}

static bool fits_layer(const struct pd_profile *profile, int layer, const char *word,
		       size_t *length_p)
{
	*length_p = 0;
	return fnmatch(word, profile->layers[layer].name, 0) == 0;
}

static bool fits_kind(const struct pd_profile *profile, int layer, const char *word,
		      size_t *length_p)
{
	*length_p = 0;
	return (int)profile->model->layers[layer].kind == pd_names_index(pd_layer_kind_name, word);
}

/* Numbers the layers that fit: those side by side of one block, and one module, have one number. */
static int *number_layers(const struct pd_profile *profile, const struct words *words, fits *fit,
			  struct pd_error *err)
{
	int *segment = pd_calloc((size_t)profile->layer_count, sizeof(*segment)), *block, number = -1;
	bool inside;
	bool *used = pd_calloc((size_t)words->count, sizeof(*used));
	size_t before = 0;

	inside = find_blocks(profile, &block) > 1 && fit == fits_kind;  /* kinds are those of blocks */
	for (int l = 0; l < profile->layer_count; l++) {
		size_t length = 0;
		int w = inside && block[l] < 0 ? words->count : 0;

		while (w < words->count && !fit(profile, l, words->list[w], &length))
			w++;
		segment[l] = -1;
		if (w == words->count)
			continue;
		used[w] = true;
		number += l == 0 || segment[l - 1] < 0 || block[l] != block[l - 1] || length != before ||
			  strncmp(profile->layers[l].name, profile->layers[l - 1].name, length) != 0;
		before = length;
		segment[l] = number;
	}
	for (int w = 0; w < words->count && segment; w++)
		if (!used[w] && fit != fits_kind) {
			pd_error_input(err, "no layer has a name that \"%.60s\" fits", words->list[w]);
			free(segment);
			segment = NULL;
		}
	free(block);
	free(used);
	return segment;
}

/*
 * Numbers all layers of blocks but attention and every second product, whose outputs are saved:
 * what torchtitan's selective checkpointing by operation does.
 */
static int *number_operations(const struct pd_profile *profile, struct pd_error *err)
{
	int *block, count = find_blocks(profile, &block), number = 0, products = 0, before = -1;

	if (count == 0 || !profile->model) {
		free(block);
		pd_error_input(err, "selective-op: expected a network of blocks, with a model that "
			       "has kinds of layers");
		return NULL;
	}
	for (int l = 0; l < profile->layer_count; l++) {
		enum pd_layer_kind kind = profile->model->layers[l].kind;
		bool begins = block[l] != before, saved = kind == PD_LAYER_attention;

		before = block[l];
		if (block[l] < 0)
			continue;
		products = begins ? 0 : products;
		saved |= kind == PD_LAYER_linear && products++ % 2 == 0;
		number += begins || saved;
		block[l] = saved ? -1 : number;
	}
	return block;
}

/* Tells whether all words are kinds of layers. */
static bool are_kinds(const struct words *words)
{
	for (int w = 0; w < words->count; w++)
		if (pd_names_index(pd_layer_kind_name, words->list[w]) < 0)
			return false;
	return true;
}

static int *blocks_of(const struct pd_profile *profile, const char *list, struct pd_error *err)
{
	int *block, count = find_blocks(profile, &block);

	if (count == 0)
		pd_error_input(err, "no layer has a number in its name, as \"layers.0.mlp\" has: expected a "
			       "network of blocks");
	if (count > 0 && (!*list || choose_blocks(block, profile->layer_count, count, list, err) == 0))
		return block;
	free(block);
	return NULL;
}

int *pd_layout_segments(const struct pd_profile *profile, const char *what, struct pd_error *err)
{
	size_t length = strcspn(what, ":/");
	const char *list = what[length] == ':' ? what + length + 1 : what + length;
	bool modules = strncmp(what, "modules:", length + 1) == 0;
	bool layers = strncmp(what, "layers:", length + 1) == 0;
	bool kinds = strncmp(what, "kinds:", length + 1) == 0;
	struct words words;
	int *segment = NULL;

	if (length == strlen("blocks") && strncmp(what, "blocks", length) == 0)
		return blocks_of(profile, list, err);
	if (strcmp(what, "selective-op") == 0)
		return number_operations(profile, err);
	words_init(&words, modules || layers || kinds ? list : what);
	if (modules || layers)
		segment = number_layers(profile, &words, modules ? fits_module : fits_layer, err);
	else if (!are_kinds(&words))
		pd_error_input(err, "expected one of auto, selective, none, all, blocks, "
			       "selective-op, numbers of stages such as "
			       "0,2, kinds of layers such as attention,gelu, modules:PATTERN or "
			       "layers:PATTERN, found \"%.60s\"", what);
	else if (!profile->model)
		pd_error_input(err, "the profile has no model, and so no kinds of layers");
	else
		segment = number_layers(profile, &words, fits_kind, err);
	words_release(&words);
	return segment;
}
