/* SPDX-License-Identifier: Apache-2.0 */
#include "run/transport/tcp/tcp.h"

#include "base/clock.h"
#include "base/container.h"
#include "base/mem.h"
#include "run/transport/provider.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define FLUSH_NS INT64_C(1000000000)
#define EVENTS 64

/* ---- transfers ---- */

static struct tcp *tcp_of(struct pd_transport *t)
{
	return (struct tcp *)t;
}

static void post(struct pd_transfers *transfers, struct pd_transfer *x)
{
	struct tcp *u = pd_container(transfers, struct tcp, transfers);
	const struct tcp_end *end = x->receive ? &u->in[x->peer]->end : &u->out[x->peer]->end;

	if (end->state == END_OVER) {
		transfers->broken = true;
		pd_transfer_fail(x, "its connection has ended");
	} else if (x->receive) {
		tcp_in_post(u->in[x->peer], x);
	} else {
		tcp_out_post(u->out[x->peer], x);
	}
}

static int transfer(struct tcp *u, const struct pd_transfer *what)
{
	if (what->peer < 0 || what->peer >= u->ranks || !u->out || !u->out[what->peer] ||
	    what->tag >> PD_TRANSPORT_TAG_BITS)
		pd_bug("rank %d: transfer with rank %d (of %d%s), tag %#llx", u->transfers.rank,
		       what->peer, u->ranks, u->out ? "" : ", not connected",
		       (unsigned long long)what->tag);
	return pd_transfers_begin(&u->transfers, what);
}

static int tcp_send(struct pd_transport *t, int peer, uint64_t tag, const void *buf, size_t bytes,
		    const struct pd_event *after, struct pd_event *done)
{
	return transfer(tcp_of(t), &(struct pd_transfer){ .peer = peer, .tag = tag, .buf = (void *)buf,
							  .bytes = bytes, .after = after, .done = done });
}

static int tcp_recv(struct pd_transport *t, int peer, uint64_t tag, void *buf, size_t bytes,
		    const struct pd_event *after, struct pd_event *done)
{
	return transfer(tcp_of(t), &(struct pd_transfer){ .receive = true, .peer = peer, .tag = tag,
							  .buf = buf, .bytes = bytes, .after = after,
							  .done = done });
}

/* ---- progress ---- */

static void came(void *tcp, size_t guest, int fd)
{
	struct tcp *u = tcp;

	tcp_in_came(u->in[u->guests[guest]], fd);
}

static void handle(struct tcp *u, const struct epoll_event *event)
{
	struct tcp_end *end = event->data.ptr;

	if (!end)
		pd_door_look(u->door, came, u);
	else if (end->incoming)
		tcp_in_handle(pd_container(end, struct tcp_in, end), event->events);
	else
		tcp_out_handle(pd_container(end, struct tcp_out, end), event->events);
}

static int tcp_progress(struct pd_transport *t)
{
	struct tcp *u = tcp_of(t);
	struct epoll_event events[EVENTS];
	int n = pd_transfers_post_ready(&u->transfers);
	int here = u->out && !u->transfers.broken ? epoll_wait(u->events, events, EVENTS, 0) : 0;

	for (int i = 0; i < here && !u->transfers.broken; i++)
		handle(u, &events[i]);
	return u->transfers.broken ? -1 : n + (here > 0 ? here : 0);
}

static int tcp_fd(struct pd_transport *t)
{
	return tcp_of(t)->events;
}

/* Whatever happens at a descriptor stays to be seen there. */
static int tcp_arm(struct pd_transport *t)
{
	const struct tcp *u = tcp_of(t);

	return u->transfers.broken || pd_transfers_ready(&u->transfers);
}

/* ---- connections ---- */

static void tcp_address(struct pd_transport *t, const void **bytes_p, size_t *length_p)
{
	*bytes_p = tcp_of(t)->address;
	*length_p = tcp_of(t)->address_bytes;
}

static const struct tcp_guest *guest_in(const struct tcp_address *address, int rank)
{
	for (uint32_t i = 0; i < address->guests; i++)
		if (address->guest[i].rank == rank)
			return &address->guest[i];
	return NULL;
}

static void make_ends(struct tcp *u, int r)
{
	struct tcp_out *o = u->out[r] = pd_zalloc(sizeof(*o));
	struct tcp_in *i = u->in[r] = pd_zalloc(sizeof(*i));

	o->end = (struct tcp_end){ .owner = u, .peer = r, .fd = -1 };
	i->end = (struct tcp_end){ .owner = u, .peer = r, .fd = -1, .incoming = true };
	tcp_out_init(o);
}

static int connect_one(struct tcp *u, int r, const void *bytes, size_t length, struct pd_error *err)
{
	struct tcp_address *address = pd_memdup(bytes, length);
	const struct tcp_guest *self = guest_in(address, u->transfers.rank);
	struct tcp_out *o;

	make_ends(u, r);
	o = u->out[r];
	memcpy(o->at, address->at, sizeof(o->at));
	o->port = address->port;
	if (self)
		o->words = self->words;
	free(address);
	if (!self)
		return pd_error_peer(err, r, "rank %d: rank %d does not expect it", u->transfers.rank, r);
	tcp_out_begin(o);
	return u->transfers.broken ? pd_gate_failed(u->transfers.gate, err, "transport") : 0;
}

static int tcp_connect(struct pd_transport *t, const void *const *addresses, const size_t *lengths,
		       struct pd_error *err)
{
	struct tcp *u = tcp_of(t);
	int status = 0;

