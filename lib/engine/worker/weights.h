/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The versions of a stage's parameters that somebody will still read.
 *
 * SOSP 2019, section 3.3 (weight stashing): backward of a minibatch reads the version that its
 * forward read, and an update is applied to the newest.  ICML 2021 (2BW): forward and backward read
 * the version before the newest, and there are two.
 *
 * An update reads the newest version and writes the next: into the same buffer if nobody needs the
 * old version any more, into a free buffer otherwise (in 2BW that is the pointer flip).  Nothing is
 * ever copied.  The schedule says with every update what later forwards will read (pd_op.keep). 
 * Versions that forwards have read, and backwards have not, are counted here.
 *
 * All calls are made in the order in which the operations are queued on the one stream that
 * computes.  So a buffer from here can be used on that stream at once.
 *
 * Where losses are scaled the scale is part of a version, behind its parameters.
 */
#pragma once

#include "engine/device/device.h"

#include <stdint.h>

struct pd_version {
	int64_t number;                 /* -1: the buffer is free */
	int readers;                    /* forwards queued whose backward is not */
	void *buffer;
};

struct pd_weights {
	struct pd_device *device;
	size_t bytes;
	int count;                      /* buffers */
	struct pd_version *versions;
	int newest;                     /* index of the newest version */
	int64_t keep;                   /* versions from this one on will still be read */
};

/* Allocates `count` versions, zeroed; the first is version `number`, the newest. */
int pd_weights_init(struct pd_weights *weights, struct pd_device *device, size_t bytes, int count,
		    int64_t number, struct pd_error *err);
void pd_weights_release(struct pd_weights *weights);

/* Returns the buffer of the newest version, and its number. */
void *pd_weights_newest(const struct pd_weights *weights, int64_t *number_p);
/*
 * Gives the newest version another number, where a run begins or resumes.  Frees the others, also
 * restored ones that no forward has read.
 */
void pd_weights_renumber(struct pd_weights *weights, int64_t number);
/*
 * Returns a buffer for an older version that later forwards will read (resume).  It is kept until
 * an update says otherwise.
 */
void *pd_weights_restore(struct pd_weights *weights, int64_t number);

/* Returns a version for a forward to read, until its backward calls pd_weights_done. */
const void *pd_weights_read(struct pd_weights *weights, int64_t number);
/* Returns the buffer of a version that is being read. */
const void *pd_weights_find(const struct pd_weights *weights, int64_t number);
void pd_weights_done(struct pd_weights *weights, int64_t number);
/*
 * Updates the newest version to version `number`: sets where to read and where to write.  keep is
 * the oldest version that a later forward will read.
 */
void pd_weights_step(struct pd_weights *weights, int64_t number, int64_t keep,
		     const void **from_p, void **to_p);
