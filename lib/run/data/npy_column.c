/* SPDX-License-Identifier: Apache-2.0 */
/* The samples of one input of the model, an array in a file or an archive. */
#include "run/data/npy.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_SAMPLES UINT32_MAX         /* an epoch's order has 32-bit numbers */

static int check_type(struct pd_npy_column *column, const struct pd_npy_header *header,
		      struct pd_error *err)
{
	bool whole = column->input->dtype == PD_I32;
	char list[PD_NPY_LIST_BYTES];

	column->type = pd_npy_type_find(header->type);
	if (!column->type || (whole && !column->type->to_i32))
		return pd_error_input(err, "%s: elements of type '%s': expected, for the %s input "
				      "\"%.60s\", one of %s; array.astype(\"%s\") makes them",
				      column->file, header->type, pd_dtype_name[column->input->dtype],
				      column->input->name, pd_npy_type_list(whole, list),
				      whole ? "int32" : "float32");
	if (header->fortran_order)
		return pd_error_input(err, "%s: in Fortran order: expected C order, which "
				      "numpy.save(file, numpy.ascontiguousarray(array)) writes",
				      column->file);
	return 0;
}

#define SHAPE_BYTES 96

/* Writes a shape as NumPy does: "(60000, 28, 28)", or "(samples,)" with a word for its first size. */
static const char *shape_text(const char *word, const int64_t *size, int dims,
			      char text[SHAPE_BYTES])
{
	size_t used = (size_t)snprintf(text, SHAPE_BYTES, "(%s", word ? word : "");

	for (int d = 0; d < dims && used < SHAPE_BYTES; d++)
		used += (size_t)snprintf(text + used, SHAPE_BYTES - used, "%s%" PRId64,
					 word || d ? ", " : "", size[d]);
	if (used < SHAPE_BYTES)
		snprintf(text + used, SHAPE_BYTES - used, dims + (word != NULL) == 1 ? ",)" : ")");
	return text;
}

/* Copies the sizes that are not 1, and returns how many there are. */
static int long_axes(const int64_t *size, int dims, int64_t *out)
{
	int count = 0;

	for (int d = 0; d < dims; d++)
		if (size[d] != 1)
			out[count++] = size[d];
	return count;
}

/* Tells whether samples of an array have the input's numbers in its order, whatever axes of 1 there are. */
static bool same_order(const struct pd_shape *shape, const struct pd_npy_header *header)
{
	int64_t wanted[PD_MAX_DIMS], found[PD_NPY_DIMS], elements = 1;
	int count = long_axes(shape->size, shape->dims, wanted);

	if (long_axes(header->size + 1, header->dims - 1, found) == count &&
	    memcmp(wanted, found, (size_t)count * sizeof(*wanted)) == 0)
		return true;
	for (int d = 1; d < header->dims; d++)
		if (!pd_mul(elements, header->size[d], &elements))
			return false;
	return shape->dims == 1 && elements == shape->size[0];  /* which takes anything, flattened */
}

/* Tells whether they are images whose channels are the last axis, not the first. */
static bool channels_last(const struct pd_input *input, const struct pd_npy_header *header)
{
	const struct pd_shape *shape = &input->shape;

	return input->dtype == PD_F32 && shape->dims == 3 && header->dims == 4 &&
	       header->size[1] == shape->size[1] && header->size[2] == shape->size[2] &&
	       header->size[3] == shape->size[0];
}

static int check_shape(struct pd_npy_column *column, const struct pd_npy_header *header,
		       struct pd_error *err)
{
	const struct pd_shape *shape = &column->input->shape;
	char found[SHAPE_BYTES], wanted[SHAPE_BYTES];
	bool fits = header->dims > 0 && same_order(shape, header);

	column->channels_last = !fits && channels_last(column->input, header);
	if (!fits && !column->channels_last)
		return pd_error_input(err, "%s: shape %s: expected %s, samples of the model's input "
				      "\"%.60s\"", column->file,
				      shape_text(NULL, header->size, header->dims, found),
				      shape_text("samples", shape->size, shape->dims, wanted),
				      column->input->name);
	column->samples = header->size[0];
	column->elements = pd_shape_elements(shape);
	if (column->samples == 0)
		return pd_error_input(err, "%s: expected at least one sample, found none",
				      column->file);
	if (column->samples > MOST_SAMPLES)
		return pd_error_input(err, "%s: %" PRId64 " samples: expected fewer than 2^32",
				      column->file, column->samples);
	return 0;
}

