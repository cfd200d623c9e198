/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors in a safetensors file, or in several that an index lists. */
#include "doors/tensors/tensors.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct shards {
	size_t count, room;
	struct pd_safetensors **files;
	json_t *names;                  /* file -> number; of an index */
};

static void close_shards(void *of)
{
	struct shards *shards = of;

	for (size_t i = 0; i < shards->count; i++)
		pd_safetensors_close(shards->files[i]);
	free(shards->files);
	json_decref(shards->names);
	free(shards);
}

static size_t list_shards(void *of, const struct pd_tensor ***list_p)
{
	const struct shards *shards = of;
	const struct pd_tensor *tensors;
	size_t count = 0, room = 0;

	*list_p = NULL;
	for (size_t i = 0; i < shards->count; i++) {
		size_t some = pd_safetensors_list(shards->files[i], &tensors);

		*list_p = pd_grow(*list_p, &room, count + some, sizeof(**list_p));
		for (size_t t = 0; t < some; t++)
			(*list_p)[count++] = &tensors[t];
	}
	return count;
}

static int read_some(void *of, const struct pd_tensor *tensor, int64_t first, int64_t count, float *out,
		     struct pd_error *err)
{
	const struct shards *shards = of;
	size_t i = 0;

	while (pd_safetensors_find(shards->files[i], tensor->name) != tensor)
		i++;
	return pd_safetensors_read_some(shards->files[i], tensor, first, count, out, err);
}

static const struct pd_tensors_ops shards_ops = {
	.list = list_shards, .read_some = read_some, .close = close_shards,
};

static int add(struct shards *shards, const char *path, struct pd_error *err)
{
	struct pd_safetensors *st = pd_safetensors_open(path, err);

	if (!st)
		return -1;
	shards->files = pd_grow(shards->files, &shards->room, shards->count + 1, sizeof(*shards->files));
	shards->files[shards->count++] = st;
	return 0;
}

const struct pd_tensors_ops *pd_tensors_of_file(const char *path, void **of_p, struct pd_error *err)
{
	struct shards *shards = pd_zalloc(sizeof(*shards));

	*of_p = shards;
	if (add(shards, path, err) == 0)
		return &shards_ops;
	close_shards(shards);
	return NULL;
}

/* The number of a file beside the index, which is opened; -1: an error. */
static json_int_t shard(struct shards *shards, const struct pd_place *place, struct pd_error *err)
{
	const char *slash = strrchr(place->document, '/'), *name;
	json_t *known;
	char *path;
	int status;

	if (pd_json_string(place, &name, err) < 0)
		return -1;
	if (strchr(name, '/'))
		return pd_place_expected(place, err, "the name of a file beside the index");
	known = json_object_get(shards->names, name);
	if (known)
		return json_integer_value(known);
	path = pd_format("%.*s%s", slash ? (int)(slash + 1 - place->document) : 0, place->document, name);
	status = add(shards, path, err);
	free(path);
	if (status < 0)
		return -1;
	pd_json_set(shards->names, name, json_integer((json_int_t)shards->count - 1));
	return (json_int_t)shards->count - 1;
}

/* Every tensor of the map is in its file. */
static int read_map(struct shards *shards, const struct pd_place *map, struct pd_error *err)
{
	const char *name;
	json_t *value;

	if (!map->value)
		return pd_error_input(err, "%s: expected a safetensors file, found a JSON document; an index of "
				      "several files has a \"weight_map\"", map->document);
	if (!json_is_object(map->value))
		return pd_place_expected(map, err, "an object with the file of each tensor");
	json_object_foreach(map->value, name, value) {
		struct pd_place at = pd_place_key(map, name);
		json_int_t number = shard(shards, &at, err);

		if (number < 0)
			return -1;
		if (!pd_safetensors_find(shards->files[number], name))
			return pd_place_error(&at, err, "%s has no such tensor", json_string_value(value));
	}
	return 0;
}

/* Every tensor of a file is in the map, and there once. */
static int check_files(const struct shards *shards, const struct pd_place *map, struct pd_error *err)
{
	const struct pd_tensor *tensors;

	for (size_t i = 0; i < shards->count; i++) {
		size_t count = pd_safetensors_list(shards->files[i], &tensors);

		for (size_t t = 0; t < count; t++) {
			const char *file = pd_member_text(map->value, tensors[t].name);
			json_t *number = file ? json_object_get(shards->names, file) : NULL;

			if (!number || json_integer_value(number) != (json_int_t)i)
				return pd_error_input(err, "%s: \"%.120s\": expected it in %s, as its index says",
						      pd_safetensors_file(shards->files[i]), tensors[t].name,
						      file ? file : "no file");
		}
	}
	return 0;
}

const struct pd_tensors_ops *pd_tensors_of_index(const char *path, void **of_p, struct pd_error *err)
{
	json_t *index = pd_json_load(path, err);
	struct shards *shards = pd_zalloc(sizeof(*shards));
	struct pd_place root = pd_place_root(path, index), map = pd_place_key(&root, "weight_map");
	int status = -1;

	shards->names = json_object();
	*of_p = shards;
	if (index && read_map(shards, &map, err) == 0)
		status = check_files(shards, &map, err);
	json_decref(index);
	if (status == 0)
		return &shards_ops;
	close_shards(shards);
	return NULL;
}
