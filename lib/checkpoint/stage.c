/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/stage.h"

#include "base/checksum.h"
#include "base/mem.h"
#include "base/names.h"
#include "checkpoint/info.h"
#include "engine/device/update.h"
#include "memory/arenas.h"
#include "model/kind.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define CHECKSUM_KEY "xxh64:"           /* with a tensor's name, this is a key of __metadata__ */

/* ---- checksums ---- */

/* Returns the checksum of what a tensor is: "1500 0 conv1.weight F32 [4,1,3,3]". */
static uint64_t context(int64_t step, int stage, const struct pd_tensor *tensor)
{
	char *text = pd_format("%" PRId64 " %d %s F32 [", step, stage, tensor->name);
	struct pd_checksum sum;
	char size[24];

	pd_checksum_begin(&sum, 0);
	pd_checksum_add(&sum, text, strlen(text));
	for (int i = 0; i < tensor->dims; i++)
		pd_checksum_add(&sum, size, (size_t)snprintf(size, sizeof(size), "%s%" PRId64,
							     i ? "," : "", tensor->size[i]));
	pd_checksum_add(&sum, "]", 1);
	free(text);
	return pd_checksum_end(&sum);
}

static json_t *make_metadata(int64_t step, const struct pd_checkpoint_file *file,
			     const struct pd_tensor *tensors, const float *const *data, size_t count)
{
	char text[PD_CHECKSUM_DIGITS + 1];
	json_t *metadata = json_object();

	/* Other programs look for this in a file of tensors in PyTorch's layout. */
	pd_json_set(metadata, "format", json_string("pt"));
	pd_json_set(metadata, "step", json_sprintf("%" PRId64, step));
	pd_json_set(metadata, "stage", json_sprintf("%d", file->stage));
	if (file->replica > 0)
		pd_json_set(metadata, "replica", json_sprintf("%d", file->replica));
	for (size_t i = 0; i < count; i++) {
		char *key = pd_format(CHECKSUM_KEY "%s", tensors[i].name);
		uint64_t sum = pd_checksum(context(step, file->stage, &tensors[i]), data[i],
					   (size_t)tensors[i].elements * sizeof(float));

		pd_json_set(metadata, key, json_string(pd_checksum_text(sum, text)));
		free(key);
	}
	return metadata;
}

int pd_checkpoint_write(const char *directory, int64_t step, struct pd_checkpoint_file *file,
			const struct pd_tensor *tensors, const float *const *data, size_t count,
			struct pd_error *err)
{
	char *path = pd_checkpoint_unfinished_path(directory, step, file);
	json_t *metadata = make_metadata(step, file, tensors, data, count);
	int status = pd_safetensors_write(path, tensors, data, count, metadata, &file->checksum, err);

	json_decref(metadata);
	free(path);
	return status;
}

/* Reads the checksum of a tensor from the header; it is an error if there is none. */
static int checksum_of(const struct pd_safetensors *st, const struct pd_tensor *tensor,
		       uint64_t *checksum_p, struct pd_error *err)
{
	char *key = pd_format(CHECKSUM_KEY "%s", tensor->name);
	bool found = pd_checksum_parse(pd_safetensors_metadata(st, key), checksum_p);

	free(key);
	return found ? 0 : pd_error_input(err, "%s: tensor \"%.120s\" has no checksum: it was not "
					  "written there", pd_safetensors_file(st), tensor->name);
}

static int compare(const struct pd_safetensors *st, const struct pd_tensor *tensor,
		   uint64_t expected, uint64_t found, struct pd_error *err)
{
	char was[PD_CHECKSUM_DIGITS + 1], is[PD_CHECKSUM_DIGITS + 1];

	if (found == expected)
		return 0;
	return pd_error_input(err, "%s: tensor \"%.120s\" is damaged, or that of another step or "
			      "name: checksum %s, expected %s", pd_safetensors_file(st),
			      tensor->name, pd_checksum_text(found, is),
			      pd_checksum_text(expected, was));
}

int pd_stage_verify(const struct pd_safetensors *st, const struct pd_checkpoint_info *info,
		    int stage, struct pd_error *err)
{
	const struct pd_tensor *list;
	size_t count = info->checksums ? pd_safetensors_list(st, &list) : 0;

	for (size_t i = 0; i < count; i++) {
		uint64_t expected, found;

		if (checksum_of(st, &list[i], &expected, err) < 0 ||
		    pd_safetensors_checksum(st, &list[i], context(info->step, stage, &list[i]),
					    &found, err) < 0 ||
		    compare(st, &list[i], expected, found, err) < 0)
			return -1;
	}
	return 0;
}

