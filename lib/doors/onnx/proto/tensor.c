/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/onnx/proto/memory.h"

#include "base/half.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct type {
	int type, bytes;
	bool integer;
	const char *name;
} types[] = {
	{ PD_ONNX_F32, 4, false, "F32" }, { PD_ONNX_U8, 1, true, "U8" }, { PD_ONNX_I8, 1, true, "I8" },
	{ PD_ONNX_U16, 2, true, "U16" }, { PD_ONNX_I16, 2, true, "I16" }, { PD_ONNX_I32, 4, true, "I32" },
	{ PD_ONNX_I64, 8, true, "I64" }, { PD_ONNX_BOOL, 1, true, "BOOL" },
	{ PD_ONNX_F16, 2, false, "F16" }, { PD_ONNX_F64, 8, false, "F64" },
	{ PD_ONNX_U32, 4, true, "U32" }, { PD_ONNX_U64, 8, true, "U64" },
	{ PD_ONNX_BF16, 2, false, "BF16" },
};

static const struct type *find_type(int number)
{
	for (size_t i = 0; i < PD_COUNT(types); i++)
		if (types[i].type == number)
			return &types[i];
	return NULL;
}

const char *pd_onnx_type_name(int type)
{
	const struct type *found = find_type(type);

	return found ? found->name : "?";
}

bool pd_onnx_is_integer(int type)
{
	const struct type *found = find_type(type);

	return found && found->integer;
}

bool pd_onnx_is_float(int type)
{
	const struct type *found = find_type(type);

	return found && !found->integer;
}

static int read_shape(const struct pd_onnx *onnx, const Onnx__TensorProto *from,
		      struct pd_onnx_tensor *tensor, struct pd_error *err)
{
	if (from->n_dims > PD_ONNX_DIMS)
		return pd_error_input(err, "%s: %s: expected at most %d axes, found %zu", onnx->file,
				      tensor->name, PD_ONNX_DIMS, from->n_dims);
	tensor->dims = (int)from->n_dims;
	tensor->elements = 1;
	for (int d = 0; d < tensor->dims; d++) {
		tensor->size[d] = from->dims[d];
		if (tensor->size[d] < 0 || !pd_mul(tensor->elements, tensor->size[d], &tensor->elements) ||
		    tensor->elements > INT64_MAX / 16)
			return pd_error_input(err, "%s: %s: expected the size of an axis, found %" PRId64,
					      onnx->file, tensor->name, tensor->size[d]);
	}
	return 0;
}

static bool whole(const char *text, int64_t *number_p)
{
	char *end;

	*number_p = strtoll(text, &end, 10);
	return *text && !*end && *number_p >= 0 && *number_p < INT64_MAX;
}

static int read_location(const struct pd_onnx *onnx, const Onnx__TensorProto *from,
			 struct pd_onnx_tensor *tensor, struct pd_error *err)
{
	tensor->file_bytes = -1;
	for (size_t i = 0; i < from->n_external_data; i++) {
		const char *key = from->external_data[i]->key, *value = from->external_data[i]->value;
		int64_t *number_p = NULL;

		if (!key || !value)
			continue;
		if (strcmp(key, "location") == 0)
			tensor->location = value;
		else if (strcmp(key, "offset") == 0)
			number_p = &tensor->offset_bytes;
		else if (strcmp(key, "length") == 0)
			number_p = &tensor->file_bytes;
		if (number_p && !whole(value, number_p))
			return pd_error_input(err, "%s: %s: %s: expected bytes, found \"%.40s\"", onnx->file,
					      tensor->name, key, value);
	}
	if (!tensor->location)
		return pd_error_input(err, "%s: %s: its data lie elsewhere, but no file is named", onnx->file,
				      tensor->name);
	return 0;
}

