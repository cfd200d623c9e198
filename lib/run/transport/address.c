/* SPDX-License-Identifier: Apache-2.0 */
#include "run/transport/address.h"

#include "base/mem.h"
#include "run/transport/routes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *pd_address_text(struct pd_transport *transport)
{
	const void *address;
	size_t length;
	char *text;

	pd_routes_address(transport, &address, &length);
	text = pd_zalloc(length * 2 + 1);
	for (size_t i = 0; i < length; i++)
		sprintf(text + 2 * i, "%02x", ((const unsigned char *)address)[i]);
	return text;
}

static void *parse(const char *text, size_t *length_p)
{
	unsigned char *bytes;

	*length_p = strlen(text) / 2;
	bytes = pd_zalloc(*length_p);
	for (size_t i = 0; i < *length_p; i++)
		sscanf(text + 2 * i, "%2hhx", &bytes[i]);
	return bytes;
}

void pd_address_add(json_t *addresses, int rank, json_t *address)
{
	char key[16];

	snprintf(key, sizeof(key), "%d", rank);
	json_object_set(addresses, key, address);
}

int pd_address_connect(struct pd_transport *transport, const json_t *message, struct pd_error *err)
{
	size_t n = (size_t)pd_member_int(message, "ranks");
	size_t *lengths = pd_calloc(n, sizeof(*lengths));
	void **addresses = pd_calloc(n, sizeof(*addresses));
	const char *rank;
	json_t *address;
	int status;

	json_object_foreach(json_object_get(message, "addresses"), rank, address) {
		size_t i = (size_t)atoi(rank);

		if (i < n && !addresses[i] && json_is_string(address))
			addresses[i] = parse(json_string_value(address), &lengths[i]);
	}
	status = pd_routes_connect(transport, (const void *const *)addresses, lengths, err);
	for (size_t i = 0; i < n; i++)
		free(addresses[i]);
	free(addresses);
	free(lengths);
	return status;
}
