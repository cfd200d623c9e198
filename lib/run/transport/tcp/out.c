/* SPDX-License-Identifier: Apache-2.0 */
#include "run/transport/tcp/tcp.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

void tcp_out_init(struct tcp_out *o)
{
	pd_ring_init(&o->brief);
	pd_ring_init(&o->lengthy);
}

/* ---- frames ---- */

static struct pd_transfer *first_of(struct pd_transfer *ring)
{
	return ring->next == ring ? NULL : ring->next;
}

/* Begins a frame, unless one is under way; returns whether there is one. */
static bool have_frame(struct tcp_out *o)
{
	struct pd_transfer *x;
	size_t left;

	if (o->current)
		return true;
	x = first_of(&o->brief);
	if (!x)
		x = first_of(&o->lengthy);
	if (!x)
		return false;
	left = x->granted == x->bytes ? x->bytes - x->moved : 0;
	o->current = x;
	o->frame = (struct frame){ .tag = x->tag, .total = x->bytes,
				   .bytes = left < FRAME_BYTES ? left : FRAME_BYTES };
	o->sent = 0;
	return true;
}

/* The frame has left: its message may be whole. */
static void end_frame(struct tcp_out *o)
{
	struct pd_transfer *x = o->current;
	char why[64];

	o->current = NULL;
	x->moved += o->frame.bytes;
	if (x->moved < x->bytes && x->granted == x->bytes)
		return;
	pd_ring_remove(x);
	o->end.pending--;
	if (x->granted == x->bytes) {
		pd_transfer_finish(x);
		return;
	}
	x->owner->broken = true;
	snprintf(why, sizeof(why), "the other side has room for %zu bytes", (size_t)x->granted);
	pd_transfer_fail(x, why);
}

static ssize_t send_some(struct tcp_out *o)
{
	size_t head = sizeof(o->frame), body = o->sent > head ? o->sent - head : 0;
	struct iovec parts[2] = {
		{ (char *)&o->frame + (o->sent < head ? o->sent : head), o->sent < head ? head - o->sent : 0 },
		{ (char *)o->current->buf + o->current->moved + body, o->frame.bytes - body },
	};
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = o->frame.bytes > 0 ? 2 : 1 };

	return sendmsg(o->end.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void write_on(struct tcp_out *o)
{
	size_t written = 0;

	while (written < SLICE_BYTES && have_frame(o)) {
		ssize_t n = send_some(o);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0) {
			tcp_end_lost(&o->end, errno);
			return;
		}
		written += (size_t)n;
		o->sent += (size_t)n;
		if (o->sent == sizeof(o->frame) + o->frame.bytes)
			end_frame(o);
	}
	tcp_end_wait(&o->end, o->ungranted > 0, have_frame(o));
}

/* ---- what is granted ---- */

static void enqueue(struct tcp_out *o, struct pd_transfer *x, uint64_t granted)
{
	x->granted = granted;
	x->moved = 0;
	pd_ring_append(x->bytes <= SHORT_BYTES ? &o->brief : &o->lengthy, x);
	if (o->end.state == END_OPEN && !o->end.writes)
		write_on(o);
}

static void read_grants(struct tcp_out *o);

/* Takes the grant that came before its transfer; NULL: none has come. */
static struct pd_transfer *early_grant(const struct tcp_out *o, const struct pd_transfer *x)
{
	struct pd_transfer *grant = tcp_table_find(&o->end.owner->table, false, x->peer, x->tag);

	return grant && !grant->done ? grant : NULL;
}

/* Nobody was woken for grants that no transfer waited for, so they may be here unread. */
void tcp_out_post(struct tcp_out *o, struct pd_transfer *x)
{
	struct tcp *u = o->end.owner;
	struct pd_transfer *grant = early_grant(o, x);
	uint64_t granted;

	o->end.pending++;
	if (!grant) {
		o->ungranted++;
		tcp_table_add(&u->table, x);
		pd_ring_append(&u->posted, x);
		if (o->end.state == END_OPEN && !o->end.reads)
			read_grants(o);
		if (o->end.state == END_OPEN)
			tcp_end_wait(&o->end, o->ungranted > 0, o->end.writes);
		return;
	}
	granted = grant->granted;
	tcp_table_remove(&u->table, grant);
	pd_transfer_give(grant);
	o->early--;
	enqueue(o, x, granted);
}