/* Numbers may also lie in fields of their type, where small ones take four bytes. */
static int64_t find_data(const Onnx__TensorProto *from, struct pd_onnx_tensor *tensor)
{
	if (from->has_raw_data) {
		tensor->data = from->raw_data.data;
		return (int64_t)from->raw_data.len / tensor->width;
	}
	if (from->n_float_data > 0 && tensor->type == PD_ONNX_F32) {
		tensor->data = (const uint8_t *)from->float_data;
		return (int64_t)from->n_float_data;
	}
	if (from->n_double_data > 0 && tensor->type == PD_ONNX_F64) {
		tensor->data = (const uint8_t *)from->double_data;
		return (int64_t)from->n_double_data;
	}
	if (from->n_int64_data > 0 && tensor->type == PD_ONNX_I64) {
		tensor->data = (const uint8_t *)from->int64_data;
		return (int64_t)from->n_int64_data;
	}
	if (from->n_int32_data > 0 && tensor->width <= 4 && tensor->type != PD_ONNX_F32) {
		tensor->data = (const uint8_t *)from->int32_data;
		tensor->width = 4;
		return (int64_t)from->n_int32_data;
	}
	if (from->n_uint64_data > 0 && (tensor->type == PD_ONNX_U32 || tensor->type == PD_ONNX_U64)) {
		tensor->data = (const uint8_t *)from->uint64_data;
		tensor->width = 8;
		return (int64_t)from->n_uint64_data;
	}
	return 0;
}

int pd_onnx_tensor_of(const struct pd_onnx *onnx, const Onnx__TensorProto *from,
		      struct pd_onnx_tensor *tensor, struct pd_error *err)
{
	const struct type *type = find_type(from->data_type);
	int64_t found;

	tensor->name = from->name ? from->name : "";
	tensor->type = from->data_type;
	tensor->width = type ? type->bytes : 1;
	if (read_shape(onnx, from, tensor, err) < 0)
		return -1;
	if (from->has_data_location && from->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL)
		return read_location(onnx, from, tensor, err);
	found = find_data(from, tensor);
	if (!type || (tensor->elements == 0 && found == 0)) {
		tensor->data = (const uint8_t *)"";     /* one of texts, say, which nobody reads */
		return 0;
	}
	if (found != tensor->elements)
		return pd_error_input(err, "%s: %s: expected %" PRId64 " numbers of type %s, found %" PRId64,
				      onnx->file, tensor->name, tensor->elements, type->name, found);
	return 0;
}

/* The file stays in the folder of the model: no absolute path, nothing that leads up. */
static bool inside(const char *location)
{
	if (!*location || *location == '/')
		return false;
	for (const char *at = location; at; at = strchr(at, '/')) {
		at += *at == '/';
		if (strncmp(at, "..", 2) == 0 && (at[2] == '/' || at[2] == '\0'))
			return false;
	}
	return true;
}

static struct pd_onnx_beside *find_beside(const struct pd_onnx *onnx, const struct pd_onnx_tensor *tensor,
					  struct pd_error *err)
{
	struct pd_onnx_beside *beside = onnx->memory->beside;
	const char *slash = strrchr(onnx->file, '/');
	char *path;

	while (beside && strcmp(beside->location, tensor->location) != 0)
		beside = beside->next;
	if (beside)
		return beside;
	if (!inside(tensor->location)) {
		pd_error_input(err, "%s: %s: expected a file in the model's folder, found \"%.100s\"",
			       onnx->file, tensor->name, tensor->location);
		return NULL;
	}
	beside = pd_zalloc(sizeof(*beside));
	beside->location = tensor->location;
	path = pd_format("%.*s%s", slash ? (int)(slash + 1 - onnx->file) : 0, onnx->file, tensor->location);
	if (pd_file_map_open(&beside->map, path, "the data of tensors", err) < 0) {
		pd_error_prefix(err, "%s: %s", onnx->file, tensor->name);
		free(beside);
		beside = NULL;
	} else {
		beside->next = onnx->memory->beside;
		onnx->memory->beside = beside;
	}
	free(path);
	return beside;
}

