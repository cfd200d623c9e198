/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/layout/read.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/opt.h"
#include "doors/layout/blocks.h"
#include "doors/layout/megatron.h"
#include "doors/layout/torchtitan.h"
#include "plan/plan.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BYTES (1 << 26)    /* of a file of names */

struct reading {
	const struct pd_profile *profile;
	struct pd_blocks blocks;
	int64_t replicas;               /* of every stage */
	FILE *out;                      /* the list */
	int begun;                      /* layers in the list so far */
	int64_t round;                  /* 0: not said */
	struct pd_error *err;
};

/* Ends a stage in front of a module. */
static int end_stage(struct reading *r, int stage, int module)
{
	int layer = r->blocks.first[module];

	if (layer == r->begun)
		return pd_error_input(r->err, "stage %d has no layer: every stage needs one", stage);
	fprintf(r->out, "%s%dx%" PRId64, r->begun > 0 ? "," : "", layer - r->begun, r->replicas);
	r->begun = layer;
	return 0;
}

static int read_megatron(struct reading *r, const char *text)
{
	const struct pd_blocks *blocks = &r->blocks;
	struct pd_megatron_stage *stages;
	int count, decoders = 0, result = 0;

	if (pd_blocks_check_decoder(blocks, r->profile->name, "a layout of Megatron", r->err) < 0)
		return -1;
	count = pd_megatron_read(text, &stages, r->err);
	for (int s = 0; s < count; s++)
		decoders += stages[s].decoders;
	if (count < 0)
		return -1;
	if (decoders != blocks->decoder_count)
		result = pd_error_input(r->err, "the layout has %d decoder layers (t), profile \"%.60s\" has %d, \"%.60s\" "
					"the first", decoders, r->profile->name, blocks->decoder_count,
					blocks->own[blocks->decoder_first]);
	decoders = blocks->decoder_first;
	for (int s = 0; s < count && result == 0; s++) {
		decoders += stages[s].decoders;
		result = end_stage(r, s, stages[s].loss ? blocks->count
				   : stages[s].embedding || stages[s].decoders ? decoders
				   : pd_blocks_at(blocks, r->begun));
	}
	free(stages);
	return result;
}

static int read_parts(struct reading *r, const char *text)
{
	int64_t before = 0, part;
	char *end;

	for (int s = -1; *text; s++, text = end + (*end == ',')) {
		part = isdigit((unsigned char)*text) ? strtol(text, &end, 10) : -1;
		if (part < 0 || (*end && *end != ',') || (s < 0 ? part != 0 : part < before) ||
		    part > r->blocks.count)
			return pd_error_input(r->err, "expected the modules with which stages begin, ascending from 0 to "
					      "%d, found \"%.40s\"", r->blocks.count, text);
		if (s >= 0 && end_stage(r, s, (int)part) < 0)
			return -1;
		before = part;
	}
	return before == r->blocks.count ? 0
		: pd_error_input(r->err, "the parts have %" PRId64 " modules, profile \"%.60s\" has %d (\"%.60s\" to "
				 "\"%.60s\")", before, r->profile->name, r->blocks.count, r->blocks.names[0],
				 r->blocks.names[r->blocks.count - 1]);
}

/* Tells whether torchtitan calls a module so, or did: lm_head was output. */
static bool is_torchtitan_name(const struct pd_blocks *blocks, int module, const char *name)
{
	char text[PD_TORCHTITAN_NAME];

	return pd_torchtitan_name(blocks, module, text) &&
	       (strcmp(name, text) == 0 || (strcmp(text, "lm_head") == 0 && strcmp(name, "output") == 0));
}

/* Goes past the next module, which must have that name. */
static int read_name(struct reading *r, const struct pd_place *place, int *module_p)
{
	const char *name;

	if (pd_json_string(place, &name, r->err) < 0)
		return -1;
	if (*module_p == r->blocks.count)
		return pd_place_error(place, r->err, "expected no more modules, found \"%.60s\"", name);
	if (strcmp(name, r->blocks.names[*module_p]) != 0 && strcmp(name, r->blocks.own[*module_p]) != 0 &&
	    !is_torchtitan_name(&r->blocks, *module_p, name))
		return pd_place_error(place, r->err, "expected \"%.60s\" next, found \"%.60s\"",
				      r->blocks.names[*module_p], name);
	(*module_p)++;
	return 0;
}

static int read_lists(struct reading *r, const struct pd_place *root)
{
	size_t stages, names;
	int module = 0;

	if (pd_json_array(root, &stages, r->err) < 0)
		return -1;
	for (size_t s = 0; s < stages; s++) {
		struct pd_place list = pd_place_index(root, s);

		if (pd_json_array(&list, &names, r->err) < 0)
			return -1;
		for (size_t i = 0; i < names; i++) {
			struct pd_place at = pd_place_index(&list, i);

			if (read_name(r, &at, &module) < 0)
				return -1;
		}
		if (end_stage(r, (int)s, module) < 0)
			return -1;
	}
	return module == r->blocks.count ? 0
		: pd_place_error(root, r->err, "expected \"%.60s\" next, found the end", r->blocks.names[module]);
}

/* Returns where the array begins: TOML's arrays of strings are JSON's, but for a comma at the end. */
static char *array_in(char *text)
{
	char *key = strstr(text, "module_fqns_per_model_part"), *begin = strchr(key ? key : text, '[');

	for (char *c = begin; c && *c; c++)
		if (*c == ']') {
			char *before = c;

			while (before > begin && isspace((unsigned char)before[-1]))
				before--;
			if (before[-1] == ',')
				before[-1] = ' ';
		}
	return begin;
}

