/* SPDX-License-Identifier: Apache-2.0 */
#include "run/transport/ucx/transfer.h"

#include "base/container.h"

#include <stdio.h>

static void settle(struct pd_transfer *x, ucs_status_t status, size_t length)
{
	char why[64];

	if (x->owner->closing)
		return;
	pd_ring_remove(x);
	if (status == UCS_OK && length == x->bytes) {
		pd_transfer_finish(x);
		return;
	}
	x->owner->broken = true;
	if (status == UCS_OK)
		snprintf(why, sizeof(why), "%zu bytes arrived", length);
	else
		snprintf(why, sizeof(why), "%s", ucs_status_string(status));
	pd_transfer_fail(x, why);
}

static void sent(void *request, ucs_status_t status, void *transfer)
{
	struct pd_transfer *x = transfer;

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

/* Posts x, which is in no ring, to UCX. */
static void post(struct pd_transfers *transfers, struct pd_transfer *x)
{
	struct ucx *u = pd_container(transfers, struct ucx, transfers);
	ucp_tag_recv_info_t info = {.length = x->bytes};
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
				UCP_OP_ATTR_FIELD_MEMORY_TYPE,
		.user_data = x,
		.memory_type = UCS_MEMORY_TYPE_HOST,
	};
	int sender = x->receive ? x->peer : transfers->rank;
	uint64_t tag = (uint64_t)sender << PD_TRANSPORT_TAG_BITS | x->tag;
	ucs_status_ptr_t request;

	pd_ring_append(&u->posted, x);
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

void pd_ucx_transfers_init(struct ucx *u, int rank, struct pd_gate *gate)
{
	u->transfers = (struct pd_transfers){ .rank = rank, .gate = gate, .post = post };
	pd_transfers_init(&u->transfers);
	pd_ring_init(&u->posted);
}

int pd_ucx_transfer(struct ucx *u, const struct pd_transfer *what)
{
	if (what->peer < 0 || what->peer >= u->ranks || !u->peers || what->tag >> PD_TRANSPORT_TAG_BITS)
		pd_bug("rank %d: transfer with rank %d (of %d%s), tag %#llx", u->transfers.rank,
		       what->peer, u->ranks, u->peers ? "" : ", not connected",
		       (unsigned long long)what->tag);
	return pd_transfers_begin(&u->transfers, what);
}

void pd_ucx_cancel_all(struct ucx *u)
{
	struct pd_transfer *x;

	u->transfers.closing = true;
	pd_transfers_cancel_waiting(&u->transfers);
	while ((x = u->posted.next) != &u->posted) {
		pd_ring_remove(x);
		u->unfinished = true;
		ucp_request_cancel(u->worker, x->request);
		pd_transfer_fail(x, "cancelled");
	}
}
