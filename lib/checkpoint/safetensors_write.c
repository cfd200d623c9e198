/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/safetensors.h"

#include "base/checksum.h"
#include "base/file.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static int64_t elements_of(const struct pd_tensor *tensor)
{
	int64_t elements = 1;

	for (int i = 0; i < tensor->dims; i++)
		if (tensor->size[i] < 0 || !pd_mul(elements, tensor->size[i], &elements))
			pd_bug("safetensors: shape of \"%s\"", tensor->name);
	return elements;
}

/* Returns {"dtype": "F32", "shape": [...], "data_offsets": [begin, end]}. */
static json_t *describe(const struct pd_tensor *tensor, int64_t begin, int64_t *end_p)
{
	json_t *shape = json_array();
	int64_t elements = elements_of(tensor);

	for (int i = 0; i < tensor->dims; i++)
		pd_json_add(shape, json_integer(tensor->size[i]));
	if (elements > INT64_MAX / 4 || !pd_add(begin, elements * 4, end_p))
		pd_bug("safetensors: size of \"%s\"", tensor->name);
	return json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape", shape, "data_offsets",
			 (json_int_t)begin, (json_int_t)*end_p);
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
		json_t *tensor = describe(&tensors[i], at, &at);

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

int pd_safetensors_write(const char *name, const struct pd_tensor *tensors,
			 const float *const *data, size_t count, json_t *metadata,
			 uint64_t *checksum_p, struct pd_error *err)
{
	struct pd_file file;
	size_t bytes;
	char *header;

	if (pd_file_create(&file, name, err) < 0)
		return -1;
	header = make_header(tensors, count, metadata, &bytes);
	*checksum_p = pd_checksum(0, header, bytes);
	fwrite(header, 1, bytes, file.stream);          /* the commit finds a failure */
	free(header);
	for (size_t i = 0; i < count && !ferror(file.stream); i++)
		fwrite(data[i], sizeof(float), (size_t)elements_of(&tensors[i]), file.stream);
	return pd_file_commit(&file, err);
}
