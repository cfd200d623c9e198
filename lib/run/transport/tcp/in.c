/* SPDX-License-Identifier: Apache-2.0 */
#include "run/transport/tcp/tcp.h"

#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* ---- grants ---- */

static void send_grants(struct tcp_in *i)
{
	while (i->grants_sent < i->grants_used) {
		ssize_t n = send(i->end.fd, i->grants + i->grants_sent, i->grants_used - i->grants_sent,
				 MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0) {
			tcp_end_lost(&i->end, errno);
			return;
		}
		i->grants_sent += (size_t)n;
	}
	if (i->grants_sent == i->grants_used)
		i->grants_sent = i->grants_used = 0;
	tcp_end_wait(&i->end, true, i->grants_used > 0);
}

void tcp_in_post(struct tcp_in *i, struct pd_transfer *x)
{
	struct tcp *u = i->end.owner;
	struct grant grant = { .tag = x->tag, .bytes = x->bytes };

	i->end.pending++;
	x->moved = 0;
	tcp_table_add(&u->table, x);
	pd_ring_append(&u->posted, x);
	i->grants = pd_grow(i->grants, &i->grants_capacity, i->grants_used + sizeof(grant), 1);
	memcpy(i->grants + i->grants_used, &grant, sizeof(grant));
	i->grants_used += sizeof(grant);
	if (i->end.state == END_OPEN && !i->end.writes)
		send_grants(i);
}

/* ---- frames ---- */

/* A frame is here: the message may be whole. */
static void end_frame(struct tcp_in *i)
{
	struct pd_transfer *x = i->current;

	i->current = NULL;
	i->head = 0;
	if (x->moved < x->bytes)
		return;
	tcp_table_remove(&i->end.owner->table, x);
	pd_ring_remove(x);
	i->end.pending--;
	pd_transfer_finish(x);
}

/* A frame comes, of a message for which a receive of its length must be posted. */
static void begin_frame(struct tcp_in *i)
{
	const struct frame *f = &i->frame;
	struct pd_transfer *x = tcp_table_find(&i->end.owner->table, true, i->end.peer, f->tag);

	if (x && f->total != x->bytes) {
		tcp_end_accuse(&i->end, "a message of %llu bytes, where %zu are expected",
			       (unsigned long long)f->total, x->bytes);
		return;
	}
	if (!x || f->bytes > FRAME_BYTES || f->bytes > x->bytes - x->moved || (f->bytes == 0 && x->bytes > 0)) {
		tcp_end_accuse(&i->end, "%llu bytes that nobody expects (tag %#llx)",
			       (unsigned long long)f->bytes, (unsigned long long)f->tag);
		return;
	}
	i->current = x;
	i->left = f->bytes;
	if (i->left == 0)
		end_frame(i);
}

/* Takes what has come: bytes of the frame under way, then of the next one's head. */
static void advance(struct tcp_in *i, size_t n)
{
	size_t body = n < i->left ? n : i->left;

	if (i->current && i->left > 0) {
		i->current->moved += body;
		i->left -= body;
		n -= body;
		if (i->left == 0)
			end_frame(i);
	}
	i->head += n;
	if (n > 0 && i->head == sizeof(i->frame))
		begin_frame(i);
}

/*
 * Says for how many bytes the owner is to be woken: for many where they are expected.  Before a frame nobody
 * knows which comes.
 */
static void set_enough(struct tcp_in *i)
{
	size_t enough = !i->current || i->left < ENOUGH_BYTES / 2 ? 1
			: i->left < ENOUGH_BYTES ? i->left : ENOUGH_BYTES;
	int bytes = (int)enough;

	if (enough == i->enough)
		return;
	setsockopt(i->end.fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes));
	i->enough = enough;
}

static void read_on(struct tcp_in *i)
{
	size_t taken = 0;

	while (taken < SLICE_BYTES && i->end.state == END_OPEN) {
		bool under_way = i->current != NULL;
		struct iovec parts[2] = {
			{ under_way ? (char *)i->current->buf + i->current->moved : NULL, i->left },
			{ (char *)&i->frame + (under_way ? 0 : i->head),
			  sizeof(i->frame) - (under_way ? 0 : i->head) },
		};
		struct msghdr message = { .msg_iov = under_way ? parts : parts + 1,
					  .msg_iovlen = under_way ? 2 : 1 };
		ssize_t n = recvmsg(i->end.fd, &message, MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			tcp_end_lost(&i->end, n < 0 ? errno : 0);
			return;
		}
		taken += (size_t)n;
		if ((size_t)n < (under_way ? parts[0].iov_len : 0) + parts[1].iov_len)
			taken = SLICE_BYTES;    /* there is no more */
		advance(i, (size_t)n);
	}
}

void tcp_in_came(struct tcp_in *i, int fd)
{
	tcp_end_take(&i->end, fd, END_OPEN);
	send_grants(i);
}

void tcp_in_handle(struct tcp_in *i, uint32_t events)
{
	if (i->end.state == END_OPEN && events & ~(uint32_t)EPOLLOUT)
		read_on(i);
	if (i->end.state == END_OPEN)
		set_enough(i);
	if (i->end.state == END_OPEN && events & EPOLLOUT)
		send_grants(i);
}