int pd_stage_read(const struct pd_safetensors *st, const struct pd_checkpoint_info *info, int stage,
		  const struct pd_tensor *tensor, float *out, struct pd_error *err)
{
	uint64_t expected;

	if (pd_safetensors_read(st, tensor, out, err) < 0)
		return -1;
	if (!info->checksums)
		return 0;
	if (checksum_of(st, tensor, &expected, err) < 0)
		return -1;
	return compare(st, tensor, expected, pd_checksum(context(info->step, stage, tensor), out,
			(size_t)tensor->elements * sizeof(*out)), err);
}

/* Checks that every checksum in the header belongs to a tensor of the file. */
static int check_none_missing(const struct pd_safetensors *st, struct pd_error *err)
{
	const size_t before = strlen(CHECKSUM_KEY);
	const char *key;
	json_t *value;

	json_object_foreach(pd_safetensors_all_metadata(st), key, value)
		if (strncmp(key, CHECKSUM_KEY, before) == 0 &&
		    !pd_safetensors_find(st, key + before))
			return pd_error_input(err, "%s: tensor \"%.120s\" is missing",
					      pd_safetensors_file(st), key + before);
	return 0;
}

static int check_number(const struct pd_safetensors *st, const char *key, int64_t expected,
			struct pd_error *err)
{
	const char *text = pd_safetensors_metadata(st, key);
	char *wanted = pd_format("%" PRId64, expected);
	bool same = text && strcmp(text, wanted) == 0;

	free(wanted);
	return same ? 0 : pd_error_input(err, "%s: __metadata__.%s: expected \"%" PRId64 "\", found "
					 "%s%.40s%s", pd_safetensors_file(st), key, expected,
					 text ? "\"" : "", text ? text : "nothing", text ? "\"" : "");
}

static int check_header(const struct pd_safetensors *st, const struct pd_checkpoint_info *info,
			const struct pd_checkpoint_file *file, struct pd_error *err)
{
	char was[PD_CHECKSUM_DIGITS + 1], is[PD_CHECKSUM_DIGITS + 1];
	uint64_t found = pd_safetensors_header_checksum(st);

	if (check_number(st, "step", info->step, err) < 0 ||
	    check_number(st, "stage", file->stage, err) < 0 || check_none_missing(st, err) < 0)
		return -1;
	if (found == file->checksum)
		return 0;
	/* A tensor that is not what its name says is a better reason. */
	if (pd_stage_verify(st, info, file->stage, err) < 0)
		return -1;
	return pd_error_input(err, "%s: its header is not the one that was written: checksum %s, "
			      "expected %s", pd_safetensors_file(st), pd_checksum_text(found, is),
			      pd_checksum_text(file->checksum, was));
}

/* ---- which tensors ---- */

/* The parts of a tensor's name, as offsets into it. */
struct parts {
	size_t layer;                   /* length of its layer's name */
	size_t base;                    /* length without the part that follows */
	const char *follows;            /* such as "", ".velocity" or "@12" */
	bool state;
};

/* Tells whether a suffix such as ".velocity" names an arena that checkpoints have. */
static bool names_arena(const char *suffix)
{
	for (int kind = 0; kind < PD_ARENAS; kind++)
		if (pd_arena_saved[kind] && *suffix == '.' &&
		    strcmp(suffix + 1, pd_arena_name[kind]) == 0)
			return true;
	return false;
}

/* Splits a name; returns false if it is not a checkpoint's. */
static bool parse_name(const char *name, struct parts *parts)
{
	const char *end = strrchr(name, '@'), *dot = strrchr(name, '.'), *last = dot;

	*parts = (struct parts){ .base = strlen(name) };
	if (end && end[1] && !strpbrk(end, "."))
		parts->base = (size_t)(end - name);
	else if (dot && names_arena(dot))
		parts->base = (size_t)(dot - name);
	parts->follows = name + parts->base;
	for (const char *c = name; c < name + parts->base; c++)
		if (*c == '.')
			last = c;
	if (!last || last >= name + parts->base)
		return false;
	parts->layer = (size_t)(last - name);
	parts->state = pd_kinds_have(true, last + 1, parts->base - parts->layer - 1);
	return parts->state ? !*parts->follows
			    : pd_kinds_have(false, last + 1, parts->base - parts->layer - 1);
}

bool pd_stage_is_newest(const struct pd_tensor *tensor)
{
	struct parts parts;

	return strncmp(tensor->name, PD_CHUNK_NORMS, strlen(PD_CHUNK_NORMS)) != 0 &&
	       parse_name(tensor->name, &parts) && !*parts.follows;
}

/* Checks that a tensor is there and has the same shape. */
static int need(const struct pd_safetensors *st, const struct pd_tensor *of, const char *suffix,
		struct pd_error *err)
{
	char *name = pd_format("%s%s", of->name, suffix);
	const struct pd_tensor *found = pd_safetensors_find(st, name);
	int status = 0;

