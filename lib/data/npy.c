/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The NumPy format has one file per input of the model, DIR/train/NAME.npy and DIR/test/NAME.npy,
 * of the shape (samples, input's shape...).  Files are mapped into memory and read in place.
 */
#include "data/npy.h"

#include "base/mem.h"
#include "data/format.h"
#include "base/map.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define MOST_SAMPLES UINT32_MAX         /* an epoch's order has 32-bit numbers */

/* One file holds the samples of one input. */
struct column {
	char *file;
	const struct pd_input *input;
	struct pd_file_map map;
	const uint8_t *data;            /* in map */
	const struct pd_npy_type *type;
	int64_t samples, elements;      /* of one sample */
};

struct npy {
	int count;
	struct column *columns;         /* one per input of the model */
};

static int check_type(struct column *column, const struct pd_npy_header *header,
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

static int check_shape(struct column *column, const struct pd_npy_header *header,
		       struct pd_error *err)
{
	const struct pd_shape *shape = &column->input->shape;
	char found[SHAPE_BYTES], wanted[SHAPE_BYTES];
	bool fits = header->dims == shape->dims + 1;

	for (int d = 0; fits && d < shape->dims; d++)
		fits = header->size[d + 1] == shape->size[d];
	if (!fits)
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

/* Checks that the file ends with the elements. */
static int find_data(struct column *column, const struct pd_npy_header *header,
		     struct pd_error *err)
{
	int64_t found = column->map.count - header->data_at, bytes;

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
	column->data = column->map.bytes + header->data_at;
	return 0;
}

/* Numbers of an i32 input are such as the model can have. */
static int check_numbers(const struct column *column, const struct pd_dataset_range *range,
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

static int open_column(struct column *column, struct pd_dataset_range range, struct pd_error *err)
{
	struct pd_npy_header header;

	if (pd_file_map_open(&column->map, column->file, "a .npy file", err) < 0 ||
	    pd_npy_header_read(column->file, column->map.bytes, column->map.count, &header, err) < 0 ||
	    check_type(column, &header, err) < 0 || check_shape(column, &header, err) < 0 ||
	    find_data(column, &header, err) < 0)
		return -1;
	return check_numbers(column, &range, err);
}

static int open_set(const char *directory, const struct pd_model *model,
		    const struct pd_dataset *train, struct pd_dataset *set_p, struct pd_error *err)
{
	struct npy *npy = pd_zalloc(sizeof(*npy));

	*set_p = (struct pd_dataset){ .format = &pd_data_npy, .state = npy };
	npy->columns = pd_calloc((size_t)model->input_count, sizeof(*npy->columns));
	for (int i = 0; i < model->input_count; i++) {
		struct column *column = &npy->columns[npy->count++];

		column->input = &model->inputs[i];
		column->file = pd_format("%s/%s/%s.npy", directory, train ? "test" : "train",
					 column->input->name);
		if (open_column(column, pd_dataset_range(model, i), err) < 0)
			return -1;
		if (column->samples != npy->columns->samples)
			return pd_error_input(err, "%s: %" PRId64 " samples: expected %" PRId64
					      ", as many as in %s", column->file, column->samples,
					      npy->columns->samples, npy->columns->file);
	}
	set_p->samples = npy->columns->samples;
	return 0;
}

static bool recognise(const char *directory)
{
	char *train = pd_format("%s/train", directory);
	struct stat st;
	bool found = stat(train, &st) == 0 && S_ISDIR(st.st_mode);

	free(train);
	return found;
}

/* What a model normalises are bytes from 0 to 1, as in images. */
static void scale_bytes(float *values, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		values[i] /= 255.0f;
}

static void read_sample(const struct pd_dataset *set, int input, int64_t sample, void *out)
{
	const struct npy *npy = set->state;
	const struct column *column = &npy->columns[input];
	const uint8_t *from = column->data + sample * column->elements * column->type->bytes;

	if (column->input->dtype == PD_I32)
		column->type->to_i32(from, column->elements, out);
	else
		column->type->to_f32(from, column->elements, out);
	if (column->input->channels > 0 && column->type->is_byte)
		scale_bytes(out, column->elements);
}

static const char *file_of(const struct pd_dataset *set, int input)
{
	return ((const struct npy *)set->state)->columns[input].file;
}

static void close_set(struct pd_dataset *set)
{
	struct npy *npy = set->state;

	for (int i = 0; i < npy->count; i++) {
		pd_file_map_close(&npy->columns[i].map);
		free(npy->columns[i].file);
	}
	free(npy->columns);
	free(npy);
}

const struct pd_data_format pd_data_npy = {
	.name = "NumPy", .files = "train/NAME.npy for each input NAME of the model",
	.recognise = recognise, .open = open_set, .read = read_sample, .file = file_of, .close = close_set,
};