	u->out = pd_calloc((size_t)u->ranks, sizeof(struct tcp_out *));
	u->in = pd_calloc((size_t)u->ranks, sizeof(struct tcp_in *));
	for (size_t g = 0; g < u->guest_count; g++)
		if (!addresses[u->guests[g]])
			pd_door_forget(u->door, g);
	for (int r = 0; r < u->ranks && status == 0; r++)
		if (addresses[r])
			status = connect_one(u, r, addresses[r], lengths[r], err);
	return status;
}

/* ---- the end ---- */

/*
 * What was sent is on its way when this process has closed, unless something is here that it has not read:
 * a grant for what is not sent any more has the kernel drop the rest.
 */
static void flush(struct tcp *u)
{
	int64_t end_ns = pd_now_ns() + FLUSH_NS;
	bool left = true;

	while (left && pd_now_ns() < end_ns) {
		left = false;
		for (int r = 0; u->out && r < u->ranks; r++) {
			int unsent = 0;

			if (u->out[r] && u->out[r]->end.fd >= 0)
				ioctl(u->out[r]->end.fd, SIOCOUTQ, &unsent);
			left |= unsent > 0;
		}
		if (left)
			poll(NULL, 0, 1);
	}
}

static void tcp_cancel(struct pd_transport *t)
{
	struct tcp *u = tcp_of(t);

	if (u->transfers.closing)
		return;
	u->transfers.closing = true;
	u->unfinished = u->table.count > 0;
	pd_transfers_cancel_waiting(&u->transfers);
	tcp_fail_all(u, -1, "cancelled");
	if (u->unfinished && !u->transfers.broken)
		flush(u);
}

static void tcp_close(struct pd_transport *t)
{
	struct tcp *u = tcp_of(t);

	tcp_cancel(t);
	for (int r = 0; u->in && r < u->ranks; r++) {
		if (!u->in[r])
			continue;
		tcp_end_close(&u->out[r]->end);
		tcp_end_close(&u->in[r]->end);
		free(u->in[r]->grants);
		free(u->in[r]);
		free(u->out[r]);
	}
	pd_door_close(u->door);
	if (u->events >= 0)
		close(u->events);
	pd_transfers_release(&u->transfers);
	free(u->table.buckets);
	free(u->address);
	free(u->guests);
	free(u->in);
	free(u->out);
	free(u);
}

/* ---- the beginning ---- */

static void write_address(struct tcp *u, const char *at, int port)
{
	struct tcp_address *address;

	u->address_bytes = sizeof(*address) + u->guest_count * sizeof(struct tcp_guest);
	u->address = address = pd_zalloc(u->address_bytes);
	memcpy(address->at, at, strlen(at));
	address->port = port;
	address->guests = (uint32_t)u->guest_count;
	for (size_t g = 0; g < u->guest_count; g++)
		address->guest[g] = (struct tcp_guest){ .rank = u->guests[g],
						    .words = *pd_door_words(u->door, g) };
}

static int start(struct tcp *u, const struct pd_transport_config *config, struct pd_error *err)
{
	bool has_address = config->seat && config->seat->address[0];
	const char *at = has_address ? config->seat->address : PD_LOOPBACK;
	struct epoll_event at_door = { .events = EPOLLIN };
	int port;

	u->guests = pd_calloc((size_t)u->ranks, sizeof(*u->guests));
	for (int r = 0; r < u->ranks; r++)
		if (!config->peers || config->peers[r])
			u->guests[u->guest_count++] = r;
	u->events = epoll_create1(EPOLL_CLOEXEC);
	if (u->events < 0)
		return pd_error_failed(err, "epoll: %s", strerror(errno));
	u->door = pd_door_open(u->guest_count, err);
	if (!u->door || (port = pd_door_listen(u->door, at, err)) < 0)
		return -1;
	epoll_ctl(u->events, EPOLL_CTL_ADD, pd_door_fd(u->door), &at_door);
	write_address(u, at, port);
	return 0;
}

static const struct pd_transport_ops tcp_ops = {
	.close = tcp_close,
	.send = tcp_send,
	.recv = tcp_recv,
	.progress = tcp_progress,
	.fd = tcp_fd,
	.arm = tcp_arm,
};

static struct pd_transport *tcp_open(const struct pd_transport_config *config, struct pd_error *err)
{
	struct tcp *u = pd_zalloc(sizeof(*u));

	u->base.ops = &tcp_ops;
	u->ranks = config->ranks;
	u->events = -1;
	u->transfers = (struct pd_transfers){ .rank = config->rank, .gate = config->gate, .post = post };
	pd_transfers_init(&u->transfers);
	pd_ring_init(&u->posted);
	if (start(u, config, err) == 0)
		return &u->base;
	tcp_close(&u->base);
	return NULL;
}

/* Other hosts, and where it is asked for this one, too. */
static bool tcp_reaches(const struct pd_transport_end *self, const struct pd_transport_end *peer,
			bool asked)
{
	return asked || (self->seat.hosts > 1 && !pd_seat_beside(&self->seat, &peer->seat));
}

static const struct pd_connector connector = {
	.address = tcp_address,
	.connect = tcp_connect,
	.cancel = tcp_cancel,
};

const struct pd_transport_provider pd_provider_tcp = {
	.name = "tcp",
	.connector = &connector,
	.reaches = tcp_reaches,
	.open = tcp_open,
};
