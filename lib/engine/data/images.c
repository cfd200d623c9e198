/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/data/images.h"

#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Checks that labelled images can feed the network: it has one f32 input and one label. */
static int check_inputs(const char *directory, const struct pd_model *model, struct pd_error *err)
{
	int data = pd_model_data_input(model), label = pd_model_label_input(model);

	if (data >= 0 && label >= 0 && model->input_count == 2)
		return 0;
	return pd_error_input(err, "%s: holds images and labels: expected a model whose inputs are "
			      "an f32 image and an i32 label, \"%.60s\" has %d input%s%s",
			      directory, model->name, model->input_count,
			      model->input_count == 1 ? "" : "s",
			      data < 0 ? ", none of them an image" :
			      label < 0 ? ", none of them a label" : "");
}

/* Computes mean and standard deviation of each channel, exactly up to the last division. */
static void statistics(struct pd_images *set)
{
	int64_t plane = (int64_t)set->height * set->width;

	for (int c = 0; c < set->channels; c++) {
		int64_t count[256] = { 0 };
		double n = (double)(plane * set->samples), mean = 0, variance = 0;

		for (int64_t s = 0; s < set->samples; s++) {
			const uint8_t *pixel = set->pixels + (s * set->channels + c) * plane;

			for (int64_t i = 0; i < plane; i++)
				count[pixel[i]]++;
		}
		for (int v = 0; v < 256; v++)
			mean += (double)count[v] / n * (v / 255.0);
		for (int v = 0; v < 256; v++)
			variance += (double)count[v] / n * (v / 255.0 - mean) * (v / 255.0 - mean);
		set->mean[c] = (float)mean;
		/* a channel of one value is only shifted by its mean */
		set->deviation[c] = variance > 1e-12 ? (float)sqrt(variance) : 1.0f;
	}
}

/* Computes the table of a set: with the training set's mean and deviation, or not normalised. */
static void scale(struct pd_images *images, bool normalizes)
{
	for (int c = 0; c < images->channels; c++) {
		for (int v = 0; v < 256; v++)
			images->table[c][v] = normalizes
				? ((float)v / 255.0f - images->mean[c]) / images->deviation[c]
				: (float)v / 255.0f;
		images->black[c] = images->table[c][0];
	}
}

static void take_statistics(struct pd_images *images, const struct pd_images *from)
{
	memcpy(images->mean, from->mean, sizeof(images->mean));
	memcpy(images->deviation, from->deviation, sizeof(images->deviation));
}

static void prepare(struct pd_images *images, const struct pd_model *model)
{
	int64_t classes;

	images->label = pd_model_label_input(model);
	classes = pd_dataset_range(model, images->label).limit;
	images->classes = classes < 256 ? (int)classes : 256;   /* labels are bytes */
}

static void free_images(struct pd_images *images)
{
	free(images->pixels);
	free(images->labels);
	free(images);
}

/* Reads the training set for its mean and deviation alone. */
static int read_statistics(pd_images_reader *reader, const char *directory, const struct pd_model *model,
			   struct pd_images *images, struct pd_error *err)
{
	struct pd_images *train = pd_zalloc(sizeof(*train));
	int status;

	prepare(train, model);
	status = reader(directory, false, model, train, err);
	if (status == 0) {
		statistics(train);
		take_statistics(images, train);
	} else {
		pd_error_prefix(err, "images are normalised by those trained on, without --normalize");
	}
	free_images(train);
	return status;
}

int pd_images_open(const struct pd_data_format *format, pd_images_reader *reader,
		   const char *directory, const struct pd_model *model, bool test,
		   const struct pd_dataset *train, struct pd_dataset *set_p, struct pd_error *err)
{
	const struct pd_images *like = train ? train->state : NULL;
	bool normalizes;
	struct pd_images *images;

	if (check_inputs(directory, model, err) < 0)
		return -1;
	normalizes = model->inputs[pd_model_data_input(model)].channels == 0;
	images = pd_zalloc(sizeof(*images));
	prepare(images, model);
	*set_p = (struct pd_dataset){ .format = format, .state = images };
	if (reader(directory, test, model, images, err) < 0)
		return -1;
	set_p->samples = images->samples;
	set_p->black = images->black;
	if (like)
		take_statistics(images, like);
	else if (normalizes && !test)
		statistics(images);
	else if (normalizes && read_statistics(reader, directory, model, images, err) < 0)
		return -1;
	scale(images, normalizes);
	return 0;
}

void pd_images_read(const struct pd_dataset *set, int input, int64_t sample, void *out)
{
	const struct pd_images *images = set->state;
	int64_t plane = (int64_t)images->height * images->width;
	const uint8_t *pixel = images->pixels + sample * images->channels * plane;
	float *value = out;

	if (input == images->label) {
		*(int32_t *)out = images->labels[sample];
		return;
	}
	for (int c = 0; c < images->channels; c++) {
		const float *table = images->table[c];

		for (int64_t i = 0; i < plane; i++)
			*value++ = table[*pixel++];
	}
}

void pd_images_close(struct pd_dataset *set)
{
	free_images(set->state);
}

int pd_images_shape(const char *file, const struct pd_model *model, int64_t channels,
		    int64_t height, int64_t width, struct pd_error *err)
{
	const struct pd_input *input = &model->inputs[pd_model_data_input(model)];
	const struct pd_shape *shape = &input->shape;
	const int64_t found[3] = { channels, height, width };
	char expected[96] = "";
	bool fits;

	/* (height, width) will do for one channel, and a single dimension for any image */
	switch (shape->dims) {
	case 1:
		fits = shape->size[0] == channels * height * width;
		break;
	case 2:
		fits = channels == 1 && shape->size[0] == height && shape->size[1] == width;
		break;
	default:
		fits = shape->dims == 3 && memcmp(shape->size, found, sizeof(found)) == 0;
	}
	if (fits)
		return 0;
	for (int i = 0; i < shape->dims; i++) {
		size_t used = strlen(expected);

		snprintf(expected + used, sizeof(expected) - used, "%s%" PRId64, i ? "x" : "",
			 shape->size[i]);
	}
	return pd_error_input(err, "%s: images of %" PRId64 "x%" PRId64 "x%" PRId64
			      ": expected %s, the shape of the model's input \"%.60s\"", file,
			      channels, height, width, shape->dims ? expected : "a scalar",
			      input->name);
}

int pd_images_labels(const char *file, const uint8_t *labels, int64_t first, int64_t count,
		     int classes, struct pd_error *err)
{
	for (int64_t i = first; i < first + count; i++)
		if (labels[i] >= classes)
			return pd_error_input(err, "%s: label %d of sample %" PRId64
					      ": expected one below %d, the number of classes",
					      file, labels[i], i, classes);
	return 0;
}
