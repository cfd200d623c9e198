/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transfers by UCX (UCP tag matching): on one host through shared memory, without a network port;
 * between hosts by InfiniBand or RoCE, where both have it, and by UCX's TCP where it is asked for.
 *
 * What UCX is told, and why (a variable UCX_... that is set in the environment wins):
 *
 * TLS=posix,cma,self.  Messages up to 8 KiB go through a receive queue in shared memory
 *   (posix); the bytes of larger ones are read by the receiver straight out of the sender's
 *   memory (cma: process_vm_readv, 512 KiB for every progress()).  Of the queue's owner UCX
 *   can be woken: before it sleeps it marks its queue, and the next sender that finds the
 *   mark sends a datagram to a Unix socket, which is behind fd().  All that another process
 *   can make happen arrives through that queue, the requests of rendezvous and their
 *   acknowledgements included, and a process that is copying cannot arm; so nothing is
 *   missed and nobody polls.  The one time when arm() stays 1 for long is when a peer does
 *   not empty its queue of 64 messages.
 * sysv is left out: a segment has a number until it is removed, and a process killed before
 *   that leaves it behind for good.  posix memory has no name at all (shm_memfd.h).
 * RNDV_THRESH=8000: one message in the queue is at most one element, so that a sender does
 *   not have to wait for the receiver in the middle of one.
 * RCACHE_ENABLE=n: nothing here needs memory to be registered; without it UCX does not
 *   replace malloc and mmap of the process.
 * LOG_LEVEL=fatal: failures are told in our words, once.
 * With several hosts, TLS has ib, too, where this one has a port of it, and tcp where UCX is asked for;
 *   and MAX_RNDV_LANES=1 keeps a message of one host from going half by its network.  UCX's TCP listens
 *   for as long as the run takes, and whoever reaches that port can write into this process's memory.
 * NET_DEVICES=the interface that leads to the other hosts, where UCX is asked for and there is no
 *   InfiniBand: data takes the way that the channel takes, on its one rail.
 *
 * Endpoints of one host are without UCX's own error handling, which would have to do without cma: a
 * peer that died is noticed by whoever started it.  Until then transfers with it stay
 * pending, or fail (peer_lost); close() works at any time.  Between hosts there is no cma, and UCX
 * says of a connection that it has ended; of one that goes silent it says nothing for minutes.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "run/socket/socket.h"
#include "run/transport/provider.h"
#include "run/transport/ucx/shm_memfd.h"
#include "run/transport/ucx/transfer.h"

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/debug.h>

#define FLUSH_NS INT64_C(1000000000)
#define ROOM ((size_t)48 << 20)         /* memory to start with: UCX crashes where it gets none */
#define MAX_RANKS (1 << (64 - PD_TRANSPORT_TAG_BITS))

static void give_back(int signal)
{
	struct sigaction action;

	if (sigaction(signal, NULL, &action) == 0 && action.sa_handler != SIG_DFL &&
	    action.sa_handler != SIG_IGN)
		ucs_debug_disable_signal(signal);
}

/*
 * As soon as it is loaded, UCX handles SIGHUP by turning on its log, so that a program with this
 * transport would outlive its terminal.  It also handles the signals of a crash and prints a
 * backtrace that names libraries but no cause.  Both handlers are removed here, unless
 * UCX_HANDLE_ERRORS is set; before main() nobody else has installed a handler.
 */
__attribute__((constructor))
static void give_back_signals(void)
{
	static const int failures[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};

	give_back(SIGHUP);
	if (getenv("UCX_HANDLE_ERRORS"))
		return;
	ucs_global_opts_set_value("HANDLE_ERRORS", "none");
	for (size_t i = 0; i < PD_COUNT(failures); i++)
		give_back(failures[i]);
}

static int ucx_send(struct pd_transport *t, int peer, uint64_t tag, const void *buf, size_t bytes,
		    const struct pd_event *after, struct pd_event *done)
{
	return pd_ucx_transfer((struct ucx *)t, &(struct pd_transfer){
		.peer = peer, .tag = tag, .buf = (void *)buf, .bytes = bytes, .after = after,
		.done = done });
}

