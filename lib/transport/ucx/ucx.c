/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transfers by UCX (UCP tag matching), on one machine: shared memory, no network port.
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
 *   that leaves it behind for good.  posix memory has no name at all (nameless.h).
 * RNDV_THRESH=8000: one message in the queue is at most one element, so that a sender does
 *   not have to wait for the receiver in the middle of one.
 * RCACHE_ENABLE=n: nothing here needs memory to be registered; without it UCX does not
 *   replace malloc and mmap of the process.
 * LOG_LEVEL=fatal: failures are told in our words, once.
 *
 * Endpoints are without UCX's own error handling, which would have to do without cma: a
 * peer that died is noticed by whoever started it.  Until then transfers with it stay
 * pending, or fail (peer_lost); close() works at any time.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "transport/transport.h"
#include "transport/ucx/nameless.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

#define CHUNK 64
#define MAX_RANKS (1 << (64 - PD_TRANSPORT_TAG_BITS))

struct transfer {
	struct transfer *next, *prev;   /* in one of the lists */
	struct ucx *owner;
	bool receive;
	int peer;
	uint64_t tag;
	void *buf;
	size_t bytes;
	const struct pd_event *after;
	struct pd_event *done;
	int64_t start_ns;
	void *request;
};

struct chunk {
	struct chunk *next;
	struct transfer transfers[CHUNK];
};

struct ucx {
	struct pd_transport base;
	int rank, ranks;
	struct pd_gate *gate;
	ucp_context_h context;
	ucp_worker_h worker;
	ucp_address_t *address;
	size_t address_length;
	ucp_ep_h *peers;
	int fd;
	bool broken, closing;
	struct chunk *chunks;
	/* heads of rings: not in use; waiting for `after`, in order; given to UCX */
	struct transfer idle, waiting, posted;
};

static void ring_init(struct transfer *head)
{
	head->next = head->prev = head;
}

static void ring_append(struct transfer *head, struct transfer *x)
{
	x->next = head;
	x->prev = head->prev;
	head->prev->next = x;
	head->prev = x;
}

static void ring_remove(struct transfer *x)
{
	x->prev->next = x->next;
	x->next->prev = x->prev;
}

static struct transfer *transfer_get(struct ucx *u)
{
	struct transfer *x;

	if (u->idle.next == &u->idle) {
		struct chunk *chunk = pd_zalloc(sizeof(*chunk));

		chunk->next = u->chunks;
		u->chunks = chunk;
		for (int i = 0; i < CHUNK; i++)
			ring_append(&u->idle, &chunk->transfers[i]);
	}
	x = u->idle.prev;
	ring_remove(x);
	return x;
}

static void describe(const struct transfer *x, char *text, size_t size)
{
	snprintf(text, size, "%s of %zu bytes %s rank %d (tag %#llx)",
		 x->receive ? "receive" : "send", x->bytes, x->receive ? "from" : "to", x->peer,
		 (unsigned long long)x->tag);
}

/* Takes x, which is in no list, to its end. */
static void finish(struct transfer *x)
{
	struct ucx *u = x->owner;

	pd_event_complete(x->done, x->start_ns, pd_now_ns(), u->gate);
	ring_append(&u->idle, x);
}

static void fail(struct transfer *x, const char *why)
{
	struct ucx *u = x->owner;
	struct pd_error err;
	char what[128];

	describe(x, what, sizeof(what));
	pd_error_failed(&err, "rank %d: %s: %s", u->rank, what, why);
	pd_event_fail(x->done, &err, u->gate);
	ring_append(&u->idle, x);
}

static void settle(struct transfer *x, ucs_status_t status, size_t length)
{
	char why[64];

	if (x->owner->closing)
		return;
	ring_remove(x);
	if (status == UCS_OK && length == x->bytes) {
		finish(x);
		return;
	}
	x->owner->broken = true;
	if (status == UCS_OK)
		snprintf(why, sizeof(why), "%zu bytes arrived", length);
	else
		snprintf(why, sizeof(why), "%s", ucs_status_string(status));
	fail(x, why);
}

static void sent(void *request, ucs_status_t status, void *transfer)
{
	struct transfer *x = transfer;

	ucp_request_free(request);
	settle(x, status, x->bytes);
}

static void received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
		     void *transfer)
{
	/* what info says counts only without an error */
	size_t length = status == UCS_OK ? info->length : 0;

	ucp_request_free(request);
	settle(transfer, status, length);
}

