/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/info.h"

#include "base/checksum.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 1000000                    /* limit of warmup and replicas, above any machine's */
#define VERSION 2                       /* version 1 had no checksums */
#define CHECKSUM_KEY "\"checksum\": \""
#define NO_CHECKSUM "0000000000000000"  /* placeholder for the document's own checksum */

char *pd_checkpoint_file_name(const struct pd_checkpoint_file *file)
{
	return file->replica == 0 ? pd_format("stage-%d.safetensors", file->stage)
				  : pd_format("stage-%d-replica-%d.safetensors", file->stage,
					      file->replica);
}

int pd_checkpoint_file_number(const struct pd_checkpoint_info *info, int stage, int replica)
{
	for (int i = 0; i < info->file_count; i++)
		if (info->files[i].stage == stage && info->files[i].replica == replica)
			return i;
	return -1;
}

static json_t *layers_json(const void *of)
{
	const struct pd_checkpoint_stage *stage = of;
	json_t *array = json_array();

	for (int l = 0; l < stage->layer_count; l++)
		pd_json_add(array, json_string(stage->layers[l]));
	return array;
}

static json_t *versions_json(const void *of)
{
	const struct pd_checkpoint_stage *stage = of;
	json_t *array = json_array();

	for (int i = 0; i < stage->version_count; i++)
		pd_json_add(array, json_integer(stage->versions[i]));
	return array;
}

static int parse_versions(const struct pd_place *place, void *of, struct pd_error *err)
{
	struct pd_checkpoint_stage *stage = of;
	size_t count;

	if (pd_json_array(place, &count, err) < 0)
		return -1;
	if (count == 0)
		return pd_place_expected(place, err, "at least one version");
	stage->versions = pd_calloc(count, sizeof(*stage->versions));
	for (size_t i = 0; i < count; i++) {
		struct pd_place item = pd_place_index(place, i);
		int64_t least = i ? stage->versions[i - 1] + 1 : 0;

		if (pd_json_int(&item, least, INT64_MAX - 1, &stage->versions[i], err) < 0)
			return -1;
	}
	stage->version_count = (int)count;
	return 0;
}

/* An object that is passed on unchanged. */
static int read_object(const struct pd_place *place, void *member, struct pd_error *err)
{
	if (!json_is_object(place->value))
		return pd_place_expected(place, err, "an object");
	*(json_t **)member = json_incref(place->value);
	return 0;
}

static json_t *object_json(const void *member)
{
	return json_incref(*(json_t *const *)member);
}

static json_t *no_checksum_json(const void *of)
{
	(void)of;
	return json_string(NO_CHECKSUM);
}

static int parse_stages(const struct pd_place *place, void *of, struct pd_error *err);
static json_t *stages_json(const void *of);

#define STAGE(member) PD_MEMBER(struct pd_checkpoint_stage, member)
#define IN(member) PD_MEMBER(struct pd_checkpoint_info, member)
#define OBJECT PD_ROW_BY, .read = read_object, .write = object_json

#define OLD_STAGE_ROWS \
	{ "file", PD_ROW_BY, .needed = true }, \
	{ "layers", PD_ROW_BY, .needed = true, .write = layers_json }, \
	{ "warmup", PD_ROW_INT, .needed = true, STAGE(warmup), .most = MOST }, \
	{ "replicas", PD_ROW_INT, .needed = true, STAGE(replicas), .least = 1, .most = MOST }, \
	{ "versions", PD_ROW_BY, .needed = true, .read = parse_versions, .write = versions_json }

static const struct pd_key_row old_stage_rows[] = { OLD_STAGE_ROWS, { NULL } };
static const struct pd_key_row stage_rows[] = {
	OLD_STAGE_ROWS,
	{ "header_checksum", PD_ROW_BY, .needed = true },
	{ "replica_checksums", PD_ROW_BY },
	{ "frozen", PD_ROW_BY },
	{ NULL }
};

#define OLD_ROWS \
	PD_ROWS_HEADER("pd-checkpoint", VERSION), \
	{ "step", PD_ROW_INT, .needed = true, IN(step) }, \
	{ "epoch", PD_ROW_INT, .needed = true, IN(epoch) }, \
	{ "minibatch", PD_ROW_INT, .needed = true, IN(minibatch) }, \
	{ "seed", PD_ROW_INT, .needed = true, IN(seed) }, \
	{ "batch_size", PD_ROW_INT, .needed = true, IN(batch_size), .least = 1 }, \
	{ "name", PD_ROW_TEXT, .needed = true, IN(name) }, \
	{ "dtype", PD_ROW_TEXT, .needed = true, IN(dtype) }, \
	{ "optimizer", OBJECT, .needed = true, IN(optimizer) }, \
	{ "stages", PD_ROW_BY, .needed = true, .rows = stage_rows, .read = parse_stages, .write = stages_json }

