/* SPDX-License-Identifier: Apache-2.0 */
#include "data/dataset.h"

#include "base/mem.h"
#include "data/format.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Classes that every loss layer's input has, 1 in a network without a loss. */
static int64_t model_classes(const struct pd_model *model)
{
	int64_t classes = 0;

	for (int i = 0; i < model->layer_count; i++) {
		int64_t own;

		if (!pd_layer_is(&model->layers[i], PD_KIND_LOSS))
			continue;
		own = pd_shape_elements(pd_model_shape(model, model->layers[i].inputs[0]));
		if (classes == 0 || own < classes)
			classes = own;
	}
	return classes ? classes : 1;
}

/* A network that labelled images can feed: one f32 input and one label. */
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

/* Mean and deviation of each channel, exact up to the last division. */
static void statistics(struct pd_dataset *set)
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
		/* a channel of one value stays as it is, less the mean */
		set->deviation[c] = variance > 1e-12 ? (float)sqrt(variance) : 1.0f;
	}
}

static const char *const train_files[] = {
	"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
	"data_batch_5.bin", NULL
};
static const char *const test_files[] = { "test_batch.bin", NULL };

enum format { IDX, CIFAR };

/* What a directory holds, by the names of its files; -1: nothing that is known. */
static int recognise(const char *directory, struct pd_error *err)
{
	struct stat st;

	if (stat(directory, &st) != 0)
		return pd_error_input(err, "%s: cannot open: %s", directory, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return pd_error_input(err, "%s: expected a directory with a data set, found a file",
				      directory);
	if (pd_source_exists(directory, "train-images-idx3-ubyte"))
		return IDX;
	if (pd_source_exists(directory, train_files[0]))
		return CIFAR;
	return pd_error_input(err, "%s: no data set found: expected train-images-idx3-ubyte[.gz] "
			      "and its like (IDX), or data_batch_1.bin and its like (CIFAR-10)",
			      directory);
}

static int read_sets(const char *directory, enum format format, const struct pd_model *model,
		     struct pd_dataset *train, struct pd_dataset *test, struct pd_error *err)
{
	if (format == IDX)
		return pd_idx_read(directory, "train", model, train, err) < 0 ||
		       pd_idx_read(directory, "t10k", model, test, err) < 0 ? -1 : 0;
	return pd_cifar_read(directory, train_files, model, train, err) < 0 ||
	       pd_cifar_read(directory, test_files, model, test, err) < 0 ? -1 : 0;
}

int pd_dataset_open(const char *directory, const struct pd_model *model,
		    struct pd_dataset *train_p, struct pd_dataset *test_p, struct pd_error *err)
{
	struct pd_dataset train = { 0 }, test = { 0 };
	int64_t classes = model_classes(model);
	int format = recognise(directory, err);

	if (format < 0 || check_inputs(directory, model, err) < 0)
		return -1;
	/* labels are bytes */
	train.classes = test.classes = classes < 256 ? (int)classes : 256;
	if (read_sets(directory, (enum format)format, model, &train, &test, err) < 0) {
		pd_dataset_release(&train);
		pd_dataset_release(&test);
		return -1;
	}
	statistics(&train);
	memcpy(test.mean, train.mean, sizeof(test.mean));
	memcpy(test.deviation, train.deviation, sizeof(test.deviation));
	*train_p = train;
	*test_p = test;
	return 0;
}

void pd_dataset_synthetic(const struct pd_model *model, int64_t samples, struct pd_dataset *out_p)
{
	int64_t classes = model_classes(model);
	int data = pd_model_data_input(model);
	struct pd_dataset set = { .samples = samples, .synthetic = true };

	set.classes = classes < INT32_MAX ? (int)classes : INT32_MAX;
	set.channels = set.height = set.width = 1;
	if (data >= 0) {
		const struct pd_shape *shape = &model->inputs[data].shape;
		int *const size[] = { &set.width, &set.height, &set.channels };

		for (int i = 0; i < shape->dims; i++)
			*size[i] = (int)shape->size[shape->dims - 1 - i];
	}
	*out_p = set;
}

void pd_dataset_release(struct pd_dataset *dataset)
{
	free(dataset->pixels);
	free(dataset->labels);
	*dataset = (struct pd_dataset){ 0 };
}
