/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transport that only takes time, over the links of a topology.
 *
 * A transfer is ready when both sides have posted it and the events it follows are done.
 * On its way lie, in each direction a link of its own, the link of its device and those of
 * the components that hold it, up to the level at which the two ranks meet, and down again.
 * It starts when all of them are free, the first that was ready first, and holds each for
 * bytes / its bandwidth: what is slow on a link between servers leaves room for others on a
 * device's own.  When the slowest has let it go the sender's event is done, and it arrives the
 * latency of the outermost level later.  One that waits for a link holds up nobody at another.
 * A level with bandwidth 0 holds nothing up.
 */
#ifndef PD_TRANSPORT_SIM_SIM_H
#define PD_TRANSPORT_SIM_SIM_H

#include "device/sim/sim.h"
#include "topology/topology.h"
#include "transport/transport.h"

struct pd_sim_fabric;

/* Links for the ranks of sim, on its clock.  sim and topology are borrowed; free before sim. */
struct pd_sim_fabric *pd_sim_fabric_new(struct pd_sim *sim, const struct pd_topology *topology);
void pd_sim_fabric_free(struct pd_sim_fabric *fabric);

/* Owned by the fabric, connected; close does nothing. */
struct pd_transport *pd_sim_transport(struct pd_sim_fabric *fabric, int rank);

extern const struct pd_transport_ops pd_transport_sim;

#endif
