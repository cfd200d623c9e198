/* SPDX-License-Identifier: Apache-2.0 */
/* A machine of groups of devices that act as one. */
#pragma once

#include "topology/topology.h"

/*
 * Makes the topology of groups of so many neighbouring devices, innermost first.  A group has the links of its
 * devices side by side, and their memory together.  Groups lie within the innermost level, unless they may span
 * several; each level has a whole number of them, or they a whole number of its components.
 */
int pd_topology_contract(const struct pd_topology *topology, int64_t devices, bool spans, struct pd_topology *out_p,
			 struct pd_error *err);
/*
 * Returns the link of each of so many members of a ring, every stride-th device, where the devices
 * between them are in rings of their own and all of these are busy at once: of the levels that the
 * rings span, the least of a link's bandwidth over the rings that cross it, and the latency of the
 * outermost.
 */
struct pd_level pd_topology_ring_link(const struct pd_topology *topology, int64_t stride,
				      int64_t members);
