/* SPDX-License-Identifier: Apache-2.0 */
#include "run/transport/tcp/tcp.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* That the other side has closed is always of interest. */
static struct epoll_event wanted(const struct tcp_end *end)
{
	return (struct epoll_event){ .events = EPOLLRDHUP | (end->reads ? EPOLLIN : 0) |
					       (end->writes ? EPOLLOUT : 0),
				     .data.ptr = (void *)end };
}

void tcp_end_take(struct tcp_end *end, int fd, enum end_state state)
{
	struct epoll_event event;

	end->fd = fd;
	end->state = state;
	end->reads = true;
	end->writes = state == END_CONNECTING;
	event = wanted(end);
	epoll_ctl(end->owner->events, EPOLL_CTL_ADD, fd, &event);
}

void tcp_end_close(struct tcp_end *end)
{
	if (end->fd >= 0)
		close(end->fd);
	end->fd = -1;
	end->state = END_OVER;
}

void tcp_end_wait(struct tcp_end *end, bool reads, bool writes)
{
	struct epoll_event event;

	if (end->reads == reads && end->writes == writes)
		return;
	end->reads = reads;
	end->writes = writes;
	event = wanted(end);
	epoll_ctl(end->owner->events, EPOLL_CTL_MOD, end->fd, &event);
}

void tcp_fail_all(struct tcp *u, int peer, const char *why)
{
	struct pd_transfer *x;

	for (int r = peer < 0 ? 0 : peer; u->out && r < (peer < 0 ? u->ranks : peer + 1); r++)
		if (u->out[r])
			tcp_out_fail_all(u->out[r], why);
	while ((x = tcp_table_any(&u->table, peer))) {
		tcp_table_remove(&u->table, x);
		if (!x->done) {                         /* a grant without a send */
			pd_transfer_give(x);
			continue;
		}
		pd_ring_remove(x);
		pd_transfer_fail(x, why);
	}
}

static void give_up(struct tcp_end *end, const struct pd_error *why)
{
	struct tcp *u = end->owner;

	tcp_end_close(end);
	if (u->transfers.broken)
		return;
	pd_transfers_give_up(&u->transfers, why);
	tcp_fail_all(u, end->peer, why->text);
}

void tcp_end_lost(struct tcp_end *end, int error)
{
	struct pd_error err;

	if (end->pending == 0 && end->state == END_OPEN) {
		tcp_end_close(end);
		return;
	}
	pd_error_peer(&err, end->peer, "rank %d: lost rank %d: %s", end->owner->transfers.rank, end->peer,
		      error ? strerror(error) : "its connection has ended");
	give_up(end, &err);
}

void tcp_end_accuse(struct tcp_end *end, const char *fmt, ...)
{
	struct pd_error err;
	char what[160];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	pd_error_peer(&err, end->peer, "rank %d: from rank %d came %s", end->owner->transfers.rank,
		      end->peer, what);
	give_up(end, &err);
}
