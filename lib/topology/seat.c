/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/seat.h"

#include "base/json.h"

#include <stdio.h>

json_t *pd_seat_json(const struct pd_seat *seat)
{
	return json_pack("{s:o, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:I}", "host",
			 pd_json_bytes(seat->host), "address", seat->address, "local", seat->local,
			 "locals", seat->locals, "hosts", seat->hosts,
			 "sharer", seat->sharer, "sharers", seat->sharers, "device", seat->device,
			 "device_sharers", seat->device_sharers,
			 "clock_ahead_ns", (json_int_t)seat->clock_ahead_ns);
}

int pd_seat_parse(json_t *value, struct pd_seat *out)
{
	struct pd_seat seat = { 0 };
	json_int_t clock_ahead;
	const char *host, *address;

	if (json_unpack(value, "{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:I}", "host", &host,
			"address", &address, "local", &seat.local, "locals", &seat.locals, "hosts", &seat.hosts,
			"sharer", &seat.sharer, "sharers", &seat.sharers, "device", &seat.device,
			"device_sharers", &seat.device_sharers, "clock_ahead_ns", &clock_ahead) < 0)
		return -1;
	snprintf(seat.host, sizeof(seat.host), "%s", host);
	snprintf(seat.address, sizeof(seat.address), "%s", address);
	seat.clock_ahead_ns = clock_ahead;
	*out = seat;
	return 0;
}
