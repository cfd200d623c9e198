/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/safetensors.h"

#include "base/checksum.h"
#include "base/file_kind.h"
#include "base/mem.h"
#include "base/sort.h"
#include "checkpoint/element.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the format is little-endian");

#define HEADER_BYTES_MOST 100000000     /* the limit of other readers of the format */
#define PIECE_BYTES (1 << 18)           /* read at once for a checksum; fits into a cache */

struct pd_safetensors {
	char *file;
	int fd;
	int64_t data_bytes, data_offset;        /* size of the data part; its place in the file */
	size_t count;
	struct pd_tensor *tensors;              /* in the order of the data */
	const struct pd_tensor **by_name;
	json_t *metadata;                       /* owned; may be NULL */
	uint64_t header_checksum;
};

static int read_at(const struct pd_safetensors *st, void *buf, int64_t bytes, int64_t offset,
		   struct pd_error *err)
{
	int64_t done = 0;

	while (done < bytes) {
		ssize_t got = pread(st->fd, (char *)buf + done, (size_t)(bytes - done),
				    offset + done);

		if (got < 0)
			return pd_error_input(err, "%s: cannot read: %s", st->file,
					      strerror(errno));
		if (got == 0)
			return pd_error_input(err, "%s: truncated: expected %" PRId64 " bytes at %"
					      PRId64 ", found %" PRId64, st->file, bytes, offset,
					      done);
		done += got;
	}
	return 0;
}

static int parse_shape(const struct pd_place *place, struct pd_tensor *tensor, struct pd_error *err)
{
	size_t dims;

	if (pd_json_array(place, &dims, err) < 0)
		return -1;
	if (dims > PD_TENSOR_DIMS)
		return pd_place_expected(place, err, "at most %d dimensions", PD_TENSOR_DIMS);
	tensor->dims = (int)dims;
	tensor->elements = 1;
	for (size_t i = 0; i < dims; i++) {
		struct pd_place item = pd_place_index(place, i);

		if (pd_json_int(&item, 0, INT64_MAX, &tensor->size[i], err) < 0)
			return -1;
		if (!pd_mul(tensor->elements, tensor->size[i], &tensor->elements))
			return pd_place_error(place, err, "the number of elements overflows");
	}
	return 0;
}

static int parse_offsets(const struct pd_place *place, int64_t data_bytes,
			 struct pd_tensor *tensor, struct pd_error *err)
{
	struct pd_place begin, end;
	size_t count;

	if (pd_json_array(place, &count, err) < 0)
		return -1;
	if (count != 2)
		return pd_place_expected(place, err, "an array of 2");
	begin = pd_place_index(place, 0);
	end = pd_place_index(place, 1);
	if (pd_json_int(&begin, 0, data_bytes, &tensor->begin_bytes, err) < 0)
		return -1;
	return pd_json_int(&end, tensor->begin_bytes, data_bytes, &tensor->end_bytes, err);
}

static int parse_tensor(const struct pd_place *place, int64_t data_bytes, struct pd_tensor *tensor,
			struct pd_error *err)
{
	struct pd_place dtype, shape, offsets;
	const struct pd_element *element;
	const char *type;
	int64_t bits;

	if (!json_is_object(place->value))
		return pd_place_expected(place, err, "an object");
	dtype = pd_place_key(place, "dtype");
	shape = pd_place_key(place, "shape");
	offsets = pd_place_key(place, "data_offsets");
	if (pd_json_string(&dtype, &type, err) < 0)
		return -1;
	element = pd_element_find(type);
	if (!element)
		return pd_place_expected(&dtype, err, "an element type such as \"F32\"");
	tensor->dtype = element->name;
	if (parse_shape(&shape, tensor, err) < 0 ||
	    parse_offsets(&offsets, data_bytes, tensor, err) < 0)
		return -1;
	if (!pd_mul(tensor->elements, element->bits, &bits) || bits % 8 != 0 ||
	    bits / 8 != tensor->end_bytes - tensor->begin_bytes)
		return pd_place_error(&offsets, err, "%" PRId64 " bytes: expected those of %" PRId64
				      " elements of %s", tensor->end_bytes - tensor->begin_bytes,
				      tensor->elements, type);
	return 0;
}

static int parse_metadata(struct pd_safetensors *st, const struct pd_place *place,
			  struct pd_error *err)
{
	const char *key;
	json_t *value;

	if (json_is_null(place->value))
		return 0;
	if (!json_is_object(place->value))
		return pd_place_expected(place, err, "an object of strings");
	json_object_foreach(place->value, key, value) {
		struct pd_place item = pd_place_key(place, key);

		if (!json_is_string(value))
			return pd_place_expected(&item, err, "a string");
	}
	st->metadata = json_incref(place->value);
	return 0;
}

