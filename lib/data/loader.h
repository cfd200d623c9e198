/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Minibatches in host memory, ahead of need: a thread prepares the next ones while the
 * network computes on this one.
 *
 * A loader serves one rank: of every minibatch that the rank asks for, the model inputs
 * that its stage uses, laid out plainly: f32 samples as (batch, shape...), rounded where
 * config.dtype has 16 bits, i32 labels as (batch).  The order of training samples depends on
 * the seed and the epoch alone; a test set comes in the order of its file.  Pixels come as
 * (pixel / 255 - mean) / deviation of their channel.  A synthetic set is not shuffled: sample
 * n, counted through all epochs, holds what lib/data/order.h makes of n modulo the number of
 * samples.
 *
 * All calls are for one thread, which none of them keeps waiting, but for pd_loader_plan:
 * it lets the minibatch that is being prepared be finished.
 */
#ifndef PD_DATA_LOADER_H
#define PD_DATA_LOADER_H

#include "base/event.h"
#include "data/dataset.h"
#include "device/device.h"
#include "model/model.h"

#include <stdbool.h>
#include <stdint.h>

struct pd_loader_config {
	const struct pd_model *model;
	const struct pd_dataset *train, *test;  /* borrowed; test may be NULL */
	int64_t batch_size;
	enum pd_dtype dtype;            /* that the model's f32 inputs come in: f32, bf16 or f16 */
	uint64_t seed;
	int input_count;
	const int *inputs;              /* model inputs (their numbers) that this stage uses */
	int ahead;                      /* minibatches prepared ahead, at least 2 */
	struct pd_device *device;       /* that will read the buffers; NULL: only the host */
	struct pd_gate *gate;
};

/* One minibatch; its buffers belong to the loader until pd_loader_release. */
struct pd_batch {
	struct pd_event ready;          /* done once the buffers are filled */
	int64_t microbatch;
	bool evaluate;
	int64_t first_sample;           /* microbatch x batch_size: a global sample number */
	int64_t valid;                  /* samples that count, before zeros (end of a test set) */
	void **buffers;                 /* per config->inputs */
	const size_t *bytes;            /* of each */
};

/* Errors: a batch larger than the training set or than memory; no thread to be had. */
struct pd_loader *pd_loader_open(const struct pd_loader_config *config, struct pd_error *err);
void pd_loader_close(struct pd_loader *loader);

/*
 * The minibatches that will be asked for next: first, first + stride, ... < last of the
 * training run (numbered through all epochs; each epoch has floor(samples / batch_size),
 * its rest is left out) or of the test set (ceil).  Starts preparing at once.  What an
 * earlier plan had left to hand out is dropped; nothing may be out.
 */
void pd_loader_plan(struct pd_loader *loader, bool evaluate, int64_t first, int64_t stride,
		    int64_t last);
/* The same for training minibatches in any order: listed, borrowed until the next plan. */
void pd_loader_plan_listed(struct pd_loader *loader, const int64_t *listed, int64_t count);
/* The next one in that order, ready or being prepared; NULL when `ahead` are out.  To ask
 * for more than were planned is a bug. */
struct pd_batch *pd_loader_next(struct pd_loader *loader);
/* Gives back one that was ready; in any order. */
void pd_loader_release(struct pd_loader *loader, struct pd_batch *batch);

/* Minibatches per epoch. */
int64_t pd_loader_epoch(const struct pd_dataset *train, int64_t batch_size);
int64_t pd_loader_tests(const struct pd_dataset *test, int64_t batch_size);

#endif