static int read_fqns(struct reading *r, const char *file)
{
	size_t bytes;
	char *text = pd_file_read(file, MOST_BYTES, &bytes, r->err), *begin;
	struct pd_place root;
	json_error_t wrong;
	int result;

	if (!text)
		return -1;
	begin = array_in(text);
	root = pd_place_root(file, begin ? json_loads(begin, JSON_DISABLE_EOF_CHECK, &wrong) : NULL);
	result = root.value ? read_lists(r, &root)
		: pd_error_input(r->err, "%s: expected an array of the modules of each stage, such as [[\"%.60s\"], ...]",
				 file, r->blocks.names[0]);
	json_decref(root.value);
	free(text);
	return result;
}

/* Takes "xR" off the end of a text. */
static int take_replicas(struct reading *r, char *text)
{
	char *times = strrchr(text, 'x');

	if (!times)
		return 0;
	*times = '\0';
	return pd_parse_count(times + 1, 1, PD_MAX_RANKS, &r->replicas, r->err);
}

/* Returns an argument, "--name value" or "--name=value", quoted or not; free() it; NULL: it is not there. */
static char *argument(const char *text, const char *name)
{
	for (const char *at = strstr(text, name); at; at = strstr(at + 1, name)) {
		const char *end = at + strlen(name), *value = end + strspn(end, "= \t\n");
		char quote[] = { *value, 0 };
		bool quoted = *value == '"' || *value == '\'';

		if (value > end && (at == text || isspace((unsigned char)at[-1])))
			return pd_format("%.*s", (int)strcspn(value + quoted, quoted ? quote : " \t\n"), value + quoted);
	}
	return NULL;
}

/* Returns the number that an argument has, `otherwise` without it; 0: it has none, and *err says so. */
static int64_t number_of(struct reading *r, const char *text, const char *name, int64_t otherwise)
{
	char *value = argument(text, name);
	int64_t number = otherwise;

	if (value && pd_parse_count(value, 1, PD_MAX_ROUND, &number, r->err) < 0) {
		pd_error_prefix(r->err, "%s", name);
		number = 0;
	}
	free(value);
	return number;
}

/* Returns the layout of arguments that name none: equal stages; NULL: they do not say how many. */
static char *even_layout(struct reading *r, const char *text)
{
	int64_t ranks = number_of(r, text, PD_MEGATRON_RANKS, -1), each = number_of(r, text, PD_MEGATRON_VIRTUAL, 1);
	int64_t blocks = r->blocks.decoder_count, stages = ranks * each;

	if (ranks < 0)
		pd_error_input(r->err, "expected " PD_MEGATRON_LAYOUT " or " PD_MEGATRON_RANKS " among Megatron's arguments");
	if (stages <= 0)
		return NULL;
	if (blocks % stages != 0) {
		pd_error_input(r->err, "%" PRId64 " stages cannot have equally many of %" PRId64 " blocks: expected "
			       PD_MEGATRON_LAYOUT, stages, blocks);
		return NULL;
	}
	return stages == 1 ? pd_format("Et*%" PRId64 "L", blocks)
			   : pd_format("Et*%" PRId64 "(|t*%" PRId64 ")*%" PRId64 "L", blocks / stages, blocks / stages,
				       stages - 1);
}

/* Makes arguments for Megatron the layout that is among them; other texts stay. */
static int take_arguments(struct reading *r, char **text_p)
{
	char *layout;
	int result = 0;

	if (!strstr(*text_p, "--"))
		return 0;
	layout = argument(*text_p, PD_MEGATRON_LAYOUT);
	r->round = number_of(r, *text_p, PD_MEGATRON_ROUND, -1);
	if (!layout)
		layout = even_layout(r, *text_p);
	if (!layout || r->round == 0)
		result = -1;
	r->round = r->round < 0 ? 0 : r->round;
	free(*text_p);
	*text_p = layout;
	return result;
}

static int read(struct reading *r, const char *text)
{
	static const struct {
		const char *prefix;
		int (*read)(struct reading *r, const char *text);
		bool file;
	} words[] = {
		{ "megatron:", read_megatron, false }, { "parts:", read_parts, false }, { "fqns:", read_fqns, true },
	};
	int result = -1;

	for (size_t i = 0; i < PD_COUNT(words); i++) {
		size_t length = strlen(words[i].prefix);
		char *rest;

		if (strncmp(text, words[i].prefix, length) != 0)
			continue;
		rest = pd_strdup(text + length);
		if (words[i].file || (take_arguments(r, &rest) == 0 && take_replicas(r, rest) == 0))
			result = words[i].read(r, rest);
		free(rest);
		return result;
	}
	return pd_error_input(r->err, "expected a list such as 8x1,6x1, or megatron:LAYOUT, parts:0,9,18 or fqns:FILE, "
			      "found \"%.60s\"", text);
}

char *pd_layout_stages(const struct pd_profile *profile, const char *text, int64_t *round_p, struct pd_error *err)
{
	struct reading r = { .profile = profile, .replicas = 1, .err = err };
	char *list = NULL;
	size_t size;
	int result;

	*round_p = 0;
	if (!strchr(text, ':'))
		return pd_strdup(text);
	pd_blocks_init(&r.blocks, profile);
	r.out = pd_mem_stream(&list, &size);
	result = read(&r, text);
	pd_mem_stream_close(r.out);
	pd_blocks_release(&r.blocks);
	*round_p = r.round;
	if (result == 0)
		return list;
	pd_error_prefix(err, "--stages");
	free(list);
	return NULL;
}
