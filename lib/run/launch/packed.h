/* SPDX-License-Identifier: Apache-2.0 */
/* A message for many ranks, compressed once. */
#pragma once

#include <jansson.h>
#include <stddef.h>

struct pd_packed {
	size_t count, bytes;            /* compressed, and not */
	char *text;
};

/* Takes the message's reference. */
struct pd_packed pd_pack(json_t *message);
void pd_packed_release(struct pd_packed *packed);
/* A new reference to the message, or NULL where it is none. */
json_t *pd_unpack(const struct pd_packed *packed);
