/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a worker sees of the link to another one: two processes that do nothing but pass
 * messages to and fro, asleep while they wait, as workers are.
 */
#ifndef PD_MEASURE_LINK_H
#define PD_MEASURE_LINK_H

#include "transport/provider.h"

#include <stdint.h>

struct pd_link_ends {
	const struct pd_transport_provider *transport;  /* of host memory; NULL: the program's */
	const char *device;             /* its name (pd_device_find); NULL: memory is the host's */
	const char *how;                /* between devices with memory of their own; NULL: auto */
};

/*
 * latency: half a round trip of 8 bytes.  bandwidth: of 1 MiB that the sender has just written,
 * what half a round trip takes beyond the latency.  Both the lower quartile over many.
 *
 * Where each end is a device with memory of its own, the messages are there, and both devices
 * add up arrays all the while; for the bandwidth both ends send 16 MiB at once, and it is that of
 * one direction.  Process r has the device's number r, as rank r of a run.
 *
 * Forks: to be called before the process has threads, a transport, or has asked for a device.
 * -1 when a process fails or dies, or when it takes longer than half a minute, with a device
 * three; none is left behind.
 */
int pd_measure_link(const struct pd_link_ends *ends, int64_t *bandwidth_bytes_per_s_p,
		    int64_t *latency_ns_p, struct pd_error *err);

/* The same with another limit. */
int pd_measure_link_within(const struct pd_link_ends *ends, int64_t limit_ns,
			   int64_t *bandwidth_bytes_per_s_p, int64_t *latency_ns_p,
			   struct pd_error *err);

#endif
