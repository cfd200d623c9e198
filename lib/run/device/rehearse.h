/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rehearsal does every kind of work of a stage once, before training.
 *
 * When a library does something for the first time it loads kernels, compiles some, and chooses
 * algorithms.  On a GPU that may wait until the whole GPU is idle.  It never would be while a
 * transfer on it waits for another rank that may be waiting for this one.  So a rank whose
 * transfers run on the device rehearses before it connects.  Then the device settles the net
 * (pd_device_ops.net.settle): it makes, beforehand, what depends on the buffers of the training,
 * too.
 */
#pragma once

#include "engine/device/device.h"

/* What a rank will ask of a net. */
struct pd_rehearsal {
	const struct pd_net_config *config;     /* with which the net was opened */
	bool evaluates;
	enum pd_optimizer_kind update;
	int moments;                    /* that the update moves */
	bool agrees, corrects, spares_vectors;  /* as the update says (struct pd_update) */
	int64_t turns;                  /* passes of one kind come with so many combinations of buffers */
};

/*
 * Rehearses it on the device.  Takes as much memory as a stage with one version and one minibatch in
 * flight, and gives it back.  Nothing else may complete at the device's gate meanwhile.
 */
int pd_rehearse(struct pd_device *device, struct pd_net *net, const struct pd_rehearsal *what,
		struct pd_gate *gate, struct pd_error *err);
/*
 * Rehearses only the sum of two arrays in device memory, of any alignment: for a rank without a
 * net.
 */
int pd_rehearse_sum(struct pd_device *device, struct pd_stream *stream, struct pd_gate *gate,
		    struct pd_error *err);
