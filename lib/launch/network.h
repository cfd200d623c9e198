/* SPDX-License-Identifier: Apache-2.0 */
/* TCP between processes of a run, on whatever interfaces their hosts have. */
#pragma once

#include "base/error.h"

#include <jansson.h>
#include <net/if.h>
#include <stdbool.h>

/*
 * A socket that listens on a port which the system chooses, of the loopback interface alone or of
 * all interfaces.  Its accept() does not block.
 */
int pd_network_listen(bool loopback, int *port_p, struct pd_error *err);
/* Returns a new array of the numeric addresses at which this host can be reached. */
json_t *pd_network_addresses(bool loopback);
/* A connection to one address, or -1 with errno; waits for some seconds. */
int pd_network_connect(const char *address, int port);
/*
 * Ends a connection whose other host does not answer for some seconds, be it idle or not: what is
 * read then fails with ETIMEDOUT.
 */
void pd_network_watch(int fd);
/* Names the interface through which a connection goes; "": that of this host alone. */
void pd_network_interface(int fd, char name[IF_NAMESIZE]);
