/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A loader prepares microbatches in host memory, ahead of need: a thread fills the next ones while
 * the network computes on this one.
 *
 * A loader serves one rank.  A microbatch holds the model inputs that the rank's stage uses, in
 * plain layout (batch, shape...): f32 samples, rounded where config.dtype has 16 bits, and i32
 * samples as they are.  The order of training samples depends on the seed and the epoch alone; a
 * test set comes in the order of its files.
 *
 * Images that are trained on are then changed as config.augment says (augment.h), and f32 inputs that
 * say how they are normalised are.
 *
 * A synthetic set is not shuffled, changed or normalised.  Sample n, counted through all epochs, is sample n modulo the
 * number of distinct samples (order.h): those of the set, or, if fewer, as many whole minibatches
 * as PD_SYNTHETIC_BYTES hold, at least one.  If the distinct samples are whole minibatches, all are
 * made when the loader is opened, and handed out again and again.
 *
 * One thread makes all calls.  None of them waits, except pd_loader_plan(), which lets the
 * microbatch that is being filled be finished.
 */
#pragma once

#include "base/event.h"
#include "engine/data/augment.h"
#include "engine/data/dataset.h"
#include "engine/device/device.h"
#include "model/model.h"

#include <stdbool.h>
#include <stdint.h>

/* A synthetic set repeats itself after so many bytes of all model inputs in f32. */
#define PD_SYNTHETIC_BYTES 536870912

struct pd_loader_config {
	const struct pd_model *model;
	const struct pd_dataset *train, *test;  /* borrowed; one may be NULL */
	int64_t batch_size;             /* samples of a microbatch */
	int64_t microbatches;           /* microbatches of a minibatch; 0: 1 */
	enum pd_dtype dtype;            /* f32, bf16 or f16: what f32 inputs are rounded to */
	uint64_t seed;
	struct pd_augment augment;      /* of images that are trained on */
	int input_count;
	const int *inputs;              /* the model inputs (numbers) that this stage uses */
	int ahead;                      /* microbatches prepared ahead, at least 2 */
	struct pd_device *device;       /* reads the buffers; NULL: only the host does */
	struct pd_gate *gate;
};

/* The loader owns the buffers of a microbatch; they may be read until pd_loader_release(). */
struct pd_batch {
	struct pd_event ready;          /* done once the buffers are filled */
	int64_t microbatch;
	bool evaluate;
	int64_t first_sample;           /* global number: microbatch x batch_size */
	int64_t valid;	/* samples before the zeros that fill up the end of a test set */
	void *const *buffers;           /* one per config->inputs */
	const size_t *bytes;            /* size of each buffer */
};

/* A sample with a number that is not finite, as the network takes it, in a file of floating-point numbers. */
struct pd_not_finite {
	const char *file;               /* the data set's; NULL: there was none so far */
	int64_t sample;
};

/* Errors: a batch larger than the training set or than memory; no thread to be had. */
struct pd_loader *pd_loader_open(const struct pd_loader_config *config, struct pd_error *err);
void pd_loader_close(struct pd_loader *loader);

/*
 * Sets the microbatches that will be asked for next, and starts to prepare them: first, first +
 * stride, ... < last, of the training run (numbered through all epochs, pd_loader_epoch() each) or
 * of the test set (pd_loader_tests()).  Nothing may be out; the rest of an earlier plan is dropped.
 */
void pd_loader_plan(struct pd_loader *loader, bool evaluate, int64_t first, int64_t stride,
		    int64_t last);
/* Plans training microbatches in any order: `listed` is borrowed until the next plan. */
void pd_loader_plan_listed(struct pd_loader *loader, const int64_t *listed, int64_t count);
/*
 * Returns the next microbatch in that order, ready or being filled, or NULL while `ahead` are out.
 * It is a bug to ask for more than were planned.
 */
struct pd_batch *pd_loader_next(struct pd_loader *loader);
/*
 * Returns the first such sample that was loaded; it is known before the microbatch is ready.  file NULL: none.
 */
struct pd_not_finite pd_loader_not_finite(struct pd_loader *loader);
/* Gives back a microbatch that was ready; any order will do. */
void pd_loader_release(struct pd_loader *loader, struct pd_batch *batch);

/*
 * Returns the microbatches of an epoch: whole minibatches.  Samples that do not fill one are left
 * out, different ones in each epoch, since each epoch is shuffled anew.
 */
int64_t pd_loader_epoch(const struct pd_dataset *train, int64_t batch_size, int64_t microbatches);
/* Returns the microbatches of a test set, the last of which may be partly empty. */
int64_t pd_loader_tests(const struct pd_dataset *test, int64_t batch_size);
/* Returns how many of the samples of a microbatch there are in a test set of so many. */
static inline int64_t pd_loader_valid(int64_t samples, int64_t first_sample, int64_t batch_size)
{
	return samples - first_sample < batch_size ? samples - first_sample : batch_size;
}

