/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated transport only takes time, over the links of a topology.
 *
 * A transfer is ready when both sides have posted it and the events it follows are done.  Its way
 * leads over the link of its device and the links of the components that hold it, up to the level
 * at which the two ranks meet, and down again; each link has two directions.  The transfer starts
 * when all links of its way are free, and holds each for bytes / bandwidth of that link: a transfer
 * that is slow between servers leaves room for others on its device's link.  When it has left the
 * slowest link the sender's event is done; it arrives after the latency of the outermost level.  A
 * level with bandwidth 0 takes no time.
 *
 * Of the transfers that may start at one time, that which became ready first does.  So one that
 * waits for a link delays none at other links; but one that needs several busy links might wait for
 * ever, since they need not be free at one time.  A transfer that was the first to wait for a link,
 * and has been overtaken there 32 times, has the links of its way kept free for it, as soon as it is
 * the first at all of them.
 */
#pragma once

#include "engine/device/sim/sim.h"
#include "engine/transport/transport.h"
#include "topology/topology.h"

struct pd_sim_fabric;

/*
 * Makes the links between the ranks of sim, on its clock.  sim and topology are borrowed; free the
 * result before sim.
 */
struct pd_sim_fabric *pd_sim_fabric_new(struct pd_sim *sim, const struct pd_topology *topology);
void pd_sim_fabric_free(struct pd_sim_fabric *fabric);

/* Returns a rank's transport, connected and owned by the fabric; its close() does nothing. */
struct pd_transport *pd_sim_transport(struct pd_sim_fabric *fabric, int rank);

extern const struct pd_transport_ops pd_transport_sim;
