/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Microbatches in host memory, ahead of need: a thread prepares the next ones while the
 * network computes on this one.
 *
 * A loader serves one rank: of every microbatch that the rank asks for, the model inputs
 * that its stage uses, laid out plainly: (batch, shape...), f32 samples rounded where
 * config.dtype has 16 bits, i32 samples as they are.  The order of training samples depends on
 * the seed and the epoch alone; a test set comes in the order of its files.
 *
 * A synthetic set is not shuffled: sample n, counted through all epochs, holds what
 * lib/data/order.h makes of n modulo the number of samples; or modulo as many whole minibatches as
 * PD_SYNTHETIC_BYTES hold, at least one, where those are fewer.  Where the set is whole minibatches,
 * all of them are made when the loader is opened, and handed out again and again.
 *
 * All calls are for one thread, which none of them keeps waiting, but for pd_loader_plan:
 * it lets the microbatch that is being prepared be finished.
 */
#ifndef PD_DATA_LOADER_H
#define PD_DATA_LOADER_H

#include "base/event.h"
#include "data/dataset.h"
#include "device/device.h"
#include "model/model.h"

#include <stdbool.h>
#include <stdint.h>

/* Of all inputs of a model, in f32, that a synthetic set has before it repeats itself. */
#define PD_SYNTHETIC_BYTES 536870912

struct pd_loader_config {
	const struct pd_model *model;
	const struct pd_dataset *train, *test;  /* borrowed; test may be NULL */
	int64_t batch_size;             /* samples of a microbatch */
	int64_t microbatches;           /* of a minibatch; 0: 1 */
	enum pd_dtype dtype;            /* that the model's f32 inputs come in: f32, bf16 or f16 */
	uint64_t seed;
	int input_count;
	const int *inputs;              /* model inputs (their numbers) that this stage uses */
	int ahead;                      /* microbatches prepared ahead, at least 2 */
	struct pd_device *device;       /* that will read the buffers; NULL: only the host */
	struct pd_gate *gate;
};

/* One microbatch; its buffers belong to the loader, and are to be read until pd_loader_release. */
struct pd_batch {
	struct pd_event ready;          /* done once the buffers are filled */
	int64_t microbatch;
	bool evaluate;
	int64_t first_sample;           /* microbatch x batch_size: a global sample number */
	int64_t valid;                  /* samples that count, before zeros (end of a test set) */
	void *const *buffers;           /* per config->inputs */
	const size_t *bytes;            /* of each */
};

/* Errors: a batch larger than the training set or than memory; no thread to be had. */
struct pd_loader *pd_loader_open(const struct pd_loader_config *config, struct pd_error *err);
void pd_loader_close(struct pd_loader *loader);

/*
 * The microbatches that will be asked for next: first, first + stride, ... < last of the
 * training run (numbered through all epochs, of pd_loader_epoch each) or of the test set
 * (pd_loader_tests).  Starts preparing at once.  What an
 * earlier plan had left to hand out is dropped; nothing may be out.
 */
void pd_loader_plan(struct pd_loader *loader, bool evaluate, int64_t first, int64_t stride,
		    int64_t last);
/* The same for training microbatches in any order: listed, borrowed until the next plan. */
void pd_loader_plan_listed(struct pd_loader *loader, const int64_t *listed, int64_t count);
/* The next one in that order, ready or being prepared; NULL when `ahead` are out.  To ask
 * for more than were planned is a bug. */
struct pd_batch *pd_loader_next(struct pd_loader *loader);
/* Gives back one that was ready; in any order. */
void pd_loader_release(struct pd_loader *loader, struct pd_batch *batch);

/*
 * Microbatches per epoch, whole minibatches of so many: the samples that do not fill one are
 * left out, others in each epoch, since each has an order of its own.
 */
int64_t pd_loader_epoch(const struct pd_dataset *train, int64_t batch_size, int64_t microbatches);
/* Microbatches of a test set, the last of which may be partly empty. */
int64_t pd_loader_tests(const struct pd_dataset *test, int64_t batch_size);

#endif
