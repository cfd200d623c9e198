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
/* Returns the link that the devices of a group share: the slowest of the levels that it spans. */
struct pd_level pd_topology_inner_link(const struct pd_topology *topology, int64_t devices);