static int by_offset(const void *a, const void *b)
{
	const struct pd_tensor *x = a, *y = b;

	PD_ORDER(x->begin_bytes, y->begin_bytes);
	/* Empty tensors come first, because they may have the place of another. */
	return (x->end_bytes > y->end_bytes) - (x->end_bytes < y->end_bytes);
}

static int by_name(const void *a, const void *b)
{
	const struct pd_tensor *const *x = a, *const *y = b;

	return strcmp((*x)->name, (*y)->name);
}

/* Checks that there is no gap, no overlap, and nothing after the last tensor. */
static int check_cover(const struct pd_safetensors *st, struct pd_error *err)
{
	int64_t at = 0;

	for (size_t i = 0; i < st->count; i++) {
		const struct pd_tensor *tensor = &st->tensors[i];

		if (tensor->begin_bytes != at)
			return pd_error_input(err, "%s: \"%.60s\" begins at byte %" PRId64
					      " of the data: expected %" PRId64 ", without gap or "
					      "overlap", st->file, tensor->name,
					      tensor->begin_bytes, at);
		at = tensor->end_bytes;
	}
	if (at != st->data_bytes)
		return pd_error_input(err, "%s: the tensors end at byte %" PRId64 " of the data: "
				      "expected %" PRId64 ", the end of the file", st->file, at,
				      st->data_bytes);
	return 0;
}

static int parse_header(struct pd_safetensors *st, json_t *json, struct pd_error *err)
{
	struct pd_place root = pd_place_root(st->file, json);
	const char *key;
	json_t *value;

	if (!json_is_object(json))
		return pd_place_expected(&root, err, "a JSON object in the header");
	st->tensors = pd_calloc(json_object_size(json), sizeof(*st->tensors));
	st->by_name = pd_calloc(json_object_size(json), sizeof(*st->by_name));
	json_object_foreach(json, key, value) {
		struct pd_place place = pd_place_key(&root, key);

		if (strcmp(key, "__metadata__") == 0) {
			if (parse_metadata(st, &place, err) < 0)
				return -1;
			continue;
		}
		st->tensors[st->count].name = pd_strdup(key);
		if (parse_tensor(&place, st->data_bytes, &st->tensors[st->count++], err) < 0)
			return -1;
	}
	qsort(st->tensors, st->count, sizeof(*st->tensors), by_offset);
	for (size_t i = 0; i < st->count; i++)
		st->by_name[i] = &st->tensors[i];
	qsort(st->by_name, st->count, sizeof(*st->by_name), by_name);
	return check_cover(st, err);
}

/*
 * Makes each "\\u0000" a "\\uFFFD".  The format's own library has such characters in metadata, which mean
 * nothing here; jansson has none in a key.
 */
static void replace_nuls(char *text)
{
	for (char *at = text; *at; at++) {
		if (*at != '\\')
			continue;
		if (strncmp(at, "\\u0000", 6) == 0)
			memcpy(at, "\\uFFFD", 6);
		if (*++at == 0)
			break;
	}
}

static int read_header(struct pd_safetensors *st, struct pd_error *err)
{
	const struct pd_file_kind *kind;
	char found[PD_FILE_KIND_TEXT];
	struct stat info;
	uint64_t length = 0;
	struct pd_checksum sum;
	json_t *json;
	char *text, *name;
	int status;

	if (fstat(st->fd, &info) != 0 || !S_ISREG(info.st_mode))
		return pd_error_input(err, "%s: expected a file", st->file);
	if (info.st_size < 8)
		return pd_error_input(err, "%s: %" PRId64 " bytes: expected a safetensors file, "
				      "which begins with 8 for the length of its header", st->file,
				      (int64_t)info.st_size);
	if (read_at(st, &length, 8, 0, err) < 0)
		return -1;
	kind = pd_file_kind_of(st->file);
	if ((length > HEADER_BYTES_MOST || (int64_t)length > info.st_size - 8) && kind)
		return pd_error_input(err, "%s: expected a safetensors file%s", st->file,
				      pd_file_kind_say(kind, found));
	if (length > HEADER_BYTES_MOST || (int64_t)length > info.st_size - 8)
		return pd_error_input(err, "%s: expected a safetensors file, found one whose first 8"
				      " bytes announce a header of %" PRIu64 " bytes; at most %" PRId64
				      " are possible", st->file, length,
				      info.st_size - 8 < HEADER_BYTES_MOST ?
				      (int64_t)info.st_size - 8 : HEADER_BYTES_MOST);
	st->data_offset = 8 + (int64_t)length;
	st->data_bytes = info.st_size - st->data_offset;
	text = pd_zalloc(length + 1);
	if (read_at(st, text, (int64_t)length, 8, err) < 0) {
		free(text);
		return -1;
	}
	pd_checksum_begin(&sum, 0);
	pd_checksum_add(&sum, &length, sizeof(length));
	pd_checksum_add(&sum, text, length);
	st->header_checksum = pd_checksum_end(&sum);
	name = pd_format("%s: header", st->file);
	replace_nuls(text);
	json = pd_json_load_text(text, length, name, err);
	free(name);
	free(text);
	if (!json)
		return -1;
	status = parse_header(st, json, err);
	json_decref(json);
	return status;
}

