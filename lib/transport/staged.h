/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This transport serves devices whose memory the host cannot read (pd_device_ops.separate_memory),
 * over a transport of host memory.  A send first copies to the host, a receive afterwards to the
 * device.  It always works, and costs two more copies.
 *
 * The copies have a stream of their own, on which nothing else waits.  Host buffers are kept and
 * used again: after the first minibatches none is allocated.
 */
#pragma once

#include "device/device.h"
#include "transport/transport.h"

/*
 * Opens the transport.  `host` is connected; it is borrowed, and cancelled when the result is
 * closed.  `device` is borrowed and closed later; events complete at `gate`. Buffers given to
 * send() and recv() are the device's.  address() and connect() must not be called.  NULL: the
 * device has no stream left.
 */
struct pd_transport *pd_staged_open(struct pd_transport *host, struct pd_device *device,
				    struct pd_gate *gate, struct pd_error *err);