static int ucx_recv(struct pd_transport *t, int peer, uint64_t tag, void *buf, size_t bytes,
		    const struct pd_event *after, struct pd_event *done)
{
	return pd_ucx_transfer((struct ucx *)t, &(struct pd_transfer){
		.receive = true, .peer = peer, .tag = tag, .buf = buf, .bytes = bytes, .after = after,
		.done = done });
}

static int ucx_progress(struct pd_transport *t)
{
	struct ucx *u = (struct ucx *)t;
	int n = pd_transfers_post_ready(&u->transfers);

	n += (int)ucp_worker_progress(u->worker);
	return u->transfers.broken ? -1 : n;
}

static int ucx_fd(struct pd_transport *t)
{
	return ((struct ucx *)t)->fd;
}

static int ucx_arm(struct pd_transport *t)
{
	struct ucx *u = (struct ucx *)t;
	struct pd_error err;
	ucs_status_t status;

	if (u->transfers.broken || pd_transfers_ready(&u->transfers))
		return 1;
	status = ucp_worker_arm(u->worker);
	if (status != UCS_OK && status != UCS_ERR_BUSY) {
		pd_error_failed(&err, "rank %d: UCX cannot wait: %s", u->transfers.rank,
				ucs_status_string(status));
		pd_transfers_give_up(&u->transfers, &err);
	}
	return status != UCS_OK;
}

static void ucx_address(struct pd_transport *t, const void **bytes_p, size_t *length_p)
{
	struct ucx *u = (struct ucx *)t;

	*bytes_p = u->address;
	*length_p = u->address_length;
}

/* UCX reports that a peer is gone.  Without a handler UCX would abort the process. */
static void peer_lost(void *transport, ucp_ep_h endpoint, ucs_status_t status)
{
	struct ucx *u = transport;
	struct pd_error err;

	for (int r = 0; r < u->ranks; r++)
		if ((u->peers[r] == endpoint || u->answers[r] == endpoint) && !u->transfers.broken) {
			pd_error_peer(&err, r, "rank %d: lost rank %d: %s", u->transfers.rank, r,
				      ucs_status_string(status));
			pd_transfers_give_up(&u->transfers, &err);
		}
}

/*
 * Makes the endpoint over which this rank sends.  The host comes first in an address, and so does
 * whether there is error handling.  By a network there is another endpoint, over which the peer
 * sends: endpoints of two ranks belong together, and share a connection, in the order in which they
 * are made.  Over one connection an answer to what comes would wait behind all that leaves, so that
 * large messages would not go both ways at once.
 */
static ucs_status_t connect_one(struct ucx *u, int r, const char *address)
{
	bool beside = strncmp(address, u->host, sizeof(u->host)) == 0;
	ucp_ep_params_t params = {
		.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
			      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
			      UCP_EP_PARAM_FIELD_ERR_HANDLER,
		.address = (const ucp_address_t *)(address + sizeof(u->host)),
		.err_mode = beside ? UCP_ERR_HANDLING_MODE_NONE : UCP_ERR_HANDLING_MODE_PEER,
		.err_handler = {.cb = peer_lost, .arg = u},
	};
	ucs_status_t status = ucp_ep_create(u->worker, &params, &u->peers[r]);

	if (status != UCS_OK || beside)
		return status;
	u->answers[r] = u->peers[r];
	return ucp_ep_create(u->worker, &params, u->transfers.rank < r ? &u->answers[r] : &u->peers[r]);
}

static int ucx_connect(struct pd_transport *t, const void *const *addresses, const size_t *lengths,
		       struct pd_error *err)
{
	struct ucx *u = (struct ucx *)t;

	pd_mem_expect(ROOM);
	u->peers = pd_calloc(2 * (size_t)u->ranks, sizeof(*u->peers));
	u->answers = u->peers + u->ranks;
	for (int r = 0; r < u->ranks; r++) {
		ucs_status_t status = addresses[r] ? connect_one(u, r, addresses[r]) : UCS_OK;

		if (status != UCS_OK)
			return pd_error_peer(err, r, "rank %d: UCX cannot reach rank %d: %s",
					     u->transfers.rank, r, ucs_status_string(status));
	}
	return 0;
}

