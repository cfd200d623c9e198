/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a worker sees of the link to another one: two processes that do nothing but pass
 * messages to and fro, asleep while they wait, as workers are.
 */
#ifndef PD_MEASURE_LINK_H
#define PD_MEASURE_LINK_H

#include "transport/transport.h"

#include <stdint.h>

/*
 * latency: half a round trip of 8 bytes.  bandwidth: of 1 MiB that the sender has just written,
 * what half a round trip takes beyond the latency.  Both the lower quartile over many.  Forks: to be called before the
 * process has threads, a device or a transport.  -1 when a process fails or dies, or when it
 * takes longer than half a minute; none is left behind.
 */
int pd_measure_link(const struct pd_transport_ops *ops, int64_t *bandwidth_bytes_per_s_p,
		    int64_t *latency_ns_p, struct pd_error *err);

/* The same with another limit. */
int pd_measure_link_within(const struct pd_transport_ops *ops, int64_t limit_ns,
			   int64_t *bandwidth_bytes_per_s_p, int64_t *latency_ns_p,
			   struct pd_error *err);

#endif