struct pd_safetensors *pd_safetensors_open(const char *file, struct pd_error *err)
{
	struct pd_safetensors *st = pd_zalloc(sizeof(*st));

	st->file = pd_strdup(file);
	st->fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (st->fd < 0)
		pd_error_input(err, "%s: cannot open: %s", file, strerror(errno));
	if (st->fd < 0 || read_header(st, err) < 0) {
		pd_safetensors_close(st);
		return NULL;
	}
	return st;
}

void pd_safetensors_close(struct pd_safetensors *st)
{
	if (!st)
		return;
	if (st->fd >= 0)
		close(st->fd);
	for (size_t i = 0; i < st->count; i++)
		free(st->tensors[i].name);
	json_decref(st->metadata);
	free(st->tensors);
	free(st->by_name);
	free(st->file);
	free(st);
}

const char *pd_safetensors_file(const struct pd_safetensors *st)
{
	return st->file;
}

size_t pd_safetensors_list(const struct pd_safetensors *st, const struct pd_tensor **list_p)
{
	*list_p = st->tensors;
	return st->count;
}

const struct pd_tensor *pd_safetensors_find(const struct pd_safetensors *st, const char *name)
{
	struct pd_tensor key = { .name = (char *)(uintptr_t)name };
	const struct pd_tensor *wanted = &key;
	const struct pd_tensor **found = bsearch(&wanted, st->by_name, st->count,
						 sizeof(*st->by_name), by_name);

	return found ? *found : NULL;
}

bool pd_tensor_is_float(const struct pd_tensor *tensor)
{
	const struct pd_element *type = pd_element_find(tensor->dtype);

	return type && type->read;
}

/* Elements that are wider than a float are read piece by piece. */
static int read_wide(const struct pd_safetensors *st, const struct pd_element *type, int64_t offset,
		     int64_t count, float *out, struct pd_error *err)
{
	int64_t bytes = type->bits / 8, most = PIECE_BYTES / bytes;
	char *piece = pd_zalloc(PIECE_BYTES);
	int status = 0;

	for (int64_t done = 0; done < count && status == 0; done += most) {
		int64_t some = count - done < most ? count - done : most;

		status = read_at(st, piece, some * bytes, offset + done * bytes, err);
		if (status == 0)
			type->read(piece, some, out + done);
	}
	free(piece);
	return status;
}

int pd_safetensors_read_some(const struct pd_safetensors *st, const struct pd_tensor *tensor, int64_t first,
			     int64_t count, float *out, struct pd_error *err)
{
	const struct pd_element *type = pd_element_find(tensor->dtype);
	int64_t bytes = count * type->bits / 8;
	int64_t offset = st->data_offset + tensor->begin_bytes + first * type->bits / 8;
	char *end = (char *)(out + count) - bytes;

	if (!type->read)
		return pd_error_input(err, "%s: \"%.60s\": expected elements of type " PD_TENSOR_FLOATS
				      ", found %s", st->file, tensor->name, type->name);
	if (type->bits > 32)
		return read_wide(st, type, offset, count, out, err);
	/* An element is then written where earlier ones were read. */
	if (read_at(st, end, bytes, offset, err) < 0)
		return -1;
	type->read(end, count, out);
	return 0;
}

int pd_safetensors_read(const struct pd_safetensors *st, const struct pd_tensor *tensor, float *out,
			struct pd_error *err)
{
	return pd_safetensors_read_some(st, tensor, 0, tensor->elements, out, err);
}

int pd_safetensors_checksum(const struct pd_safetensors *st, const struct pd_tensor *tensor,
			    uint64_t seed, uint64_t *checksum_p, struct pd_error *err)
{
	int64_t at = tensor->begin_bytes;
	char *piece = pd_zalloc(PIECE_BYTES);
	struct pd_checksum sum;
	int status = 0;

	pd_checksum_begin(&sum, seed);
	while (at < tensor->end_bytes && status == 0) {
		int64_t bytes = tensor->end_bytes - at < PIECE_BYTES ? tensor->end_bytes - at
								     : PIECE_BYTES;

		status = read_at(st, piece, bytes, st->data_offset + at, err);
		if (status == 0)
			pd_checksum_add(&sum, piece, (size_t)bytes);
		at += bytes;
	}
	free(piece);
	*checksum_p = pd_checksum_end(&sum);
	return status;
}

uint64_t pd_safetensors_header_checksum(const struct pd_safetensors *st)
{
	return st->header_checksum;
}

const char *pd_safetensors_metadata(const struct pd_safetensors *st, const char *key)
{
	return pd_member_text(st->metadata, key);
}

json_t *pd_safetensors_all_metadata(const struct pd_safetensors *st)
{
	return st->metadata;
}
