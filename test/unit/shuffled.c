/* SPDX-License-Identifier: Apache-2.0 */
#include "shuffled.h"

#include "base/half.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct post post;

unsigned any(unsigned n)
{
	post.rng = post.rng * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (unsigned)(post.rng >> 33) % n;
}

static struct mail *letter(int from, int to, uint64_t tag, size_t bytes, bool send)
{
	for (int i = 0; i < post.count; i++) {
		struct mail *mail = &post.mail[i];

		if (!mail->arrived && mail->from == from && mail->to == to && mail->tag == tag) {
			post.wrong += mail->bytes != bytes || (send ? mail->sent : mail->received);
			return mail;
		}
	}
	post.mail = pd_grow(post.mail, &post.room, (size_t)post.count + 1, sizeof(*post.mail));
	post.mail[post.count] = (struct mail){ .from = from, .to = to, .tag = tag, .bytes = bytes };
	return &post.mail[post.count++];
}

static int send(struct pd_transport *t, int peer, uint64_t tag, const void *buf, size_t bytes,
		const struct pd_event *after, struct pd_event *done)
{
	struct mail *mail = letter(((struct end *)t)->rank, peer, tag, bytes, true);

	mail->src = buf;
	mail->src_after = after;
	mail->sent = done;
	mail->order = ++post.order;
	return 0;
}

static int receive(struct pd_transport *t, int peer, uint64_t tag, void *buf, size_t bytes,
		   const struct pd_event *after, struct pd_event *done)
{
	struct mail *mail = letter(peer, ((struct end *)t)->rank, tag, bytes, false);

	mail->dst = buf;
	mail->dst_after = after;
	mail->received = done;
	return 0;
}

static bool may_go(const struct mail *mail)
{
	if (mail->arrived)
		return any(8) == 0;
	if (!mail->sent || !mail->received ||
	    (mail->src_after && !pd_event_done(mail->src_after)) ||
	    (mail->dst_after && !pd_event_done(mail->dst_after)))
		return false;
	for (int i = 0; i < post.count && !post.overtake; i++) {
		const struct mail *other = &post.mail[i];

		if (!other->arrived && other->from == mail->from && other->to == mail->to &&
		    other->order > 0 && other->order < mail->order)
			return false;
	}
	return true;
}

void complete(struct pd_event *ev, int first)
{
	int64_t start_ns = ++post.clock;

	if (first >= 0 && post.first[first] == 0)
		post.first[first] = start_ns;
	pd_event_complete(ev, start_ns, ++post.clock, NULL);
}

bool deliver(void)
{
	int start = post.count > 0 ? (int)any((unsigned)post.count) : 0;

	for (int n = 0; n < post.count; n++) {
		struct mail *mail = &post.mail[(start + n) % post.count];

		if (!may_go(mail))
			continue;
		if (mail->arrived) {
			complete(mail->sent, mail->from);
			*mail = post.mail[--post.count];
			return true;
		}
		memcpy(mail->dst, mail->src, mail->bytes);
		complete(mail->received, -1);
		mail->arrived = true;
		return true;
	}
	return false;
}

size_t allocated;

static void *take(struct pd_device *device, size_t bytes, struct pd_error *err)
{
	allocated += bytes;
	return pd_zalloc(bytes);
}

static void give(struct pd_device *device, void *ptr)
{
	free(ptr);
}

static int enqueue(struct stream *s, const struct stream_item *stream_item)
{
	if (s->queued == QUEUE)
		return PD_AGAIN;
	s->queue[s->queued++] = *stream_item;
	return 0;
}

static int submit(struct pd_stream *stream, const struct pd_work *works, int n)
{
	struct stream_item item = { .done = works->ev };

	if (works->kind == PD_WORK_WAIT)
		item.wait = works->awaited;
	if (works->kind == PD_WORK_MIXED_SUM)
		item.sum = works->mixed_sum;
	if (works->kind == PD_WORK_SUM) {
		item.sum = (struct pd_mixed_sum){ .dst = works->sum.dst, .n = works->sum.n,
						  .count = works->sum.count };
		memcpy(item.sum.src, works->sum.src, (size_t)works->sum.n * sizeof(*item.sum.src));
	}
	return enqueue((struct stream *)stream, &item);
}

uint16_t narrow(const struct pd_rounding *r, float x)
{
	return r->dtype == PD_BF16 ? pd_to_bf16(x * r->scale) : pd_to_f16(x * r->scale);
}

float widen(const struct pd_rounding *r, uint16_t x)
{
	return (r->dtype == PD_BF16 ? pd_from_bf16(x) : pd_from_f16(x)) / r->scale;
}

static float source(const struct pd_mixed_sum *sum, int k, size_t i)
{
	return sum->narrow_sources >> k & 1
		? widen(&sum->rounding, ((const uint16_t *)sum->src[k])[i])
		: ((const float *)sum->src[k])[i];
}

bool work(struct stream *s)
{
	struct stream_item *stream_item = s->queue;

	if (s->queued == 0 || (stream_item->wait && !pd_event_done(stream_item->wait)))
		return false;
	for (size_t i = 0; i < stream_item->sum.count; i++) {
		const struct pd_mixed_sum *sum = &stream_item->sum;
		float all = source(sum, 0, i);

		for (int k = 1; k < sum->n; k++)
			all += source(sum, k, i);
		if (sum->narrow)
			((uint16_t *)sum->dst)[i] = narrow(&sum->rounding, all);
		else
			((float *)sum->dst)[i] = all;
	}
	if (stream_item->done)
		complete(stream_item->done, stream_item->sum.n > 0 ? s->member : -1);
	memmove(stream_item, stream_item + 1, sizeof(*stream_item) * (size_t)--s->queued);
	return true;
}

const struct pd_transport_ops shuffled_transport = { .send = send, .recv = receive };
const struct pd_device_ops shuffled_device = {
	.memory.alloc = take, .memory.free = give, .stream.submit = submit,
};