/*
 * A receive may not be acknowledged yet, because the peer's queue is full; the peer's send would
 * then never end.  UCX's flush does not wait for such acknowledgements, but UCX cannot be armed
 * while something has to be sent.  The queue of a dead peer stays full, so there is a time limit.
 */
static void flush(struct ucx *u)
{
	int64_t end_ns = pd_now_ns() + FLUSH_NS;

	while (!u->transfers.broken && pd_now_ns() < end_ns) {
		if (ucp_worker_progress(u->worker) > 0)
			continue;
		if (ucp_worker_arm(u->worker) != UCS_ERR_BUSY)
			break;
		poll(NULL, 0, 1);
	}
}

static void ucx_cancel(struct pd_transport *t)
{
	struct ucx *u = (struct ucx *)t;

	if (u->transfers.closing)
		return;
	pd_ucx_cancel_all(u);
	if (u->peers && !u->transfers.broken)
		flush(u);
}

/*
 * Between hosts those stay until the process ends that are closed in the middle of something.  UCX may
 * still hold requests of an endpoint, of a rendezvous that was cancelled or whose peer is lost, and
 * aborts the process that destroys it.
 */
static struct ucx *_Atomic left;

static void leave(struct ucx *u)
{
	u->next_left = atomic_load(&left);
	while (!atomic_compare_exchange_weak(&left, &u->next_left, u))
		;
}

static void ucx_close(struct pd_transport *t)
{
	struct ucx *u = (struct ucx *)t;

	if (!u)
		return;
	ucx_cancel(t);
	if (u->networks && (u->transfers.broken || u->unfinished)) {
		leave(u);
		return;
	}
	free(u->address);
	/* ends the endpoints too, without asking the peers, which may be dead */
	if (u->worker)
		ucp_worker_destroy(u->worker);
	if (u->context)
		ucp_cleanup(u->context);
	pd_transfers_release(&u->transfers);
	free(u->peers);
	free(u);
}

static ucs_status_t set(ucp_config_t *config, const char *name, const char *value)
{
	char variable[64];

	snprintf(variable, sizeof(variable), "UCX_%s", name);
	return getenv(variable) ? UCS_OK : ucp_config_modify(config, name, value);
}

static ucs_status_t configure(const struct ucx *u, ucp_config_t *config)
{
	bool ib = u->networks && (u->fabrics.infiniband || u->fabrics.roce);
	const char *const settings[][2] = {
		{"TLS", !u->networks ? "posix,cma,self" : !ib ? "posix,cma,self,tcp"
			: u->asked ? "posix,cma,self,ib,tcp" : "posix,cma,self,ib"},
		{"RNDV_THRESH", "8000"},
		/* UCX makes room for so many messages at a time, and writes all of it; its own is 512. */
		{"MM_RX_BUFS_GROW", "128"},
		{"RCACHE_ENABLE", ib ? NULL : "n"},
		{"LOG_LEVEL", "fatal"},
		{"MAX_RNDV_LANES", u->networks ? "1" : NULL},
		{"NET_DEVICES", u->interface[0] && !ib ? u->interface : NULL},
	};
	ucs_status_t status = UCS_OK;

	for (size_t i = 0; i < PD_COUNT(settings) && status == UCS_OK; i++)
		if (settings[i][1])
			status = set(config, settings[i][0], settings[i][1]);
	return status;
}

static ucs_status_t make_address(struct ucx *u)
{
	ucp_address_t *own;
	size_t length;
	ucs_status_t status = ucp_worker_get_address(u->worker, &own, &length);

	if (status != UCS_OK)
		return status;
	u->address_length = sizeof(u->host) + length;
	u->address = pd_zalloc(u->address_length);
	memcpy(u->address, u->host, sizeof(u->host));
	memcpy(u->address + sizeof(u->host), own, length);
	ucp_worker_release_address(u->worker, own);
	return UCS_OK;
}

