/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a rank makes known the address of its transport, and learns those of its peers.
 *
 * Behind the launcher seam there are two ways.  A rank whose launcher has an exchange of its own gives
 * its address to that, by way of the process that started it (run/launch/exchange_server.h), and asks that
 * for those of its peers.  Any other gives its address along with the message that says that it is
 * ready, and gets those of its peers along with the one by which it is to connect.  A rank is told to
 * connect once all are ready: nobody waits here for one who is lost before.
 *
 * Under a PMIx server the process that started a rank serves it: puts the address, before the rank
 * says that it is ready, and gets those of the rank's peers, each from the server of that peer's
 * host (direct modex), once the supervisor has said that all are ready.  So a get never waits for
 * a put, and whoever is lost before, the supervisor names.  What has been put stays with the
 * server of its host when the process that put it has ended its use of PMIx: under Open MPI 4.1
 * and Slurm 22.05, both with PMIx 4.2, a get 4 s later was answered as fast.  A get asks for no
 * PMIX_IMMEDIATE, by whose definition a server asks no other host's, nor for a server's own limit
 * of time: it is waited for with one of ours.  A process puts once, and a run that is started
 * again has a job, or a step, and so servers' records, of its own: keys need no number of the
 * attempt.
 */
#pragma once

#include "run/launch/channel.h"

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
