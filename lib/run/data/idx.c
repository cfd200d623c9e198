/* SPDX-License-Identifier: Apache-2.0 */
/*
 * IDX, the format of MNIST: two zero bytes, the type of the elements (8: bytes), the
 * number of dimensions, each dimension as four big-endian bytes, then the elements.
 */
#include "run/data/format.h"

#include "base/file_kind.h"
#include "base/mem.h"
#include "engine/data/images.h"

#include <inttypes.h>
#include <stdlib.h>

static uint32_t big_endian(const uint8_t *bytes)
{
	return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 |
	       bytes[3];
}

/* Reads the header: `dims` dimensions, into size. */
static int header(struct pd_source *source, int dims, int64_t *size, struct pd_error *err)
{
	const struct pd_file_kind *kind;
	uint8_t bytes[16];
	char found[PD_FILE_KIND_TEXT];
	uint32_t expected = 0x0800 | (uint32_t)dims;

	if (pd_source_fill(source, bytes, 4 + 4 * dims, "IDX header", err) < 0)
		return -1;
	kind = bytes[0] ? pd_file_kind(bytes, (size_t)(4 + 4 * dims)) : NULL;
	if (kind)
		return pd_error_input(err, "%s: expected an IDX file%s", source->name,
				      pd_file_kind_say(kind, found));
	if (big_endian(bytes) != expected)
		return pd_error_input(err, "%s: begins with 0x%08" PRIx32 ": expected 0x%08" PRIx32
				      ", an IDX file of bytes in %d dimension%s", source->name,
				      big_endian(bytes), expected, dims, dims > 1 ? "s" : "");
	for (int i = 0; i < dims; i++)
		size[i] = big_endian(bytes + 4 + 4 * i);
	if (size[0] == 0)
		return pd_error_input(err, "%s: expected at least one sample, found none",
				      source->name);
	return 0;
}

/*
 * Reads the elements and checks that the file ends there.  Allocates no more than the file can
 * hold.
 */
static uint8_t *elements(struct pd_source *source, int64_t bytes, const char *what,
			 struct pd_error *err)
{
	uint8_t *data;

	if (bytes > source->most_bytes) {
		pd_error_input(err, "%s: truncated: expected %" PRId64 " bytes of %s, found at "
			       "most %" PRId64, source->name, bytes, what, source->most_bytes);
		return NULL;
	}
	data = malloc((size_t)bytes);
	if (!data) {
		pd_error_failed(err, "out of memory: %s: %" PRId64 " bytes of %s do not fit",
				source->name, bytes, what);
		return NULL;
	}
	if (pd_source_fill(source, data, bytes, what, err) < 0 || pd_source_end(source, err) < 0) {
		free(data);
		return NULL;
	}
	return data;
}

static int images(struct pd_source *source, const struct pd_model *model,
		  struct pd_images *out_p, struct pd_error *err)
{
	int64_t size[3], bytes;

	if (header(source, 3, size, err) < 0 ||
	    pd_images_shape(source->name, model, 1, size[1], size[2], err) < 0)
		return -1;
	if (!pd_mul(size[0], size[1] * size[2], &bytes))
		return pd_error_input(err, "%s: too large: %" PRId64 " images of %" PRId64 "x%"
				      PRId64, source->name, size[0], size[1], size[2]);
	out_p->samples = size[0];
	out_p->channels = 1;
	out_p->height = (int)size[1];
	out_p->width = (int)size[2];
	out_p->pixels = elements(source, bytes, "pixels", err);
	return out_p->pixels ? 0 : -1;
}

static int labels(struct pd_source *source, const char *images_name, struct pd_images *out_p,
		  struct pd_error *err)
{
	int64_t count;

	if (header(source, 1, &count, err) < 0)
		return -1;
	if (count != out_p->samples)
		return pd_error_input(err, "%s: %" PRId64 " labels: expected %" PRId64
				      ", the number of images in %s", source->name, count,
				      out_p->samples, images_name);
	out_p->labels = elements(source, count, "labels", err);
	if (!out_p->labels)
		return -1;
	return pd_images_labels(source->name, out_p->labels, 0, count, out_p->classes, err);
}

static int read_set(const char *directory, bool test, const struct pd_model *model,
		    struct pd_images *out_p, struct pd_error *err)
{
	const char *prefix = test ? "t10k" : "train";
	struct pd_source image_source = { 0 }, label_source = { 0 };
	char *name = pd_format("%s-images-idx3-ubyte", prefix);
	int status = pd_source_open(&image_source, directory, name, err);

	if (status == 0)
		status = images(&image_source, model, out_p, err);
	free(name);
	name = pd_format("%s-labels-idx1-ubyte", prefix);
	if (status == 0)
		status = pd_source_open(&label_source, directory, name, err);
	if (status == 0)
		status = labels(&label_source, image_source.name, out_p, err);
	free(name);
	pd_source_close(&image_source);
	pd_source_close(&label_source);
	return status;
}

static bool recognise(const char *directory, bool test)
{
	return pd_source_exists(directory, test ? "t10k-images-idx3-ubyte" : "train-images-idx3-ubyte");
}

static int open_set(const char *directory, const struct pd_model *model, bool test,
		    const struct pd_dataset *train, struct pd_dataset *set_p, struct pd_error *err)
{
	return pd_images_open(&pd_data_idx, read_set, directory, model, test, train, set_p, err);
}

const struct pd_data_format pd_data_idx = {
	.name = "IDX", .files = "train-images-idx3-ubyte[.gz] and its like",
	.recognise = recognise, .open = open_set, .read = pd_images_read,
	.close = pd_images_close,
};
