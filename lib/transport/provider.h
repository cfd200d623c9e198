/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Providers: where connections (transport.h) come from, and whom they reach.
 *
 * Some move the host's memory; others that of devices with memory of their own
 * (pd_device_ops.separate_memory), over a transport of the host's.  A rank takes for each peer the
 * first that reaches it (routes.h).  What a provider must know of a peer for that, the peer offers:
 * its bytes travel with the address.
 */
#ifndef PD_TRANSPORT_PROVIDER_H
#define PD_TRANSPORT_PROVIDER_H

#include "device/device.h"
#include "topology/seat.h"
#include "transport/transport.h"

#include <stdbool.h>
#include <stddef.h>

#define PD_LACKS_TEXT 160

/* A rank, as a provider sees it before it connects. */
struct pd_transport_end {
	int rank;
	struct pd_seat seat;
	char place[32];                 /* its device, among those of its host (pd_device_info) */
	const void *offer;              /* what the same provider offers there; NULL: nothing */
	char lacks[PD_LACKS_TEXT];      /* why not */
};

struct pd_transport_config {
	int rank, ranks;
	struct pd_gate *gate;           /* NULL in virtual time */
	/* over a transport of the host's, all borrowed: */
	struct pd_transport *host;      /* connected, but in offer() */
	struct pd_device *device;
	const struct pd_seat *seat;
	const bool *peers;              /* with whom this rank exchanges by this provider, and they
					   with it; itself where it sends to itself */
	bool asked;                     /* the user wants this provider, and no other */
	const struct pd_transport_end *ends;    /* by rank; NULL in offer() */
};

struct pd_transport_provider {
	const char *name;
	bool of_devices;                /* it moves the memory of devices, over a host's transport */
	/*
	 * Sets in the environment what a library reads there: before the process has threads that
	 * read it, so before devices or transports are opened.  NULL: nothing.
	 */
	void (*prepare)(const struct pd_device_ops *device, int rank, int ranks,
			const struct pd_seat *seat, bool asked);
	/* Bytes for the peers; to be freed.  NULL, with why: none.  No such function: none needed. */
	void *(*offer)(const struct pd_transport_config *config, size_t *bytes_p,
		       struct pd_error *err);
	/* The same for (a, b) and (b, a). */
	bool (*reaches)(const struct pd_transport_end *self, const struct pd_transport_end *peer,
			bool asked);
	/* What the user should know of whom it does not reach, or reaches slowly; "": nothing. */
	void (*explain)(const struct pd_transport_end *ends, int ranks, bool asked, char *text,
			size_t size);
	struct pd_transport *(*open)(const struct pd_transport_config *config,
				     struct pd_error *err);
};

/* Those of this program, best first (lib/transport/list.c). */
extern const struct pd_transport_provider *const pd_providers[];
/* "auto", and the names of those of devices; NULL-terminated. */
extern const char *const pd_provider_names[];

extern const struct pd_transport_provider pd_provider_ucx, pd_provider_nccl, pd_provider_staged;

#endif