/* Gives x, which is in no list, to UCX. */
static void post(struct transfer *x)
{
	struct ucx *u = x->owner;
	ucp_tag_recv_info_t info = {.length = x->bytes};
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
				UCP_OP_ATTR_FIELD_MEMORY_TYPE,
		.user_data = x,
		.memory_type = UCS_MEMORY_TYPE_HOST,
	};
	int sender = x->receive ? x->peer : u->rank;
	uint64_t tag = (uint64_t)sender << PD_TRANSPORT_TAG_BITS | x->tag;
	ucs_status_ptr_t request;

	ring_append(&u->posted, x);
	x->start_ns = pd_now_ns();
	if (x->receive) {
		param.op_attr_mask |= UCP_OP_ATTR_FIELD_RECV_INFO;
		param.recv_info.tag_info = &info;
		param.cb.recv = received;
		request = ucp_tag_recv_nbx(u->worker, x->buf, x->bytes, tag, UINT64_MAX, &param);
	} else {
		param.cb.send = sent;
		request = ucp_tag_send_nbx(u->peers[x->peer], x->buf, x->bytes, tag, &param);
	}
	/* finished (or failed) on the spot: UCX does not call back */
	if (!UCS_PTR_IS_PTR(request))
		settle(x, UCS_PTR_STATUS(request), x->receive ? info.length : x->bytes);
	else
		x->request = request;
}

/* Starts, in order, those whose `after` is done; returns how many. */
static int post_ready(struct ucx *u)
{
	struct transfer *x, *next;
	int n = 0;

	for (x = u->waiting.next; x != &u->waiting; x = next) {
		next = x->next;
		if (!pd_event_done(x->after))
			continue;
		ring_remove(x);
		if (pd_event_failed(x->after))
			fail(x, "what it waited for failed");
		else
			post(x);
		n++;
	}
	return n;
}

static int ucx_transfer(struct ucx *u, bool receive, int peer, uint64_t tag, void *buf,
			size_t bytes, const struct pd_event *after, struct pd_event *done)
{
	struct transfer *x;

	if (peer < 0 || peer >= u->ranks || !u->peers || tag >> PD_TRANSPORT_TAG_BITS)
		pd_bug("rank %d: transfer with rank %d (of %d%s), tag %#llx", u->rank, peer,
		       u->ranks, u->peers ? "" : ", not connected", (unsigned long long)tag);
	x = transfer_get(u);
	*x = (struct transfer){
		.owner = u, .receive = receive, .peer = peer, .tag = tag, .buf = buf,
		.bytes = bytes, .after = after, .done = done,
	};
	if (after)
		ring_append(&u->waiting, x);
	if (!after)
		post(x);
	else if (pd_event_done(after))
		post_ready(u);
	return u->broken ? -1 : 0;
}

static int ucx_send(struct pd_transport *t, int peer, uint64_t tag, const void *buf, size_t bytes,
		    const struct pd_event *after, struct pd_event *done)
{
	return ucx_transfer((struct ucx *)t, false, peer, tag, (void *)buf, bytes, after, done);
}

static int ucx_recv(struct pd_transport *t, int peer, uint64_t tag, void *buf, size_t bytes,
		    const struct pd_event *after, struct pd_event *done)
{
	return ucx_transfer((struct ucx *)t, true, peer, tag, buf, bytes, after, done);
}

static int ucx_progress(struct pd_transport *t)
{
	struct ucx *u = (struct ucx *)t;
	int n = post_ready(u);

	n += (int)ucp_worker_progress(u->worker);
	return u->broken ? -1 : n;
}

static int ucx_fd(struct pd_transport *t)
{
	return ((struct ucx *)t)->fd;
}

__attribute__((format(printf, 2, 3)))
static void give_up(struct ucx *u, const char *fmt, ...)
{
	struct pd_event none = {.state = PD_EVENT_PENDING};
	struct pd_error err;
	va_list ap;

	err.status = PD_EXIT_FAILED;
	va_start(ap, fmt);
	vsnprintf(err.text, sizeof(err.text), fmt, ap);
	va_end(ap);
	pd_error_prefix(&err, "rank %d", u->rank);
	pd_event_fail(&none, &err, u->gate);
	u->broken = true;
}

static int ucx_arm(struct pd_transport *t)
{
	struct ucx *u = (struct ucx *)t;
	ucs_status_t status;

	if (u->broken)
		return 1;
	for (struct transfer *x = u->waiting.next; x != &u->waiting; x = x->next)
		if (pd_event_done(x->after))
			return 1;
	status = ucp_worker_arm(u->worker);
	if (status != UCS_OK && status != UCS_ERR_BUSY)
		give_up(u, "UCX cannot wait: %s", ucs_status_string(status));
	return status != UCS_OK;
}

