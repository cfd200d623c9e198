/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A provider opens transports (transport.h) and knows which peers they reach.
 *
 * Some providers move host memory, each to some peers (joint.h); others move, over a transport of the host's, the memory of
 * devices that have their own (pd_device_ops.separate_memory).  A rank takes for each peer the
 * first provider that reaches it (routes.h).  What a provider must know of a peer to decide that,
 * the peer offers: those bytes travel with its address.
 */
#pragma once

#include "device/device.h"
#include "topology/seat.h"
#include "transport/transport.h"

#include <stdbool.h>
#include <stddef.h>

#define PD_LACKS_TEXT 160

/* One end of a connection, as a provider knows it before it connects. */
struct pd_transport_end {
	int rank;
	struct pd_seat seat;
	char place[32];	/* names the device among those of its host (pd_device_info) */
	const void *offer;	/* what the same provider offers at that rank; NULL: nothing */
	char lacks[PD_LACKS_TEXT];      /* why it offers nothing */
};

struct pd_transport_config {
	int rank, ranks;
	struct pd_gate *gate;           /* NULL in virtual time */
	const struct pd_seat *seat;     /* borrowed; NULL: there is one host */
	const bool *peers;              /* with whom this rank exchanges by this provider, and they
					   with it; itself where it sends to itself.  Borrowed; NULL: all */
	const char *how;                /* the provider of host memory that is asked for; NULL: none is */
	bool asked;                     /* the user wants this provider, and no other */
	/* over a transport of the host's, all borrowed: */
	struct pd_transport *host;      /* connected, but in offer() */
	struct pd_device *device;
	int64_t under_way_bytes;        /* of the device's memory, at once; 0: not known */
	const struct pd_transport_end *ends;    /* by rank; NULL in offer() */
};

struct pd_transport_provider {
	const char *name;
	bool of_devices;                /* it moves device memory, over a host's transport */
	bool sums;                      /* its transports have group(), to be called once they are open */
	/*
	 * Sets environment variables that a library reads.  It is called before the process has
	 * threads that read the environment, so before devices or transports are opened.  NULL:
	 * there are none.
	 */
	void (*prepare)(const struct pd_device_ops *device, int rank, int ranks,
			const struct pd_seat *seat, bool asked);
	/*
	 * Returns bytes for the peers, to be freed; NULL with an error where it cannot.  The
	 * function is NULL where none are needed.
	 */
	void *(*offer)(const struct pd_transport_config *config, size_t *bytes_p,
		       struct pd_error *err);
	/* Returns whether the two reach each other; the answer is symmetric. */
	bool (*reaches)(const struct pd_transport_end *self, const struct pd_transport_end *peer,
			bool asked);
	/*
	 * Writes what the user should know of a rank and its peers, `count` of them in order, that it
	 * does not reach, or reaches slowly, or "".
	 */
	void (*explain)(const struct pd_transport_end *ends, int count, bool asked, char *text,
			size_t size);
	struct pd_transport *(*open)(const struct pd_transport_config *config,
				     struct pd_error *err);
};

/* These are the providers of this program, best first (lib/transport/list.c). */
extern const struct pd_transport_provider *const pd_providers[];
/* "auto" and the names of all providers, NULL-terminated. */
extern const char *const pd_provider_names[];
/* Returns whether the provider of that name moves the memory of devices. */
bool pd_provider_of_devices(const char *name);

extern const struct pd_transport_provider pd_provider_ucx, pd_provider_tcp, pd_provider_nccl,
	pd_provider_staged;
