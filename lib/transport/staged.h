/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This transport serves devices whose memory the host cannot read (pd_device_ops.separate_memory),
 * over a transport of host memory.  A send first copies to the host, a receive afterwards to the
 * device.  It always works, and costs two more copies.
 *
 * The copies have a stream of their own, on which nothing else waits.  Host buffers are parts of an
 * array that is allocated first, and are kept and used again.  Another is only allocated where that
 * array ends: the device may have to be idle for that, which it is not while a kernel waits for
 * another rank.
 */
#pragma once

#include "device/device.h"
#include "transport/transport.h"

/*
 * Opens the transport.  `host` is connected; it is borrowed, and cancelled when the result is
 * closed.  `device` is borrowed and closed later; events complete at `gate`. Buffers given to
 * send() and recv() are the device's, and under_way_bytes of them are under way at once (0: not
 * known).  address() and connect() must not be called.  NULL: the device has no stream left, or the
 * host no memory.
 */
struct pd_transport *pd_staged_open(struct pd_transport *host, struct pd_device *device,
				    int64_t under_way_bytes, struct pd_gate *gate,
				    struct pd_error *err);
