/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/transport/transport.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

bool pd_transport_sleep(struct pd_transport *t, struct pd_gate *gate, int other, int timeout_ms)
{
	struct pollfd fds[3] = { { .fd = gate->fd, .events = POLLIN }, { .fd = other, .events = POLLIN },
				 { .fd = t ? t->ops->fd(t) : -1, .events = POLLIN } };
	uint64_t count;

	if ((t && t->ops->arm(t) != 0) || poll(fds, 3, timeout_ms) < 0)
		return false;
	if (fds[0].revents && read(gate->fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		pd_bug("eventfd: %s", strerror(errno));
	return fds[1].revents != 0;
}
