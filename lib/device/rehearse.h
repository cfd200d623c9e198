/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every kind of work of a stage, done once before it counts.
 *
 * The first time that a library does something it loads kernels, compiles some, and makes up its
 * mind; on a GPU that may wait until the whole GPU is idle.  While a transfer waits there for
 * another rank, which may wait for this one's work, it never would be.  So a rank whose transfers
 * run on the device rehearses before it connects.  The device then settles the net
 * (pd_device_ops.net.settle): what depends on the buffers of the training is made before, too.
 */
#ifndef PD_DEVICE_REHEARSE_H
#define PD_DEVICE_REHEARSE_H

#include "device/device.h"

/*
 * net: as opened with config on the device.  Takes as much memory as a stage with one version and
 * one minibatch in flight, and gives it back.  gate: the device's, at which nothing else
 * completes meanwhile.
 */
int pd_rehearse(struct pd_device *device, struct pd_net *net, const struct pd_net_config *config,
		struct pd_gate *gate, struct pd_error *err);
/* The sum of two arrays in device memory alone, of any alignment: for who has no net. */
int pd_rehearse_sum(struct pd_device *device, struct pd_stream *stream, struct pd_gate *gate,
		    struct pd_error *err);

#endif
