/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ucx/transfer.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>

#define CHUNK 64

struct chunk {                          /* transfers are allocated in chunks */
	struct chunk *next;
	struct ucx_transfer transfers[CHUNK];
};

static void ring_init(struct ucx_transfer *head)
{
	head->next = head->prev = head;
}

static void ring_append(struct ucx_transfer *head, struct ucx_transfer *x)
{
	x->next = head;
	x->prev = head->prev;
	head->prev->next = x;
	head->prev = x;
}

static void ring_remove(struct ucx_transfer *x)
{
	x->prev->next = x->next;
	x->next->prev = x->prev;
}

void pd_ucx_transfers_init(struct ucx *u)
{
	ring_init(&u->idle);
	ring_init(&u->waiting);
	ring_init(&u->posted);
}

void pd_ucx_transfers_release(struct ucx *u)
{
	while (u->chunks) {
		struct chunk *chunk = u->chunks;

		u->chunks = chunk->next;
		free(chunk);
	}
}

static struct ucx_transfer *transfer_get(struct ucx *u)
{
	struct ucx_transfer *x;

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

static void describe(const struct ucx_transfer *x, char *text, size_t size)
{
	snprintf(text, size, "%s of %zu bytes %s rank %d (tag %#llx)",
		 x->receive ? "receive" : "send", x->bytes, x->receive ? "from" : "to", x->peer,
		 (unsigned long long)x->tag);
}

/* Completes x, which is in no list. */
static void finish(struct ucx_transfer *x)
{
	struct ucx *u = x->owner;

	pd_event_complete(x->done, x->start_ns, pd_now_ns(), u->gate);
	ring_append(&u->idle, x);
}

static void fail(struct ucx_transfer *x, const char *why)
{
	struct ucx *u = x->owner;
	struct pd_error err;
	char what[128];

	describe(x, what, sizeof(what));
	pd_error_peer(&err, x->peer, "rank %d: %s: %s", u->rank, what, why);
	pd_event_fail(x->done, &err, u->gate);
	ring_append(&u->idle, x);
}

static void settle(struct ucx_transfer *x, ucs_status_t status, size_t length)
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
	struct ucx_transfer *x = transfer;

	ucp_request_free(request);
	settle(x, status, x->bytes);
}

static void received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
		     void *transfer)
{
	/* the length in info is valid only without an error */
	size_t length = status == UCS_OK ? info->length : 0;

	ucp_request_free(request);
	settle(transfer, status, length);
}

/* Posts x, which is in no list, to UCX. */
static void post(struct ucx_transfer *x)
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
	/* finished or failed at once: UCX does not call back */
	if (!UCS_PTR_IS_PTR(request))
		settle(x, UCS_PTR_STATUS(request), x->receive ? info.length : x->bytes);
	else
		x->request = request;
}

int pd_ucx_post_ready(struct ucx *u)
{
	struct ucx_transfer *x, *next;
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

bool pd_ucx_is_ready(const struct ucx *u)
{
	for (const struct ucx_transfer *x = u->waiting.next; x != &u->waiting; x = x->next)
		if (pd_event_done(x->after))
			return true;
	return false;
}

int pd_ucx_transfer(struct ucx *u, bool receive, int peer, uint64_t tag, void *buf, size_t bytes,
		    const struct pd_event *after, struct pd_event *done)
{
	struct ucx_transfer *x;

	if (peer < 0 || peer >= u->ranks || !u->peers || tag >> PD_TRANSPORT_TAG_BITS)
		pd_bug("rank %d: transfer with rank %d (of %d%s), tag %#llx", u->rank, peer,
		       u->ranks, u->peers ? "" : ", not connected", (unsigned long long)tag);
	x = transfer_get(u);
	*x = (struct ucx_transfer){
		.owner = u, .receive = receive, .peer = peer, .tag = tag, .buf = buf,
		.bytes = bytes, .after = after, .done = done,
	};
	if (after)
		ring_append(&u->waiting, x);
	if (!after)
		post(x);
	else if (pd_event_done(after))
		pd_ucx_post_ready(u);
	return u->broken ? -1 : 0;
}

void pd_ucx_cancel_all(struct ucx *u)
{
	struct ucx_transfer *x;

	u->closing = true;
	while ((x = u->waiting.next) != &u->waiting) {
		ring_remove(x);
		fail(x, "cancelled");
	}
	while ((x = u->posted.next) != &u->posted) {
		ring_remove(x);
		u->unfinished = true;
		ucp_request_cancel(u->worker, x->request);
		fail(x, "cancelled");
	}
}