static const struct pd_key_row old_rows[] = { OLD_ROWS, { NULL } };
const struct pd_key_row pd_checkpoint_rows[] = {
	OLD_ROWS,
	{ "model", OBJECT, IN(model) },
	{ "recipe", OBJECT, IN(recipe) },
	{ "checksum", PD_ROW_BY, .needed = true, .write = no_checksum_json },
	{ NULL }
};

static json_t *stage_json(const struct pd_checkpoint_info *info, int number)
{
	const struct pd_checkpoint_stage *stage = &info->stages[number];
	char *file = pd_checkpoint_file_name(&info->files[number]), sum[PD_CHECKSUM_DIGITS + 1];
	json_t *sums = json_array(), *frozen = json_array(), *json = json_pack("{s:s}", "file", file);

	for (int i = info->stage_count; i < info->file_count; i++)
		if (info->files[i].stage == number)
			pd_json_add(sums, json_string(pd_checksum_text(
					info->files[i].checksum, sum)));
	for (int l = 0; l < stage->layer_count && stage->frozen; l++)
		if (stage->frozen[l])
			pd_json_add(frozen, json_string(stage->layers[l]));
	pd_rows_write(old_stage_rows, stage, json);
	pd_json_set(json, "header_checksum",
		    json_string(pd_checksum_text(info->files[number].checksum, sum)));
	free(file);
	if (json_array_size(sums) > 0)
		json_object_set(json, "replica_checksums", sums);
	if (json_array_size(frozen) > 0)
		json_object_set(json, "frozen", frozen);
	json_decref(sums);
	json_decref(frozen);
	return json;
}

static json_t *stages_json(const void *of)
{
	const struct pd_checkpoint_info *info = of;
	json_t *stages = json_array();

	for (int i = 0; i < info->stage_count; i++)
		pd_json_add(stages, stage_json(info, i));
	return stages;
}

/* Returns the digits of the document's own checksum, its last key; NULL if they are missing. */
static char *own_checksum(char *text)
{
	char *at = NULL;

	for (char *next = text; (next = strstr(next, CHECKSUM_KEY)); at = next)
		next += strlen(CHECKSUM_KEY);
	return at && strnlen(at, PD_CHECKSUM_DIGITS) == PD_CHECKSUM_DIGITS ? at : NULL;
}

char *pd_checkpoint_info_text(const struct pd_checkpoint_info *info, size_t *bytes_p)
{
	char sum[PD_CHECKSUM_DIGITS + 1], *text = NULL;
	FILE *stream = pd_mem_stream(&text, bytes_p);
	json_t *json;

	if (info->seed > INT64_MAX)
		pd_bug("checkpoint: seed %" PRIu64, info->seed);
	json = pd_rows_json(pd_checkpoint_rows, info);
	if (pd_json_write(json, stream, NULL) < 0)
		pd_mem_exhausted(0);
	pd_mem_stream_close(stream);
	json_decref(json);
	pd_checksum_text(pd_checksum(0, text, *bytes_p), sum);
	memcpy(own_checksum(text), sum, PD_CHECKSUM_DIGITS);
	return text;
}

static void release_stage(struct pd_checkpoint_stage *stage)
{
	for (int i = 0; i < stage->layer_count; i++)
		free(stage->layers[i]);
	free(stage->layers);
	free(stage->frozen);
	free(stage->versions);
}

void pd_checkpoint_info_release(struct pd_checkpoint_info *info)
{
	for (int i = 0; i < info->stage_count; i++)
		release_stage(&info->stages[i]);
	free(info->stages);
	free(info->files);
	free(info->name);
	free(info->dtype);
	json_decref(info->optimizer);
	json_decref(info->model);
	json_decref(info->recipe);
	*info = (struct pd_checkpoint_info){ 0 };
}

static int parse_layers(const struct pd_place *place, json_t *seen,
			struct pd_checkpoint_stage *stage, struct pd_error *err)
{
	size_t count;

