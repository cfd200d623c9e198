/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a rank makes known the address of its transport, and learns those of its peers.
 *
 * Behind the launcher seam there are two ways.  A rank whose launcher has an exchange of its own gives
 * its address to that, by way of the process that started it (launch/exchange_server.h), and asks that
 * for those of its peers.  Any other gives its address along with the message that says that it is
 * ready, and gets those of its peers along with the one by which it is to connect.  A rank is told to
 * connect once all are ready: nobody waits here for one who is lost before.
 */
#pragma once

#include "launch/channel.h"

#include <stdbool.h>

struct pd_exchange {
	struct pd_channel server;       /* fd -1: the launcher has no exchange */
};

/* Takes over fd, or -1. */
void pd_exchange_init(struct pd_exchange *exchange, int fd);
void pd_exchange_release(struct pd_exchange *exchange);

/* Makes the address known, a text: through the exchange, or as a member of the message "ready". */
int pd_exchange_put(struct pd_exchange *exchange, const char *address, json_t *ready,
		    struct pd_error *err);
/*
 * Adds what the exchange has to the member "addresses" of the message "connect": an object with the
 * address of each rank r for which peers[r] is set.  The exchange is over then.
 */
int pd_exchange_get(struct pd_exchange *exchange, const bool *peers, int ranks, json_t *connect,
		    struct pd_error *err);
