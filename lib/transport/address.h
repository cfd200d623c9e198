/* SPDX-License-Identifier: Apache-2.0 */
/* A transport's address as text, for messages. */
#ifndef PD_TRANSPORT_ADDRESS_H
#define PD_TRANSPORT_ADDRESS_H

#include "transport/transport.h"

#include <jansson.h>

/* Returns the address of a transport as hexadecimal digits; free() it. */
char *pd_address_text(struct pd_transport *transport);
/*
 * Connects a transport with the addresses of all ranks, an array of such texts.  A rank that this one
 * exchanges nothing with may have null.
 */
int pd_address_connect(struct pd_transport *transport, const json_t *addresses,
		       struct pd_error *err);

#endif
