/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/safetensors.h"

#include "base/checksum.h"
#include "base/file.h"
#include "base/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct pd_safetensors_writer {
	struct pd_file file;
	char *name;
	size_t count, put;
	int64_t *elements;
	uint64_t header_checksum;
};

/* Returns {"dtype": "F32", "shape": [...], "data_offsets": [begin, end]}. */
static json_t *describe(const struct pd_tensor *tensor, int64_t begin, int64_t *end_p,
			int64_t *elements_p)
{
	json_t *shape = json_array();

	*elements_p = 1;
	for (int i = 0; i < tensor->dims; i++) {
		if (tensor->size[i] < 0 || !pd_mul(*elements_p, tensor->size[i], elements_p))
			pd_bug("safetensors: shape of \"%s\"", tensor->name);
		json_array_append_new(shape, json_integer(tensor->size[i]));
	}
	if (*elements_p > INT64_MAX / 4 || !pd_add(begin, *elements_p * 4, end_p))
		pd_bug("safetensors: size of \"%s\"", tensor->name);
	return json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape", shape, "data_offsets",
			 (json_int_t)begin, (json_int_t)*end_p);
}

/*
 * Returns eight bytes with the length of the header, and the header, filled up to a multiple of
 * eight.
 */
static char *make_header(struct pd_safetensors_writer *writer, const struct pd_tensor *tensors,
			 json_t *metadata, size_t *bytes_p)
{
	json_t *header = json_object();
	int64_t at = 0;
	uint64_t padded;
	char *text, *whole;

	if (metadata)
		json_object_set(header, "__metadata__", metadata);
	for (size_t i = 0; i < writer->count; i++) {
		json_t *tensor = describe(&tensors[i], at, &at, &writer->elements[i]);

		if (json_object_get(header, tensors[i].name) ||
		    json_object_set_new(header, tensors[i].name, tensor) != 0)
			pd_bug("safetensors: name \"%s\"", tensors[i].name);
	}
	text = json_dumps(header, JSON_COMPACT);
	if (!text)
		pd_bug("safetensors: a header that cannot be written");
	json_decref(header);
	padded = (strlen(text) + 7) & ~UINT64_C(7);
	*bytes_p = sizeof(padded) + padded;
	whole = pd_zalloc(*bytes_p);
	memset(whole, ' ', *bytes_p);
	memcpy(whole, &padded, sizeof(padded));
	memcpy(whole + sizeof(padded), text, strlen(text));
	free(text);
	return whole;
}

static int failed(const struct pd_safetensors_writer *writer, struct pd_error *err)
{
	return pd_error_failed(err, "%s: cannot write: %s", writer->name,
			       strerror(errno ? errno : EIO));
}

struct pd_safetensors_writer *pd_safetensors_create(const char *file,
						    const struct pd_tensor *tensors, size_t count,
						    json_t *metadata, struct pd_error *err)
{
	struct pd_safetensors_writer *writer = pd_zalloc(sizeof(*writer));
	size_t bytes;
	char *header;
	bool bad;

	writer->name = pd_strdup(file);
	writer->count = count;
	writer->elements = pd_calloc(count, sizeof(*writer->elements));
	if (pd_file_create(&writer->file, file, err) < 0) {
		pd_safetensors_abandon(writer);
		return NULL;
	}
	header = make_header(writer, tensors, metadata, &bytes);
	writer->header_checksum = pd_checksum(0, header, bytes);
	errno = 0;
	bad = fwrite(header, 1, bytes, writer->file.stream) != bytes;
	free(header);
	if (bad) {
		failed(writer, err);
		pd_safetensors_abandon(writer);
		return NULL;
	}
	return writer;
}

uint64_t pd_safetensors_written_header(const struct pd_safetensors_writer *writer)
{
	return writer->header_checksum;
}

int pd_safetensors_put(struct pd_safetensors_writer *writer, const float *data,
		       struct pd_error *err)
{
	size_t elements;

	if (writer->put == writer->count)
		pd_bug("%s: more than the %zu tensors it was created for", writer->name,
		       writer->count);
	elements = (size_t)writer->elements[writer->put++];
	errno = 0;
	if (fwrite(data, sizeof(*data), elements, writer->file.stream) != elements)
		return failed(writer, err);
	return 0;
}

static void free_writer(struct pd_safetensors_writer *writer)
{
	free(writer->elements);
	free(writer->name);
	free(writer);
}

int pd_safetensors_commit(struct pd_safetensors_writer *writer, struct pd_error *err)
{
	int status;

	if (writer->put != writer->count)
		pd_bug("%s: %zu of %zu tensors", writer->name, writer->put, writer->count);
	status = pd_file_commit(&writer->file, err);
	free_writer(writer);
	return status;
}

void pd_safetensors_abandon(struct pd_safetensors_writer *writer)
{
	if (!writer)
		return;
	pd_file_abandon(&writer->file);
	free_writer(writer);
}