	if (!found)
		status = pd_error_input(err, "%s: tensor \"%.120s\" is missing",
					pd_safetensors_file(st), name);
	else if (found->dims != of->dims ||
		 memcmp(found->size, of->size, (size_t)of->dims * sizeof(*of->size)) != 0)
		status = pd_error_input(err, "%s: tensor \"%.120s\": expected the shape of "
					"\"%.120s\"", pd_safetensors_file(st), name, of->name);
	free(name);
	return status;
}

/* Checks all tensors that belong to a parameter's newest version. */
static int check_parameter(const struct pd_safetensors *st, const struct pd_checkpoint_info *info,
			   const struct pd_checkpoint_stage *stage, const struct pd_tensor *tensor,
			   struct pd_error *err)
{
	const char *kind = pd_member_text(info->optimizer, "kind");
	double momentum = json_number_value(json_object_get(info->optimizer, "momentum"));
	int number = kind ? pd_names_index(pd_optimizer_kind_name, kind) : -1;
	int moments = number < 0 ? 0 : pd_optimizer_moment_count((enum pd_optimizer_kind)number, momentum);

	for (int i = 0; i < stage->version_count - 1; i++) {
		char *suffix = pd_format("@%" PRId64, stage->versions[i]);
		int status = need(st, tensor, suffix, err);

		free(suffix);
		if (status < 0)
			return -1;
	}
	if (moments > 0 && need(st, tensor, ".velocity", err) < 0)
		return -1;
	return moments > 1 ? need(st, tensor, ".second", err) : 0;
}

static bool has_version(const struct pd_checkpoint_stage *stage, const char *follows)
{
	for (int i = 0; i < stage->version_count - 1; i++) {
		char *suffix = pd_format("@%" PRId64, stage->versions[i]);
		bool same = strcmp(suffix, follows) == 0;

		free(suffix);
		if (same)
			return true;
	}
	return false;
}

static int check_tensor(const struct pd_safetensors *st, const struct pd_checkpoint_info *info,
			const struct pd_checkpoint_stage *stage, json_t *layers,
			const struct pd_tensor *tensor, struct pd_error *err)
{
	const char *file = pd_safetensors_file(st);
	struct parts parts;
	const json_t *known;
	char *layer, *base;
	bool whole;

	if (strcmp(tensor->dtype, "F32") != 0)
		return pd_error_input(err, "%s: tensor \"%.120s\": expected type F32, found %s",
				      file, tensor->name, tensor->dtype);
	if (strncmp(tensor->name, PD_CHUNK_NORMS, strlen(PD_CHUNK_NORMS)) == 0)
		return 0;
	if (!parse_name(tensor->name, &parts))
		return pd_error_input(err, "%s: tensor \"%.120s\" is none of a checkpoint's: "
				      "expected a name such as \"LAYER.weight\"", file,
				      tensor->name);
	layer = pd_format("%.*s", (int)parts.layer, tensor->name);
	base = pd_format("%.*s", (int)parts.base, tensor->name);
	known = json_object_get(layers, layer);
	whole = pd_safetensors_find(st, base);
	free(layer);
	free(base);
	if (!known)
		return pd_error_input(err, "%s: tensor \"%.120s\" is of no layer of its stage", file,
				      tensor->name);
	if (!whole)
		return pd_error_input(err, "%s: tensor \"%.120s\" stands without its parameter",
				      file, tensor->name);
	if (*parts.follows == '@' && !has_version(stage, parts.follows))
		return pd_error_input(err, "%s: tensor \"%.120s\" is of none of the stage's older "
				      "versions", file, tensor->name);
	if (*parts.follows && json_is_true(known))
		return pd_error_input(err, "%s: tensor \"%.120s\" is of a frozen layer, which has neither older "
				      "versions nor moments", file, tensor->name);
	return *parts.follows || parts.state || json_is_true(known)
		? 0 : check_parameter(st, info, stage, tensor, err);
}

static int check_tensors(const struct pd_safetensors *st, const struct pd_checkpoint_info *info,
			 int number, struct pd_error *err)
{
	const struct pd_checkpoint_stage *stage = &info->stages[number];
	const struct pd_tensor *list;
	size_t count = pd_safetensors_list(st, &list);
	json_t *layers = json_object();
	int status = 0;

	for (int i = 0; i < stage->layer_count; i++)
		pd_json_set(layers, stage->layers[i], json_boolean(stage->frozen && stage->frozen[i]));
	for (size_t i = 0; i < count && status == 0; i++)
		status = check_tensor(st, info, stage, layers, &list[i], err);
	json_decref(layers);
	return status;
}

int pd_stage_check(const struct pd_safetensors *st, const struct pd_checkpoint_info *info,
		   const struct pd_checkpoint_file *file, struct pd_error *err)
{
	if (info->checksums && check_header(st, info, file, err) < 0)
		return -1;
	return file->replica == 0 ? check_tensors(st, info, file->stage, err) : 0;
}
