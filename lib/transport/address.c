/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/address.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *pd_address_text(struct pd_transport *transport)
{
	const void *address;
	size_t length;
	char *text;

	transport->ops->address(transport, &address, &length);
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

int pd_address_connect(struct pd_transport *transport, const json_t *list, struct pd_error *err)
{
	size_t n = json_array_size(list), *lengths = pd_calloc(n, sizeof(*lengths));
	void **addresses = pd_calloc(n, sizeof(*addresses));
	int status;

	for (size_t i = 0; i < n; i++) {
		const char *text = json_string_value(json_array_get(list, i));

		if (text)
			addresses[i] = parse(text, &lengths[i]);
	}
	status = transport->ops->connect(transport, (const void *const *)addresses, lengths, err);
	for (size_t i = 0; i < n; i++)
		free(addresses[i]);
	free(addresses);
	free(lengths);
	return status;
}
