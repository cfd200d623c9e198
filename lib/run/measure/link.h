/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the link between two workers: two processes that only pass messages to and fro, and
 * sleep while they wait, as workers do.
 */
#pragma once

#include "profile/profile.h"
#include "run/transport/provider.h"

#include <stdint.h>

struct pd_link_ends {
	const struct pd_transport_provider *transport;  /* of host memory; NULL: the program's */
	const char *device;             /* its name (pd_device_find); NULL: memory is the host's */
	const char *how;                /* between devices with memory of their own; NULL: auto */
};

/* What was measured. */
struct pd_link_found {
	int64_t bandwidth_bytes_per_s, latency_ns;
	struct pd_spread spread;        /* of the mean time of large messages in a round, over the one that counts */
};

/*
 * The latency is half a round trip of 8 bytes.  The bandwidth is that of 1 MiB that the sender has
 * just written, in the time by which half a round trip exceeds the latency.  Both are lower
 * quartiles of many measurements.
 *
 * If each end is a device with separate memory, the messages are there, and both devices add arrays
 * all the while.  For the bandwidth both ends then send 16 MiB at once, and it is that of one
 * direction.  Process r uses device number r, like rank r of a run.
 *
 * It forks, so call it before the process has threads or a transport, or has asked for a device. 
 * Returns -1 if a process fails or dies, or takes longer than half a minute (with a device, three
 * minutes); no process is left.
 */
int pd_measure_link(const struct pd_link_ends *ends, struct pd_link_found *found_p, struct pd_error *err);

/* Measures with another limit of time. */
int pd_measure_link_within(const struct pd_link_ends *ends, int64_t limit_ns,
			   struct pd_link_found *found_p, struct pd_error *err);
