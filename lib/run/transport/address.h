/* SPDX-License-Identifier: Apache-2.0 */
/* The address of a rank's routes as text, for messages. */
#pragma once

#include "base/json.h"
#include "engine/transport/transport.h"

/* Returns the address of a transport as hexadecimal digits; free() it. */
char *pd_address_text(struct pd_transport *transport);
/* Adds the address of a rank, such a text, to an object of addresses; NULL adds nothing. */
void pd_address_add(json_t *addresses, int rank, json_t *address);
/*
 * Connects a transport as a message says: "ranks", how many there are, and "addresses", an object with
 * those of ranks with which this one exchanges something.
 */
int pd_address_connect(struct pd_transport *transport, const json_t *message, struct pd_error *err);
