/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tally puts the losses of microbatches in order.  Replicas and stages report losses when they
 * have them; the tally gives out one microbatch after the other, each with all its losses, so that
 * sums have the same bits in every run.
 */
#pragma once

#include "engine/device/device.h"

struct pd_tally {
	int losses;                     /* loss layers of the model */
	int64_t next;                   /* the microbatch to be given out next */
	size_t capacity;		/* microbatches; a power of two, or 0 */
	int *arrived;                   /* how many losses of microbatch b arrived, at b % capacity */
	struct pd_loss *values;         /* likewise, `losses` for each microbatch */
};

/* Begins a tally whose first microbatch is `first`. */
void pd_tally_begin(struct pd_tally *tally, int losses, int64_t first);
/* Adds loss number `loss` of a microbatch that was not given out yet. */
void pd_tally_add(struct pd_tally *tally, int64_t microbatch, int loss,
		  const struct pd_loss *value);
/*
 * Gives out the losses of the next microbatch, valid until anything is added; NULL: some are
 * missing.
 */
const struct pd_loss *pd_tally_take(struct pd_tally *tally);
void pd_tally_release(struct pd_tally *tally);
