/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CIFAR-10, binary version: records of one label byte and 3072 pixel bytes, a plane of
 * 32 rows of 32 for each of red, green and blue.  No header: the file's size says how many.
 */
#include "run/data/format.h"

#include "base/mem.h"
#include "engine/data/images.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PIXELS 3072
#define CLASSES 10
#define MOST_SAMPLES (INT64_C(1) << 24) /* of one set; stops a file that unpacks without end */

struct capacity {
	size_t pixels, labels;          /* capacities, in samples */
};

static int read_file(struct pd_source *source, struct capacity *capacity, struct pd_images *set,
		     struct pd_error *err)
{
	uint8_t record[1 + PIXELS];
	int64_t first = set->samples, got;

	while ((got = pd_source_read(source, record, sizeof(record), err)) ==
	       (int64_t)sizeof(record)) {
		size_t n = (size_t)set->samples;

		if (set->samples == MOST_SAMPLES)
			return pd_error_input(err, "%s: too large: expected at most %" PRId64
					      " samples in a set", source->name, MOST_SAMPLES);
		set->pixels = pd_grow(set->pixels, &capacity->pixels, n + 1, PIXELS);
		set->labels = pd_grow(set->labels, &capacity->labels, n + 1, 1);
		set->labels[n] = record[0];
		memcpy(set->pixels + n * PIXELS, record + 1, PIXELS);
		set->samples++;
	}
	if (got < 0)
		return -1;
	if (got > 0 && ((set->samples - first) * (1 + PIXELS) + got) % (2 + PIXELS) == 0)
		return pd_error_input(err, "%s: records of %d bytes, as in CIFAR-100: expected those of "
				      "CIFAR-10, of %d", source->name, 2 + PIXELS, 1 + PIXELS);
	if (got > 0)
		return pd_error_input(err, "%s: truncated: expected records of %d bytes, found %"
				      PRId64 " bytes after the last whole one", source->name,
				      1 + PIXELS, got);
	if (set->samples == first)
		return pd_error_input(err, "%s: expected at least one sample, found none",
				      source->name);
	return pd_images_labels(source->name, set->labels, first, set->samples - first,
				set->classes < CLASSES ? set->classes : CLASSES, err);
}

static const char *const train_files[] = {
	"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
	"data_batch_5.bin", NULL
};
static const char *const test_files[] = { "test_batch.bin", NULL };

static int read_set(const char *directory, bool test, const struct pd_model *model,
		    struct pd_images *out_p, struct pd_error *err)
{
	const char *const *files = test ? test_files : train_files;
	struct capacity capacity = { 0 };
	int status = 0;

	out_p->channels = 3;
	out_p->height = out_p->width = 32;
	for (; status == 0 && *files; files++) {
		struct pd_source source = { 0 };

		status = pd_source_open(&source, directory, *files, err);
		if (status == 0)
			status = pd_images_shape(source.name, model, 3, 32, 32, err);
		if (status == 0)
			status = read_file(&source, &capacity, out_p, err);
		pd_source_close(&source);
	}
	return status;
}

static bool recognise(const char *directory, bool test)
{
	return pd_source_exists(directory, test ? test_files[0] : train_files[0]);
}

static int open_set(const char *directory, const struct pd_model *model, bool test,
		    const struct pd_dataset *train, struct pd_dataset *set_p, struct pd_error *err)
{
	return pd_images_open(&pd_data_cifar, read_set, directory, model, test, train, set_p, err);
}

const struct pd_data_format pd_data_cifar = {
	.name = "CIFAR-10", .files = "data_batch_1.bin and its like",
	.recognise = recognise, .open = open_set, .read = pd_images_read,
	.close = pd_images_close,
};
