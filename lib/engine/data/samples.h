/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to this folder: the samples of a microbatch, as they lie in a loader's buffers: in the
 * order of their epoch, rounded to 16 bits where the network computes with those.
 */
#pragma once

#include "engine/data/loader.h"

struct pd_samples {
	const struct pd_loader_config *config;
	int64_t *elements;                      /* of one sample, per input */
	size_t *bytes;                          /* of a microbatch, per input */
	float *unrounded;               /* one sample before it is rounded; NULL: none is */
	float *unchanged;               /* one before it is augmented; NULL: none is */
	int64_t distinct;               /* of a synthetic set: after so many samples it repeats itself */
	int64_t lanes;                  /* of the model; 0: none */
	uint32_t *order;                /* of samples in epoch order_epoch; NULL: synthetic, or lanes */
	int64_t order_epoch;
	struct pd_not_finite not_finite;        /* the first sample that is not; file NULL: none was */
};

/* config: borrowed. */
void pd_samples_init(struct pd_samples *samples, const struct pd_loader_config *config);
void pd_samples_release(struct pd_samples *samples);
/* Fills in elements and bytes.  0, or -1: too many bytes to count. */
int pd_samples_measure(struct pd_samples *samples, struct pd_error *err);
/* The batch's valid samples into its buffers, zeros behind them.  For one thread at a time. */
void pd_samples_fill(struct pd_samples *samples, const struct pd_batch *batch);
