/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Labelled images in memory: IDX files (MNIST, Fashion-MNIST; gzip or not), CIFAR-10 binary
 * files, or synthetic ones.  Pixels stay bytes; a loader turns them into floats, less the
 * mean and divided by the deviation of each channel over the training set.
 */
#ifndef PD_DATA_DATASET_H
#define PD_DATA_DATASET_H

#include "base/error.h"
#include "model/model.h"

#include <stdbool.h>
#include <stdint.h>

struct pd_dataset {
	int64_t samples;
	int channels, height, width;
	int classes;
	uint8_t *pixels;                /* (samples, channels, height, width) or NULL: synthetic */
	uint8_t *labels;
	float mean[4], deviation[4];    /* per channel; a test set has its training set's */
	bool synthetic;
};

/*
 * The training and test sets found in a directory:
 * {train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz] or data_batch_{1..5}.bin and
 * test_batch.bin.  Checks that they fit the model's inputs (the f32 input's shape, labels
 * below the classes of the loss layer's input).  Errors: input.
 */
int pd_dataset_open(const char *directory, const struct pd_model *model,
		    struct pd_dataset *train_p, struct pd_dataset *test_p, struct pd_error *err);
/* Data of the model's shape, made up from the seed: uniform inputs, uniform labels. */
void pd_dataset_synthetic(const struct pd_model *model, int64_t samples, struct pd_dataset *out_p);
void pd_dataset_release(struct pd_dataset *dataset);

#endif