	if (pd_json_array(place, &count, err) < 0)
		return -1;
	stage->layers = pd_calloc(count, sizeof(*stage->layers));
	stage->frozen = pd_calloc(count, sizeof(*stage->frozen));
	for (size_t i = 0; i < count; i++) {
		struct pd_place item = pd_place_index(place, i);
		const char *name;

		if (pd_json_string(&item, &name, err) < 0)
			return -1;
		if (json_object_get(seen, name))
			return pd_place_error(&item, err, "layer \"%.60s\" stands twice", name);
		pd_json_set(seen, name, json_true());
		stage->layers[stage->layer_count++] = pd_strdup(name);
	}
	return 0;
}

/* Reads the names of frozen layers, if there are any: some of the stage's, in their order. */
static int parse_frozen(const struct pd_place *place, struct pd_checkpoint_stage *stage,
			struct pd_error *err)
{
	size_t count;
	int l = 0;

	if (!place->value)
		return 0;
	if (pd_json_array(place, &count, err) < 0)
		return -1;
	for (size_t i = 0; i < count; i++) {
		struct pd_place item = pd_place_index(place, i);
		const char *name;

		if (pd_json_string(&item, &name, err) < 0)
			return -1;
		while (l < stage->layer_count && strcmp(stage->layers[l], name) != 0)
			l++;
		if (l == stage->layer_count)
			return pd_place_expected(&item, err, "a layer of the stage, in their order");
		stage->frozen[l] = true;
	}
	return 0;
}

static int parse_checksum(const struct pd_place *place, struct pd_checkpoint_file *file,
			  struct pd_error *err)
{
	if (pd_checksum_parse(json_string_value(place->value), &file->checksum))
		return 0;
	return pd_place_expected(place, err, "%d hexadecimal digits", PD_CHECKSUM_DIGITS);
}

/* Adds the files of a stage's further replicas, if there are any. */
static int parse_replicas(const struct pd_place *at, int number, struct pd_checkpoint_info *info,
			  struct pd_error *err)
{
	struct pd_place place = pd_place_key(at, "replica_checksums");
	int replicas = info->stages[number].replicas;
	size_t count;

	if (!place.value)
		return 0;
	if (pd_json_array(&place, &count, err) < 0)
		return -1;
	if (count + 1 != (size_t)replicas)
		return pd_place_expected(&place, err, "%d checksums, one of each replica but the first",
					 replicas - 1);
	info->files = pd_regrow(info->files, (size_t)info->file_count + count, sizeof(*info->files));
	for (size_t i = 0; i < count; i++) {
		struct pd_place item = pd_place_index(&place, i);
		struct pd_checkpoint_file *file = &info->files[info->file_count++];

		*file = (struct pd_checkpoint_file){ .stage = number, .replica = (int)i + 1 };
		if (parse_checksum(&item, file, err) < 0)
			return -1;
	}
	return 0;
}

static int parse_stage(const struct pd_place *place, json_t *seen, int number,
		       struct pd_checkpoint_info *info, struct pd_error *err)
{
	struct pd_place file_place = pd_place_key(place, "file"), layers = pd_place_key(place, "layers");
	struct pd_place frozen = pd_place_key(place, "frozen"),
			sum = pd_place_key(place, "header_checksum");
	struct pd_checkpoint_stage *stage = &info->stages[number];
	const char *file;
	char *expected;
	bool same;

	info->files[number].stage = number;
	if (pd_rows_read(place, info->checksums ? stage_rows : old_stage_rows, stage, err) < 0 ||
	    (info->checksums && parse_checksum(&sum, &info->files[number], err) < 0) ||
	    pd_json_string(&file_place, &file, err) < 0)
		return -1;
	expected = pd_checkpoint_file_name(&info->files[number]);
	same = strcmp(file, expected) == 0;
	if (!same)
		pd_place_expected(&file_place, err, "\"%s\"", expected);
	free(expected);
	return !same || parse_layers(&layers, seen, stage, err) < 0 || parse_frozen(&frozen, stage, err) < 0
		? -1 : parse_replicas(place, number, info, err);
}

static int parse_stages(const struct pd_place *place, void *of, struct pd_error *err)
{
	struct pd_checkpoint_info *info = of;
	json_t *seen;
	size_t count;
	int status = 0;

	if (pd_json_array(place, &count, err) < 0)
		return -1;
	if (count == 0)
		return pd_place_expected(place, err, "at least one stage");
	info->stages = pd_calloc(count, sizeof(*info->stages));
	info->files = pd_calloc(count, sizeof(*info->files));
	info->stage_count = info->file_count = (int)count;
	seen = json_object();
	for (size_t i = 0; i < count && status == 0; i++) {
		struct pd_place item = pd_place_index(place, i);

		status = parse_stage(&item, seen, (int)i, info, err);
	}
	json_decref(seen);
	return status;
}

