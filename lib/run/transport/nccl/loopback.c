/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank with several stages may send to itself.  NCCL would need both sides in one call; here the
 * bytes are copied on a stream, once both sides are posted.
 */
#include "base/mem.h"
#include "engine/device/submit.h"
#include "run/transport/nccl/connection.h"

#include <stdlib.h>

struct half {
	struct half *next;
	bool receives;
	uint64_t tag;
	void *buf;
	size_t bytes;
	const struct pd_event *after;
	struct pd_event *done;
	struct half *other;	/* the matching half; the receive's half has the next two members */
	int step;                       /* the next step to be put on the stream */
};

int pd_nccl_loopback_open(struct nccl *n, struct pd_error *err)
{
	n->loopback.stream = n->device->ops->stream.open(n->device, err);
	return n->loopback.stream ? 0 : -1;
}

/* Puts on the stream: waits for both buffers, the copy, and the sender's completion. */
static int issue(struct nccl *n, struct half *in)
{
	struct pd_stream *stream = n->loopback.stream;
	struct half *out = in->other;

	switch (in->step) {
	case 0:
		return out->after ? pd_submit_wait(stream, (struct pd_event *)out->after) : 0;
	case 1:
		return in->after ? pd_submit_wait(stream, (struct pd_event *)in->after) : 0;
	case 2:
		return pd_submit_copy(stream, in->buf, out->buf, in->bytes, PD_COPY_WITHIN,
					   in->done);
	default:
		return pd_submit_copy(stream, NULL, NULL, 0, PD_COPY_WITHIN, out->done);
	}
}

static void drop(struct nccl *n, struct half *half)
{
	struct half **at = &n->loopback.halves;

	while (*at != half)
		at = &(*at)->next;
	*at = half->next;
	half->next = n->loopback.idle;
	n->loopback.idle = half;
}

int pd_nccl_loopback_move(struct nccl *n)
{
	int moved = 0;

	for (struct half *in = n->loopback.halves, *next; in; in = next) {
		next = in->next;
		if (!in->other || !in->receives)
			continue;
		while (in->step < 4) {
			int status = issue(n, in);

			if (status != 0)
				return status == PD_AGAIN ? moved : -1;
			in->step++;
			moved++;
		}
		if (next == in->other)
			next = next->next;
		drop(n, in->other);
		drop(n, in);
	}
	return moved;
}

/* Finds a half of that tag that has no other half. */
static struct half *find_half(struct nccl *n, bool receives, uint64_t tag)
{
	struct half *half = n->loopback.halves;

	while (half && (half->other || half->receives != receives || half->tag != tag))
		half = half->next;
	return half;
}

int pd_nccl_loopback_add(struct nccl *n, bool receives, uint64_t tag, void *buf, size_t bytes,
			 const struct pd_event *after, struct pd_event *done)
{
	struct half *other = find_half(n, !receives, tag), *half = n->loopback.idle, **last;
	struct pd_error err;

	if (half)
		n->loopback.idle = half->next;
	else
		half = pd_zalloc(sizeof(*half));
	*half = (struct half){ .receives = receives, .tag = tag, .buf = buf, .bytes = bytes,
			       .after = after, .done = done, .other = other };
	for (last = &n->loopback.halves; *last; last = &(*last)->next)
		;
	*last = half;
	if (!other)
		return 0;
	other->other = half;
	if (other->bytes != bytes) {
		pd_error_failed(&err, "rank %d: it sends itself %zu bytes, expected %zu (tag %#llx)",
				n->rank, receives ? other->bytes : bytes,
				receives ? bytes : other->bytes, (unsigned long long)tag);
		return pd_nccl_give_up(n, &err);
	}
	return pd_nccl_loopback_move(n) < 0 ? -1 : 0;
}

void pd_nccl_loopback_close(struct nccl *n)
{
	struct half *lists[] = { n->loopback.halves, n->loopback.idle };

	for (struct half *half = n->loopback.halves; half; half = half->next) {
		struct pd_error err;

		pd_error_failed(&err, "rank %d: a transfer to itself: cancelled", n->rank);
		/* a copy that is on the stream is completed there */
		if (!half->other || (half->receives ? half : half->other)->step <
				    (half->receives ? 3 : 4))
			pd_event_fail(half->done, &err, n->gate);
	}
	if (n->loopback.stream)
		n->device->ops->stream.close(n->loopback.stream);
	for (size_t i = 0; i < PD_COUNT(lists); i++)
		for (struct half *half = lists[i], *next; half; half = next) {
			next = half->next;
			free(half);
		}
}
