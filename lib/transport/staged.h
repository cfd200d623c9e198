/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transport for devices whose memory the host cannot read (pd_device_ops.separate_memory), made
 * of one that moves host memory: what is sent is first copied to the host, what is received is then
 * copied to the device.  Correct, and as slow as two copies more.
 *
 * The copies are on a stream of its own; nothing waits on it but them.  Buffers in host
 * memory are kept and used again: after the first minibatches none is allocated.
 */
#ifndef PD_TRANSPORT_STAGED_H
#define PD_TRANSPORT_STAGED_H

#include "device/device.h"
#include "transport/transport.h"

/*
 * host: of host memory, connected; borrowed, and cancelled when the result is closed.  device:
 * borrowed, closed later; events complete at `gate`.  The buffers of send and recv are then the
 * device's.  address() and connect() are not of use.  NULL: no stream.
 */
struct pd_transport *pd_staged_open(struct pd_transport *host, struct pd_device *device,
				    struct pd_gate *gate, struct pd_error *err);

#endif