/* Checks the checksum of the text, with zeros in place of its own digits. */
static int check_own(const char *name, char *text, size_t bytes, uint64_t *checksum_p,
		     struct pd_error *err)
{
	char *at = own_checksum(text), was[PD_CHECKSUM_DIGITS + 1], is[PD_CHECKSUM_DIGITS + 1];
	uint64_t found;

	if (!at)
		return pd_error_input(err, "%s: checksum: expected \"checksum\" as its last key",
				      name);
	memcpy(was, at, PD_CHECKSUM_DIGITS);
	was[PD_CHECKSUM_DIGITS] = 0;
	memcpy(at, NO_CHECKSUM, PD_CHECKSUM_DIGITS);
	*checksum_p = found = pd_checksum(0, text, bytes);
	if (strcmp(pd_checksum_text(found, is), was) == 0)
		return 0;
	return pd_error_input(err, "%s: damaged, or changed since it was written: checksum %s, "
			      "expected %.16s", name, is, was);
}

static json_t *parse_text(const char *name, char *text, size_t bytes, struct pd_error *err)
{
	FILE *in;
	json_t *json;

	if (bytes == 0) {
		pd_error_input(err, "%s: empty: expected a JSON object", name);
		return NULL;
	}
	in = fmemopen(text, bytes, "r");
	if (!in)
		pd_mem_exhausted(0);
	json = pd_json_load_stream(in, name, false, err);
	fclose(in);
	return json;
}

int pd_checkpoint_info_read(const char *folder, struct pd_checkpoint_info *info_p,
			    struct pd_error *err)
{
	struct pd_checkpoint_info info = { 0 };
	char *name = pd_format("%s/" PD_CHECKPOINT_DOCUMENT, folder);
	size_t bytes = 0;
	char *text = pd_file_read(name, PD_CHECKPOINT_DOCUMENT_BYTES_MOST, &bytes, err);
	json_t *json = text ? parse_text(name, text, bytes, err) : NULL;
	int status = -1;

	if (json) {
		struct pd_place root = pd_place_root(name, json);

		info.checksums = json_number_value(json_object_get(json, "version")) > 1;
		status = pd_rows_read(&root, info.checksums ? pd_checkpoint_rows : old_rows, &info, err);
		json_decref(json);
	}
	if (status == 0 && info.checksums)
		status = check_own(name, text, bytes, &info.document_checksum, err);
	free(text);
	free(name);
	if (status < 0)
		pd_checkpoint_info_release(&info);
	else
		*info_p = info;
	return status;
}

static void add_json(struct pd_checksum *sum, const json_t *value)
{
	const size_t how = JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY;
	char *text = value ? json_dumps(value, how) : NULL;

	if (text)
		pd_checksum_add(sum, text, strlen(text) + 1);
	free(text);
}

uint64_t pd_checkpoint_run(const struct pd_checkpoint_info *info)
{
	const json_t *data = json_object_get(info->recipe, "data");
	char *numbers = pd_format("%" PRIu64 " %" PRId64, info->seed, info->batch_size);
	struct pd_checksum sum;

	pd_checksum_begin(&sum, 0);
	pd_checksum_add(&sum, numbers, strlen(numbers) + 1);
	pd_checksum_add(&sum, info->name, strlen(info->name) + 1);
	add_json(&sum, json_object_get(info->optimizer, "kind"));
	add_json(&sum, info->model);
	add_json(&sum, json_object_get(data, "checksum"));
	free(numbers);
	return pd_checksum_end(&sum);
}

int64_t pd_checkpoint_of_another_run(const char *directory, uint64_t run)
{
	int64_t step = INT64_MAX;
	bool other = false;

	while (!other && pd_checkpoint_highest(directory, step, &step, NULL) == 0 && step >= 0) {
		char *folder = pd_checkpoint_folder(directory, step);
		struct pd_checkpoint_info info;

		if (pd_checkpoint_info_read(folder, &info, NULL) == 0) {
			other = info.recipe && pd_checkpoint_run(&info) != run;
			pd_checkpoint_info_release(&info);
		}
		free(folder);
	}
	return other ? step : -1;
}
