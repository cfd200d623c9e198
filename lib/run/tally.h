/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts the losses of microbatches into the order of the microbatches.  Replicas and stages say
 * theirs when they have them; who takes them from here gets one microbatch after the other, each
 * with all its losses, so that a sum over them has the same bits in every run.
 */
#ifndef PD_RUN_TALLY_H
#define PD_RUN_TALLY_H

#include "device/device.h"

struct pd_tally {
	int losses;                     /* loss layers of the model */
	int64_t next;                   /* the microbatch to be taken next */
	size_t capacity;		/* microbatches; a power of two, or 0 */
	int *arrived;                   /* of microbatch b at b % capacity: how many losses */
	struct pd_loss *values;         /* likewise, `losses` of them each */
};

/* Microbatches are taken from `first` on. */
void pd_tally_begin(struct pd_tally *tally, int losses, int64_t first);
/* Loss number `loss` of a microbatch that has not been taken. */
void pd_tally_add(struct pd_tally *tally, int64_t microbatch, int loss,
		  const struct pd_loss *value);
/* The losses of the next microbatch, until anything is added; NULL: they are not all here. */
const struct pd_loss *pd_tally_take(struct pd_tally *tally);
void pd_tally_release(struct pd_tally *tally);

#endif