/* Checks that an array of `total` bytes ends with the elements. */
static int check_size(const struct pd_npy_column *column, int64_t total, struct pd_error *err)
{
	int64_t found = total - column->data_at, bytes;

	if (!pd_mul(column->samples, column->elements, &bytes) ||
	    !pd_mul(bytes, column->type->bytes, &bytes) || bytes > found)
		return pd_error_input(err, "%s: truncated: expected %" PRId64 " samples of %" PRId64
				      " bytes, found %" PRId64 " bytes of them", column->file,
				      column->samples, column->elements * column->type->bytes,
				      found);
	if (bytes < found)
		return pd_error_input(err, "%s: expected the end of the file after the last sample"
				      " that its header counts, found %" PRId64 " more bytes",
				      column->file, found - bytes);
	return 0;
}

/* Numbers of an i32 input are such as the model can have. */
static int check_numbers(const struct pd_npy_column *column, const struct pd_dataset_range *range,
			 struct pd_error *err)
{
	const struct pd_npy_type *type = column->type;
	int64_t count = column->samples * column->elements, at;
	uint64_t value;
	char text[24];

	if (column->input->dtype != PD_I32)
		return 0;
	at = type->find_outside(column->data, count, range);
	if (at == count)
		return 0;
	value = type->value(column->data + at * type->bytes);
	if (type->negative)
		snprintf(text, sizeof(text), "%" PRId64, (int64_t)value);
	else
		snprintf(text, sizeof(text), "%" PRIu64, value);
	return pd_error_input(err, "%s: %s in sample %" PRId64 ": expected a number from %" PRId64
			      " to %" PRId64 ", for the model's input \"%.60s\"", column->file,
			      text, at / column->elements, range->least, range->limit - 1,
			      column->input->name);
}

int pd_npy_column_describe(struct pd_npy_column *column, const uint8_t *bytes, int64_t count, int64_t total,
			   struct pd_error *err)
{
	struct pd_npy_header header;

	if (pd_npy_header_read(column->file, bytes, count, &header, err) < 0 ||
	    check_type(column, &header, err) < 0 || check_shape(column, &header, err) < 0)
		return -1;
	column->data_at = header.data_at;
	return check_size(column, total, err);
}

int pd_npy_column_fill(struct pd_npy_column *column, const uint8_t *bytes,
		       struct pd_dataset_range range, struct pd_error *err)
{
	column->data = bytes + column->data_at;
	return check_numbers(column, &range, err);
}

/* ---- a set, which both formats have ---- */

int pd_npy_check_samples(struct pd_dataset *set, struct pd_error *err)
{
	const struct pd_npy_set *npy = set->state;
	const struct pd_npy_column *first = npy->columns, *last = first + npy->count - 1;

	set->samples = first->samples;
	return last->samples == first->samples ? 0
		: pd_error_input(err, "%s: %" PRId64 " samples: expected %" PRId64 ", as many as in %s",
				 last->file, last->samples, first->samples, first->file);
}

/* What a model normalises are bytes from 0 to 1, as in images. */
static void scale_bytes(float *values, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		values[i] /= 255.0f;
}

/* Reads an image whose channels are the last axis. */
static void read_channels_last(const struct pd_npy_column *column, const uint8_t *from, float *out)
{
	int64_t channels = column->input->shape.size[0], plane = column->elements / channels, c = 0, place = 0;
	float part[256];

	for (int64_t at = 0, count; at < column->elements; at += count) {
		count = column->elements - at;
		if (count > (int64_t)PD_COUNT(part))
			count = PD_COUNT(part);
		column->type->to_f32(from + at * column->type->bytes, count, part);
		for (int64_t i = 0; i < count; i++) {
			out[c * plane + place] = part[i];
			if (++c == channels) {
				c = 0;
				place++;
			}
		}
	}
}

void pd_npy_read(const struct pd_dataset *set, int input, int64_t sample, void *out)
{
	const struct pd_npy_set *npy = set->state;
	const struct pd_npy_column *column = &npy->columns[input];
	const uint8_t *from = column->data + sample * column->elements * column->type->bytes;

	if (column->input->dtype == PD_I32)
		column->type->to_i32(from, column->elements, out);
	else if (column->channels_last)
		read_channels_last(column, from, out);
	else
		column->type->to_f32(from, column->elements, out);
	if (column->input->channels > 0 && column->type->is_byte)
		scale_bytes(out, column->elements);
}

const char *pd_npy_file(const struct pd_dataset *set, int input)
{
	return ((const struct pd_npy_set *)set->state)->columns[input].file;
}

void pd_npy_close(struct pd_dataset *set)
{
	struct pd_npy_set *npy = set->state;

	for (int i = 0; i < npy->count; i++) {
		pd_file_map_close(&npy->columns[i].map);
		free(npy->columns[i].unpacked);
		free(npy->columns[i].file);
	}
	pd_zip_close(&npy->zip);
	free(npy->columns);
	free(npy);
}