static void take_grant(struct tcp_out *o, const struct grant *g)
{
	struct tcp *u = o->end.owner;
	struct pd_transfer *x = tcp_table_find(&u->table, false, o->end.peer, g->tag);

	if (x && x->done) {
		tcp_table_remove(&u->table, x);
		pd_ring_remove(x);
		o->ungranted--;
		enqueue(o, x, g->bytes);
		return;
	}
	if (x || g->tag >> PD_TRANSPORT_TAG_BITS || o->early == MOST_EARLY) {
		tcp_end_accuse(&o->end, "a grant that is out of place (tag %#llx)",
			       (unsigned long long)g->tag);
		return;
	}
	x = pd_transfer_get(&u->transfers);
	x->peer = o->end.peer;
	x->tag = g->tag;
	x->granted = g->bytes;
	o->early++;
	tcp_table_add(&u->table, x);
}

static void read_grants(struct tcp_out *o)
{
	ssize_t n = recv(o->end.fd, (char *)o->grants + o->grant_bytes, sizeof(o->grants) - o->grant_bytes,
			 MSG_DONTWAIT);
	size_t whole;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		tcp_end_lost(&o->end, n < 0 ? errno : 0);
		return;
	}
	o->grant_bytes += (size_t)n;
	whole = o->grant_bytes / sizeof(struct grant);
	for (size_t i = 0; i < whole && o->end.state == END_OPEN; i++)
		take_grant(o, &o->grants[i]);
	o->grant_bytes -= whole * sizeof(struct grant);
	memmove(o->grants, &o->grants[whole], o->grant_bytes);
}

void tcp_out_fail_all(struct tcp_out *o, const char *why)
{
	struct pd_transfer *rings[] = { &o->brief, &o->lengthy }, *x;

	o->current = NULL;
	for (int i = 0; i < 2; i++)
		while ((x = first_of(rings[i]))) {
			pd_ring_remove(x);
			pd_transfer_fail(x, why);
		}
}

/* ---- the beginning ---- */

void tcp_out_begin(struct tcp_out *o)
{
	int fd = pd_socket_begin_connect(o->at, o->port);

	if (fd < 0) {
		tcp_end_lost(&o->end, errno);
		return;
	}
	pd_socket_at_once(fd);
	o->answered = 0;
	tcp_end_take(&o->end, fd, END_CONNECTING);
}

/* The connection is none, or ended before there was an answer, as that of a stranger might. */
static void begin_again(struct tcp_out *o, int error)
{
	if (error == ECONNREFUSED || o->tries++ == MOST_TRIES) {
		tcp_end_lost(&o->end, error);
		return;
	}
	tcp_end_close(&o->end);
	tcp_out_begin(o);
}

static void greet(struct tcp_out *o)
{
	int error = pd_socket_error(o->end.fd);

	if (!error && send(o->end.fd, o->words.ask, PD_WORD_BYTES, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		error = errno;
	if (error) {
		begin_again(o, error);
		return;
	}
	o->end.state = END_GREETED;
	tcp_end_wait(&o->end, true, false);
}

static void hear_answer(struct tcp_out *o)
{
	ssize_t n = recv(o->end.fd, o->answer + o->answered, PD_WORD_BYTES - o->answered, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		begin_again(o, n < 0 ? errno : 0);
		return;
	}
	o->answered += (size_t)n;
	if (o->answered < PD_WORD_BYTES)
		return;
	if (!pd_words_same(o->answer, o->words.answer)) {
		tcp_end_accuse(&o->end, "a wrong word: something else answers at %s, port %d", o->at, o->port);
		return;
	}
	o->end.state = END_OPEN;
	write_on(o);
}

void tcp_out_handle(struct tcp_out *o, uint32_t events)
{
	if (o->end.state == END_CONNECTING) {
		greet(o);
		return;
	}
	if (o->end.state == END_GREETED) {
		hear_answer(o);
		return;
	}
	if (o->end.state == END_OPEN && events & ~(uint32_t)EPOLLOUT)
		read_grants(o);
	if (o->end.state == END_OPEN && events & EPOLLOUT)
		write_on(o);
	if (o->end.state == END_OPEN)
		tcp_end_wait(&o->end, o->ungranted > 0, o->end.writes);
}