static void ucx_address(struct pd_transport *t, const void **bytes_p, size_t *length_p)
{
	struct ucx *u = (struct ucx *)t;

	*bytes_p = u->address;
	*length_p = u->address_length;
}

/* UCX found out that a peer is gone.  Having this keeps UCX from aborting the process. */
static void peer_lost(void *transport, ucp_ep_h endpoint, ucs_status_t status)
{
	struct ucx *u = transport;

	for (int r = 0; r < u->ranks; r++)
		if (u->peers[r] == endpoint && !u->broken)
			give_up(u, "lost rank %d: %s", r, ucs_status_string(status));
}

static int ucx_connect(struct pd_transport *t, const void *const *addresses, const size_t *lengths,
		       struct pd_error *err)
{
	struct ucx *u = (struct ucx *)t;

	u->peers = pd_calloc((size_t)u->ranks, sizeof(*u->peers));
	for (int r = 0; r < u->ranks; r++) {
		ucp_ep_params_t params = {
			.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
				      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
				      UCP_EP_PARAM_FIELD_ERR_HANDLER,
			.address = addresses[r],
			.err_mode = UCP_ERR_HANDLING_MODE_NONE,
			.err_handler = {.cb = peer_lost, .arg = u},
		};
		ucs_status_t status = ucp_ep_create(u->worker, &params, &u->peers[r]);

		if (status != UCS_OK)
			return pd_error_failed(err, "rank %d: UCX cannot reach rank %d through "
					       "shared memory: %s", u->rank, r,
					       ucs_status_string(status));
	}
	return 0;
}

/* Cancels what is not finished. */
static void cancel_all(struct ucx *u)
{
	struct transfer *x;

	u->closing = true;
	while ((x = u->waiting.next) != &u->waiting) {
		ring_remove(x);
		fail(x, "cancelled");
	}
	while ((x = u->posted.next) != &u->posted) {
		ring_remove(x);
		ucp_request_cancel(u->worker, x->request);
		fail(x, "cancelled");
	}
}

static void ucx_close(struct pd_transport *t)
{
	struct ucx *u = (struct ucx *)t;

	if (!u)
		return;
	cancel_all(u);
	if (u->address)
		ucp_worker_release_address(u->worker, u->address);
	/* ends the endpoints too, without asking the peers, which may be dead */
	if (u->worker)
		ucp_worker_destroy(u->worker);
	if (u->context)
		ucp_cleanup(u->context);
	while (u->chunks) {
		struct chunk *chunk = u->chunks;

		u->chunks = chunk->next;
		free(chunk);
	}
	free(u->peers);
	free(u);
}

static ucs_status_t configure(ucp_config_t *config)
{
	static const char *const settings[][2] = {
		{"TLS", "posix,cma,self"},
		{"RNDV_THRESH", "8000"},
		{"RCACHE_ENABLE", "n"},
		{"LOG_LEVEL", "fatal"},
	};

	for (size_t i = 0; i < PD_COUNT(settings); i++) {
		char variable[64];
		ucs_status_t status = UCS_OK;

		snprintf(variable, sizeof(variable), "UCX_%s", settings[i][0]);
		if (!getenv(variable))
			status = ucp_config_modify(config, settings[i][0], settings[i][1]);
		if (status != UCS_OK)
			return status;
	}
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

	pd_ucx_nameless();
	status = ucp_config_read(NULL, NULL, &config);
	if (status != UCS_OK)
		return status;
	status = configure(config);
	if (status == UCS_OK)
		status = ucp_init(&params, config, &u->context);
	ucp_config_release(config);
	if (status == UCS_OK)
		status = ucp_worker_create(u->context, &worker_params, &u->worker);
	if (status == UCS_OK)
		status = ucp_worker_get_address(u->worker, &u->address, &u->address_length);
	if (status == UCS_OK)
		status = ucp_worker_get_efd(u->worker, &u->fd);
	return status;
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
	u->rank = config->rank;
	u->ranks = config->ranks;
	u->gate = config->gate;
	ring_init(&u->idle);
	ring_init(&u->waiting);
	ring_init(&u->posted);
	status = start(u);
	if (status != UCS_OK) {
		pd_error_failed(err, "rank %d: UCX cannot start: %s", u->rank,
				ucs_status_string(status));
		ucx_close(&u->base);
		return NULL;
	}
	return &u->base;
}

const struct pd_transport_ops pd_transport_ucx = {
	.name = "ucx",
	.open = ucx_open,
	.close = ucx_close,
	.address = ucx_address,
	.connect = ucx_connect,
	.send = ucx_send,
	.recv = ucx_recv,
	.progress = ucx_progress,
	.fd = ucx_fd,
	.arm = ucx_arm,
};
