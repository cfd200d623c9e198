/* SPDX-License-Identifier: Apache-2.0 */
/* TCP between processes of a run, on whatever interfaces their hosts have.  Addresses are numeric texts. */
#pragma once

#include "base/error.h"

#include <jansson.h>
#include <net/if.h>
#include <netinet/in.h>

#define PD_SOCKET_ADDRESS INET6_ADDRSTRLEN
#define PD_LOOPBACK "127.0.0.1"

/*
 * A socket that listens at one address of this host, on a port which the system chooses.  Its accept()
 * does not block.
 */
int pd_socket_listen(const char *address, int *port_p, struct pd_error *err);
/* A connection, or -1 with errno; waits for some seconds. */
int pd_socket_connect(const char *address, int port);
/* A connection that can be written to once it is there, and whose calls do not block; -1 with errno. */
int pd_socket_begin_connect(const char *address, int port);
/* Returns what has become of a connection that was begun: 0, or why it is none. */
int pd_socket_error(int fd);
/* What is sent goes at once. */
void pd_socket_at_once(int fd);
#define PD_SOCKET_SILENCE_S 7
/*
 * Ends a connection whose other host does not answer for so many seconds, be it idle or not: what is
 * read then fails with ETIMEDOUT.
 */
void pd_socket_watch(int fd);
/* Raises the limit of descriptors that this process and its children may have, as far as it may. */
void pd_socket_allow_many(void);

/* Returns a new array of the addresses at which this host can be reached, by one interface; NULL: by any. */
json_t *pd_socket_addresses(const char *interface);
/* Adds to the list those from which this host reaches a host of that name; -1: it finds none. */
int pd_socket_addresses_toward(const char *host, json_t *list);
/* The address of a connection's own end, or of the other; "": it has none. */
void pd_socket_own_address(int fd, char text[PD_SOCKET_ADDRESS]);
void pd_socket_peer_address(int fd, char text[PD_SOCKET_ADDRESS]);
/* Names the interface that has the address; "": none. */
void pd_socket_interface(const char *address, char name[IF_NAMESIZE]);