static ucs_status_t start(struct ucx *u)
{
	ucp_params_t params = {
		.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
		.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP,
		.estimated_num_eps = (size_t)u->ranks,
	};
	ucp_worker_params_t worker_params = {
		.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
		.thread_mode = UCS_THREAD_MODE_SERIALIZED,
	};
	ucp_config_t *config;
	ucs_status_t status;

	pd_mem_expect(ROOM);
	pd_ucx_shm_memfd();
	status = ucp_config_read(NULL, NULL, &config);
	if (status != UCS_OK)
		return status;
	status = configure(u, config);
	if (status == UCS_OK)
		status = ucp_init(&params, config, &u->context);
	ucp_config_release(config);
	if (status == UCS_OK)
		status = ucp_worker_create(u->context, &worker_params, &u->worker);
	if (status == UCS_OK)
		status = make_address(u);
	if (status == UCS_OK)
		status = ucp_worker_get_efd(u->worker, &u->fd);
	return status;
}

/* Finds the networks by which other hosts are reached, where there are any. */
static void sit(struct ucx *u, const struct pd_seat *seat, bool asked)
{
	memcpy(u->host, seat->host, sizeof(u->host));
	if (seat->hosts <= 1)
		return;
	u->asked = asked;
	u->fabrics = pd_ucx_fabrics();
	u->networks = asked || u->fabrics.infiniband || u->fabrics.roce;
	if (asked)
		pd_socket_interface(seat->address, u->interface);
}

static struct pd_transport *ucx_open(const struct pd_transport_config *config, struct pd_error *err)
{
	struct ucx *u;
	ucs_status_t status;

	if (config->ranks < 1 || config->ranks > MAX_RANKS ||
	    config->rank < 0 || config->rank >= config->ranks) {
		pd_error_input(err, "rank %d of %d: expected 1 to %d ranks", config->rank,
			       config->ranks, MAX_RANKS);
		return NULL;
	}
	u = pd_zalloc(sizeof(*u));
	u->base.ops = &pd_transport_ucx;
	u->ranks = config->ranks;
	pd_ucx_transfers_init(u, config->rank, config->gate);
	if (config->seat)
		sit(u, config->seat, config->asked);
	status = start(u);
	if (status != UCS_OK) {
		pd_error_failed(err, "rank %d: UCX cannot start: %s", config->rank,
				ucs_status_string(status));
		ucx_close(&u->base);
		return NULL;
	}
	return &u->base;
}

const struct pd_transport_ops pd_transport_ucx = {
	.close = ucx_close,
	.send = ucx_send,
	.recv = ucx_recv,
	.progress = ucx_progress,
	.fd = ucx_fd,
	.arm = ucx_arm,
};

static void *ucx_offer(const struct pd_transport_config *config, size_t *bytes_p, struct pd_error *err)
{
	struct pd_ucx_fabrics fabrics = pd_ucx_fabrics();

	*bytes_p = sizeof(fabrics);
	return pd_memdup(&fabrics, sizeof(fabrics));
}

static bool have_fabric(const struct pd_transport_end *self, const struct pd_transport_end *peer)
{
	const struct pd_ucx_fabrics *a = self->offer, *b = peer->offer;

	return a && b && ((a->infiniband && b->infiniband) || (a->roce && b->roce));
}

/* Through shared memory, or by a network, which is UCX's TCP only where it is asked for. */
static bool ucx_reaches(const struct pd_transport_end *self, const struct pd_transport_end *peer,
			bool asked)
{
	return pd_seat_beside(&self->seat, &peer->seat) ||
	       (self->seat.hosts > 1 && (asked || have_fabric(self, peer)));
}

static const struct pd_connector connector = {
	.address = ucx_address,
	.connect = ucx_connect,
	.cancel = ucx_cancel,
};

const struct pd_transport_provider pd_provider_ucx = {
	.name = "ucx",
	.connector = &connector,
	.offer = ucx_offer,
	.reaches = ucx_reaches,
	.open = ucx_open,
};
