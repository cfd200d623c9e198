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

#include "engine/device/device.h"
#include "engine/transport/transport.h"
#include "topology/seat.h"

#include <stdbool.h>
#include <stddef.h>

#define PD_LACKS_TEXT 160

/*
 * Ranks find each other through addresses, opaque bytes that the launcher carries: every rank opens
 * its end, publishes address(), and connects with the addresses of all.  Transports of the host's memory do.
 */
struct pd_connector {
	/* Returns this rank's address, borrowed until close(). */
	void (*address)(struct pd_transport *t, const void **bytes_p, size_t *length_p);
	/* addresses[r], lengths[r] of every rank, self included; NULL of one with whom this rank
	 * exchanges nothing. */
	int (*connect)(struct pd_transport *t, const void *const *addresses, const size_t *lengths,
		       struct pd_error *err);
	/*
	 * Ends what is not finished: its events fail, and then nothing may be called but close(), which cancels
	 * by itself.  It first sends, for a second at most, what peers need in order to finish their side of
	 * finished transfers.
	 */
	void (*cancel)(struct pd_transport *t);
};

struct pd_transport_provider;

/* A transport, and who has opened it. */
struct pd_provided {
	const struct pd_transport_provider *by;
	struct pd_transport *transport;
};

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
	const struct pd_provided *host; /* connected, but in offer(); cancelled by close() */
	struct pd_device *device;
	int64_t under_way_bytes;        /* of the device's memory, at once; 0: not known */
	const struct pd_transport_end *ends;    /* by rank; NULL in offer() */
};

struct pd_transport_provider {
	const char *name;
	const struct pd_connector *connector;   /* NULL: it moves device memory, over a host's transport */
	bool alone;                     /* it serves a rank that is alone, which gains nothing from the others */
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
	/* Returns whether the two reach each other; the answer is symmetric.  NULL: all do. */
	bool (*reaches)(const struct pd_transport_end *self, const struct pd_transport_end *peer,
			bool asked);
	/*
	 * Writes what the user should know of a rank and its peers, `count` of them in order, that it
	 * does not reach, or reaches slowly, or "".
	 */
	void (*explain)(const struct pd_transport_end *ends, int count, bool asked, char *text,
			size_t size);
	/* What is said around such a text to the user, where this provider is used; NULL: nothing. */
	const char *before, *after;
	struct pd_transport *(*open)(const struct pd_transport_config *config,
				     struct pd_error *err);
};

/* These are the providers of this program, best first (lib/run/transport/list.c). */
extern const struct pd_transport_provider *const pd_providers[];
/* "auto" and the names of all providers, NULL-terminated. */
extern const char *const pd_provider_names[];
#define PROVIDER(name) extern const struct pd_transport_provider pd_provider_##name;
#include "run/transport/provider.def"
#undef PROVIDER
/* Returns whether the provider of that name moves the memory of devices. */
bool pd_provider_of_devices(const char *name);
