/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transport of devices with memory of their own (pd_device_ops.apart): by NCCL where each
 * rank has a GPU to itself, else staged through the host.
 *
 * NCCL takes no two ranks on one GPU, unless it is made to believe that each is a machine of
 * its own; then it passes everything through sockets.  And a transfer is a kernel that waits for
 * the other rank's, which shares the GPU: it runs when the driver gives the GPU to that process,
 * one time slice later.  That is what asking for NCCL does there, and why nobody else gets it.
 */
#ifndef PD_TRANSPORT_APART_H
#define PD_TRANSPORT_APART_H

#include "device/device.h"
#include "transport/transport.h"

#include <stdbool.h>

enum pd_apart { PD_APART_AUTO, PD_APART_NCCL, PD_APART_STAGED };

extern const char *const pd_apart_name[];       /* NULL-terminated: "auto", "nccl", "staged" */

struct pd_apart_config {
	enum pd_apart how;              /* of all ranks the same */
	int rank, ranks;
	const bool *peers;              /* with whom this rank exchanges, and they with it; itself
					   where it sends to itself.  Copied; NULL: all */
	struct pd_transport *inner;     /* of host memory, opened, not connected; it belongs to the
					   result and is closed with it */
	struct pd_device *device;       /* borrowed */
	struct pd_gate *gate;
};

/*
 * Sets in the environment what NCCL reads there: before the process has threads that read it, so
 * before device or transports are opened.  how: as in the config.
 */
void pd_apart_environment(enum pd_apart how, const struct pd_device_ops *device, int rank,
			  int ranks);
/* Which it is to be is decided in connect(), by all ranks alike. */
struct pd_transport *pd_apart_open(const struct pd_apart_config *config);

/*
 * Once connected: "nccl" or "staged", and in *why_p what the user should know about that, or NULL:
 * why it is staged where nobody asked for that; which ranks share a GPU where it is NCCL.  Belongs
 * to the transport.
 */
const char *pd_apart_chosen(const struct pd_transport *t, const char **why_p);

#endif
