/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The other end of a rank's exchange (run/launch/exchange.h), in the process that a PMIx server has started
 * and that has started the rank: it leaves the rank's address with that server, and fetches those of
 * the rank's peers, in a thread of its own.
 */
#pragma once

#include "base/error.h"

#include <pthread.h>
#include <stdbool.h>

struct pd_exchange_server {             /* begins as zeroes */
	int fd;
	pthread_t thread;
	bool runs;
};

/* Returns the rank's end, to be given to its process and closed here; or -1. */
int pd_exchange_server_begin(struct pd_exchange_server *server, struct pd_error *err);
/* To be called once the rank's process has ended; waits for no answer any more.  Ends the use of the PMIx server, too. */
void pd_exchange_server_end(struct pd_exchange_server *server);