static int find_elsewhere(const struct pd_onnx *onnx, struct pd_onnx_tensor *tensor, struct pd_error *err)
{
	struct pd_onnx_beside *beside = find_beside(onnx, tensor, err);
	int64_t bytes = tensor->elements * tensor->width, there;

	if (!beside)
		return -1;
	there = beside->map.count - tensor->offset_bytes;
	if (tensor->file_bytes >= 0 && tensor->file_bytes != bytes)
		return pd_error_input(err, "%s: %s: expected %" PRId64 " bytes in %s, found a length of %" PRId64,
				      onnx->file, tensor->name, bytes, tensor->location, tensor->file_bytes);
	if (there < bytes)
		return pd_error_input(err, "%s: %s: expected %" PRId64 " bytes at %" PRId64 " of %s, found a file "
				      "of %" PRId64, onnx->file, tensor->name, bytes, tensor->offset_bytes,
				      tensor->location, beside->map.count);
	tensor->data = beside->map.bytes + tensor->offset_bytes;
	return 0;
}

static int need_data(const struct pd_onnx *onnx, struct pd_onnx_tensor *tensor, struct pd_error *err)
{
	if (!find_type(tensor->type))
		return pd_error_input(err, "%s: %s: expected numbers, found a tensor of ONNX's type %d",
				      onnx->file, tensor->name, tensor->type);
	return tensor->data ? 0 : find_elsewhere(onnx, tensor, err);
}

/* Reads `width` bytes as an unsigned number; files are little-endian, as are all machines that this runs on. */
static uint64_t bits_at(const struct pd_onnx_tensor *tensor, int64_t i)
{
	uint64_t bits = 0;

	memcpy(&bits, tensor->data + i * tensor->width, (size_t)tensor->width);
	return bits;
}

static int64_t integer_at(const struct pd_onnx_tensor *tensor, int64_t i)
{
	uint64_t bits = bits_at(tensor, i);

	switch (tensor->type) {
	case PD_ONNX_I8: return (int8_t)bits;
	case PD_ONNX_I16: return (int16_t)bits;
	case PD_ONNX_I32: return (int32_t)bits;
	case PD_ONNX_BOOL: return (bits & 0xff) != 0;
	case PD_ONNX_U64: return bits > INT64_MAX ? INT64_MAX : (int64_t)bits;
	default: return (int64_t)bits;
	}
}

static double double_at(const struct pd_onnx_tensor *tensor, int64_t i)
{
	uint64_t bits = bits_at(tensor, i);
	double number;

	switch (tensor->type) {
	case PD_ONNX_F32: return pd_bits_float((uint32_t)bits);
	case PD_ONNX_F16: return pd_from_f16((uint16_t)bits);
	case PD_ONNX_BF16: return pd_from_bf16((uint16_t)bits);
	case PD_ONNX_F64:
		memcpy(&number, &bits, sizeof(number));
		return number;
	default: return (double)integer_at(tensor, i);
	}
}

int pd_onnx_read(const struct pd_onnx *onnx, struct pd_onnx_tensor *tensor, float *out,
		 struct pd_error *err)
{
	if (!pd_onnx_is_float(tensor->type))
		return pd_error_input(err, "%s: %s: expected F32, F16, BF16 or F64, found %s", onnx->file,
				      tensor->name, pd_onnx_type_name(tensor->type));
	if (need_data(onnx, tensor, err) < 0)
		return -1;
	if (tensor->type == PD_ONNX_F32 && tensor->elements > 0)
		memcpy(out, tensor->data, (size_t)tensor->elements * sizeof(*out));
	else
		for (int64_t i = 0; i < tensor->elements; i++)
			out[i] = (float)double_at(tensor, i);
	return 0;
}

int pd_onnx_read_doubles(const struct pd_onnx *onnx, struct pd_onnx_tensor *tensor, double *out,
			 struct pd_error *err)
{
	if (need_data(onnx, tensor, err) < 0)
		return -1;
	for (int64_t i = 0; i < tensor->elements; i++)
		out[i] = double_at(tensor, i);
	return 0;
}

int pd_onnx_read_integers(const struct pd_onnx *onnx, struct pd_onnx_tensor *tensor, int64_t *out,
			  struct pd_error *err)
{
	if (!pd_onnx_is_integer(tensor->type))
		return pd_error_input(err, "%s: %s: expected whole numbers, found %s", onnx->file, tensor->name,
				      pd_onnx_type_name(tensor->type));
	if (need_data(onnx, tensor, err) < 0)
		return -1;
	for (int64_t i = 0; i < tensor->elements; i++)
		out[i] = integer_at(tensor, i);
	return 0;
}
