/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/safetensors.h"

#include "base/checksum.h"
#include "base/file.h"
#include "base/mem.h"
#include "checkpoint/element.h"

#include <stdlib.h>
#include <string.h>

#define PIECE 65536                     /* elements that are converted and written at once */

static const struct pd_element *element_of(const struct pd_tensor *tensor)
{
	const struct pd_element *element = pd_element_find(tensor->dtype ? tensor->dtype : "F32");

	if (!element || !element->write)
		pd_bug("safetensors: type of \"%s\"", tensor->name);
	return element;
}

int64_t pd_tensor_bytes(const struct pd_tensor *tensor)
{
	int64_t bytes = element_of(tensor)->bits / 8;

	for (int i = 0; i < tensor->dims; i++)
		if (tensor->size[i] < 0 || !pd_mul(bytes, tensor->size[i], &bytes))
			pd_bug("safetensors: shape of \"%s\"", tensor->name);
	return bytes;
}

/* Returns {"dtype": "F32", "shape": [...], "data_offsets": [begin, end]}. */
static json_t *describe_tensor(const struct pd_tensor *tensor, int64_t begin, int64_t *end_p)
{
	json_t *shape = json_array();

	for (int i = 0; i < tensor->dims; i++)
		pd_json_add(shape, json_integer(tensor->size[i]));
	if (!pd_add(begin, pd_tensor_bytes(tensor), end_p))
		pd_bug("safetensors: size of \"%s\"", tensor->name);
	return json_pack("{s:s, s:o, s:[I, I]}", "dtype", element_of(tensor)->name, "shape", shape,
			 "data_offsets", (json_int_t)begin, (json_int_t)*end_p);
}

/*
 * Returns eight bytes with the length of the header, and the header, filled up to a multiple of
 * eight.
 */
static char *make_header(const struct pd_tensor *tensors, size_t count, json_t *metadata,
			 size_t *bytes_p)
{
	json_t *header = json_object();
	int64_t at = 0;
	uint64_t padded;
	char *text, *whole;

	if (metadata)
		json_object_set(header, "__metadata__", metadata);
	for (size_t i = 0; i < count; i++) {
		json_t *tensor = describe_tensor(&tensors[i], at, &at);

		if (json_object_get(header, tensors[i].name))
			pd_bug("safetensors: name \"%s\"", tensors[i].name);
		pd_json_set(header, tensors[i].name, tensor);
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

static int write_tensor(const struct pd_file *file, const struct pd_tensor *tensor, const float *data,
			char *piece, struct pd_error *err)
{
	const struct pd_element *element = element_of(tensor);
	size_t bytes = (size_t)element->bits / 8;
	int64_t count = pd_tensor_bytes(tensor) / (int64_t)bytes;

	for (int64_t done = 0; done < count && !ferror(file->stream); done += PIECE) {
		int64_t some = count - done < PIECE ? count - done : PIECE;

		if (!element->write(data + done, some, piece))
			return pd_error_input(err, "%s: \"%.120s\" has a number that is too large for %s: expected "
					      "another type", file->name ? file->name : "standard output",
					      tensor->name, element->name);
		fwrite(piece, bytes, (size_t)some, file->stream);       /* the commit finds a failure */
	}
	return 0;
}

int pd_safetensors_write_each(const char *name, const struct pd_tensor *tensors, size_t count, json_t *metadata,
			      pd_tensor_giver *give, void *context, uint64_t *checksum_p, struct pd_error *err)
{
	char *piece, *header;
	struct pd_file file;
	int status = 0;
	size_t bytes;

	if (pd_file_create(&file, name, err) < 0)
		return -1;
	header = make_header(tensors, count, metadata, &bytes);
	*checksum_p = pd_checksum(0, header, bytes);
	fwrite(header, 1, bytes, file.stream);
	free(header);
	piece = pd_zalloc(PIECE * sizeof(double));
	for (size_t i = 0; i < count && status == 0 && !ferror(file.stream); i++) {
		const float *data = give(context, i, err);

		status = data ? write_tensor(&file, &tensors[i], data, piece, err) : -1;
	}
	free(piece);
	if (status == 0)
		return pd_file_commit(&file, err);
	pd_file_abandon(&file);
	return -1;
}

static const float *give_next(void *context, size_t number, struct pd_error *err)
{
	const float *const *data = context;

	(void)err;
	return data[number];
}

int pd_safetensors_write(const char *name, const struct pd_tensor *tensors,
			 const float *const *data, size_t count, json_t *metadata,
			 uint64_t *checksum_p, struct pd_error *err)
{
	return pd_safetensors_write_each(name, tensors, count, metadata, give_next, (void *)(uintptr_t)data,
					 checksum_p, err);
}
