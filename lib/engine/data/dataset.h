/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples for every input of a model: what a loader makes minibatches of.  A set that is open gives
 * each of the model's inputs, in the input's dtype and shape, and as many samples of one as of any
 * other.  Where they come from is a format's matter: files (formats.c), or nothing but a seed.
 */
#pragma once

#include "base/error.h"
#include "model/model.h"

#include <stdbool.h>
#include <stdint.h>

struct pd_dataset {
	const struct pd_data_format *format; /* NULL: the set is not open */
	void *state;                    /* the format's */
	int64_t samples;
	bool synthetic;                 /* its samples are not shuffled */
	const float *black;             /* what an image's black is read as, per channel; NULL: 0 */
};

struct pd_data_format {
	const char *name;
	const char *files;              /* by which it is recognised, for messages */
	/*
	 * Tells by names whether a directory has a training set, or a test set, of this format, or a file
	 * is of it; neither may be there.
	 */
	bool (*recognise)(const char *directory, bool test);
	/*
	 * Opens the training set, or the test set; train: the other set where that is open.  A set that
	 * does not give what the model's inputs take is an error.  After an error, set_p holds what
	 * was opened of it.
	 */
	int (*open)(const char *directory, const struct pd_model *model, bool test,
		    const struct pd_dataset *train, struct pd_dataset *set_p, struct pd_error *err);
	/*
	 * One sample of one of the model's inputs, into room for its elements, f32 or i32.  Numbers
	 * of an i32 input are in pd_dataset_range().  Where an f32 input says how it is normalised,
	 * bytes come divided by 255, and the loader does the rest (loader.h).
	 */
	void (*read)(const struct pd_dataset *set, int input, int64_t sample, void *out);
	/* Returns the file with that input's samples; NULL where all numbers are finite. */
	const char *(*file)(const struct pd_dataset *set, int input);
	void (*close)(struct pd_dataset *set);
};

/*
 * The training set found in a directory or file (FILE.npz:NAME,NAME too), in the first format that recognises it, and the test
 * set.  One of these that is NULL is not looked at and need not be there.  Errors: input.
 */
int pd_dataset_open(const char *directory, const struct pd_model *model,
		    struct pd_dataset *train_p, struct pd_dataset *test_p, struct pd_error *err);
/*
 * Makes a set up from the seed, in the model's shapes: uniform f32 numbers, and i32 numbers uniform
 * in the input's range (order.h).  The model is borrowed.
 */
void pd_dataset_synthetic(const struct pd_model *model, int64_t samples, uint64_t seed,
			  struct pd_dataset *out_p);
/*
 * Returns a checksum of the numbers of up to 256 samples, the first, the last and those evenly
 * between, in all of the model's inputs: of fewer where these are large.
 */
uint64_t pd_dataset_checksum(const struct pd_dataset *dataset, const struct pd_model *model);
/* Closes the set; does nothing for a set that is not open. */
void pd_dataset_release(struct pd_dataset *dataset);

/*
 * The numbers that an i32 input of the model can have, since every layer that takes it takes them:
 * at least the first and below the second, or the third (a label that a loss ignores).  limit:
 * INT64_C(1) << 31 where no layer says so.
 */
struct pd_dataset_range {
	int64_t least, limit, other;
};
struct pd_dataset_range pd_dataset_range(const struct pd_model *model, int input);
