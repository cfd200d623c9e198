/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The versions of a stage's parameters that somebody will still read.
 *
 * SOSP 2019, section 3.3 (weight stashing): backward of a minibatch sees the version that
 * its forward saw, and an update is applied to the newest.  ICML 2021 (2BW): everybody sees
 * the version before the newest, and there are two.  An update reads the newest version and
 * writes the next: into the same buffer when nobody needs the old one any more, into a free
 * buffer otherwise (in 2BW that is the pointer flip).  Nothing is ever copied.  What later
 * forwards will read, the schedule says with every update (pd_op.keep); what forwards have
 * read and backwards have not is counted here.
 *
 * All calls are made in the order in which the operations are queued on the one stream
 * that computes, so a buffer given out here is safe to use on that stream at once.
 */
#ifndef PD_WEIGHTS_WEIGHTS_H
#define PD_WEIGHTS_WEIGHTS_H

#include "device/device.h"

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
	int newest;                     /* index */
	int64_t keep;                   /* versions from this one on are still to be read */
};

/* Room for `count` versions, zeroed; the first is version `number`, the newest. */
int pd_weights_init(struct pd_weights *weights, struct pd_device *device, size_t bytes, int count,
		    int64_t number, struct pd_error *err);
void pd_weights_release(struct pd_weights *weights);

/* The buffer of the newest version, and its number. */
void *pd_weights_newest(const struct pd_weights *weights, int64_t *number_p);
/* Gives the newest version another number (where a run begins or resumes) and frees the
 * others: restored ones among them that no forward has come to read. */
void pd_weights_renumber(struct pd_weights *weights, int64_t number);
/* A buffer for an older version that forwards to come will read (resume); kept until an
 * update says otherwise. */
void *pd_weights_restore(struct pd_weights *weights, int64_t number);

/* A forward reads this version; ends with pd_weights_done by its backward. */
const void *pd_weights_read(struct pd_weights *weights, int64_t number);
/* The buffer of a version being read. */
const void *pd_weights_find(const struct pd_weights *weights, int64_t number);
void pd_weights_done(struct pd_weights *weights, int64_t number);
/*
 * An update from the newest version to version `number`: where to read and to write.
 * keep: the oldest version that a forward still to come will read.
 */
void pd_weights_step(struct pd_weights *weights, int64_t number, int64_t keep,
		     const void **from_p, void **to_p);
/* Versions live now. */
int pd_weights_live(const struct pd_weights *weights);

#endif
