/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Labelled images in memory, as the files of IDX and CIFAR-10 hold them; private to this folder.
 * Pixels stay bytes.  They are read as floats: (pixel / 255 - mean) / deviation, with mean and
 * standard deviation of their channel over the training set; or, where the model says how they are
 * normalised, as pixel / 255.
 */
#pragma once

#include "engine/data/dataset.h"

#define PD_IMAGES_CHANNELS 4            /* at most */

struct pd_images {
	int64_t samples;
	int channels, height, width;
	int classes;                    /* labels are below this */
	int label;	/* the model input that takes labels; the other takes images */
	uint8_t *pixels;                /* (samples, channels, height, width) */
	uint8_t *labels;
	float mean[PD_IMAGES_CHANNELS], deviation[PD_IMAGES_CHANNELS];
	float table[PD_IMAGES_CHANNELS][256];   /* maps a pixel to its float */
	float black[PD_IMAGES_CHANNELS];        /* the table's first */
};

/*
 * Reads one set, whose `classes` is set already.  After an error *images_p has what was allocated.
 */
typedef int pd_images_reader(const char *directory, bool test, const struct pd_model *model,
			     struct pd_images *images_p, struct pd_error *err);
/* Opens a set with a format's reader: the open() of a format of labelled images. */
int pd_images_open(const struct pd_data_format *format, pd_images_reader *reader,
		   const char *directory, const struct pd_model *model, bool test,
		   const struct pd_dataset *train, struct pd_dataset *set_p, struct pd_error *err);
/* These are the read() and close() of a format of labelled images. */
void pd_images_read(const struct pd_dataset *set, int input, int64_t sample, void *out);
void pd_images_close(struct pd_dataset *set);

/* Checks that the model's f32 input takes images of this shape. */
int pd_images_shape(const char *file, const struct pd_model *model, int64_t channels,
		    int64_t height, int64_t width, struct pd_error *err);
/* Checks that labels first to first + count - 1 are below `classes`. */
int pd_images_labels(const char *file, const uint8_t *labels, int64_t first, int64_t count,
		     int classes, struct pd_error *err);
