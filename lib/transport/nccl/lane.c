/* SPDX-License-Identifier: Apache-2.0 */
/* A lane: transfers in the order in which the sender has them, and the words about that. */
#include "transport/nccl/lane.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define NUMBER ((UINT64_C(1) << (PD_TRANSPORT_TAG_BITS - 1)) - 1)

/* ---- queues ---- */

static void append(struct queue *q, struct transfer *x)
{
	if (!q->last)
		q->last = &q->first;
	x->next = NULL;
	*q->last = x;
	q->last = &x->next;
}

/* The one at *at. */
static struct transfer *take(struct queue *q, struct transfer **at)
{
	struct transfer *x = *at;

	*at = x->next;
	if (!*at)
		q->last = at;
	return x;
}

static struct transfer *new_transfer(struct lane *lane)
{
	struct transfer *x;

	if (lane->idle.first)
		return take(&lane->idle, &lane->idle.first);
	x = pd_zalloc(sizeof(*x));
	x->chain = lane->chain;
	lane->chain = x;
	return x;
}

/* ---- words ---- */

int pd_nccl_lane_listen(struct lane *lane)
{
	struct pd_transport *host = lane->owner->host;

	for (; lane->spoken < lane->heard + PD_NCCL_AHEAD; lane->spoken++) {
		size_t at = lane->spoken % PD_NCCL_AHEAD;

		pd_event_arm(&lane->came[at]);
		if (host->ops->recv(host, lane->peer, lane->spoken & NUMBER, &lane->words[at],
				     sizeof(lane->words[at]), NULL, &lane->came[at]) < 0)
			return -1;
	}
	return 0;
}

static void forget_sent(struct lane *lane)
{
	while (lane->notes && pd_event_done(&lane->notes->sent)) {
		struct note *note = lane->notes;

		lane->notes = note->next;
		note->next = lane->spare;
		lane->spare = note;
	}
}

static int speak(struct lane *lane, const struct transfer *x)
{
	struct pd_transport *host = lane->owner->host;
	struct note *note = lane->spare ? lane->spare : pd_zalloc(sizeof(*note));
	struct note **last = &lane->notes;

	if (lane->spare)
		lane->spare = note->next;
	while (*last)
		last = &(*last)->next;
	*last = note;
	note->next = NULL;
	note->word = (struct word){ .tag = x->tag, .bytes = x->bytes };
	pd_event_arm(&note->sent);
	return host->ops->send(host, lane->peer, lane->spoken++ & NUMBER, &note->word,
				sizeof(note->word), NULL, &note->sent);
}

static struct transfer **find_asked(const struct lane *lane, uint64_t tag)
{
	struct transfer **at = (struct transfer **)&lane->asked.first;

	while (*at && (*at)->tag != tag)
		at = &(*at)->next;
	return at;
}

static const struct word *next_word(const struct lane *lane)
{
	size_t at = lane->heard % PD_NCCL_AHEAD;

	return lane->receives && pd_event_done(&lane->came[at]) ? &lane->words[at] : NULL;
}

bool pd_nccl_lane_can_move(const struct lane *lane)
{
	const struct word *word = next_word(lane);

	return word && *find_asked(lane, word->tag);
}

static int mismatch(struct lane *lane, const struct transfer *x, const struct word *word)
{
	struct pd_error err;

	pd_error_failed(&err, "rank %d: rank %d sends %llu bytes, expected %zu (tag %#llx)",
			lane->owner->rank, lane->peer, (unsigned long long)word->bytes, x->bytes,
			(unsigned long long)x->tag);
	pd_event_fail(x->done, &err, lane->owner->gate);
	return pd_nccl_give_up(lane->owner, &err);
}

/* What the sender has spoken of and is asked for, in the sender's order. */
static int match(struct lane *lane)
{
	const struct word *word;
	int n = 0;

	while ((word = next_word(lane)) != NULL) {
		struct transfer **at = find_asked(lane, word->tag), *x = *at;

		if (pd_event_failed(&lane->came[lane->heard % PD_NCCL_AHEAD]))
			return -1;
		if (!x)
			break;
		take(&lane->asked, at);
		if (x->bytes != word->bytes)
			return mismatch(lane, x, word);
		append(&lane->ready, x);
		lane->heard++;
		n++;
		if (pd_nccl_lane_listen(lane) < 0)
			return -1;
	}
	return n;
}

/* ---- on the stream ---- */

/* 0, PD_AGAIN, -1 */
static int put(struct lane *lane, struct transfer *x)
{
	const struct pd_device_ops *device = lane->owner->device->ops;
	struct pd_call call = { .post = pd_nccl_post, .check = pd_nccl_check, .context = x };

	if (!x->waits && x->after && (!pd_event_done(x->after) || pd_event_failed(x->after))) {
		int status = device->stream.wait(lane->stream, (struct pd_event *)x->after);

		if (status != 0)
			return status;
	}
	x->waits = true;
	return device->stream.call(lane->stream, &call, x->done);
}

static int put_all(struct lane *lane)
{
	int n = 0;

	while (lane->ready.first) {
		struct transfer *x = lane->ready.first;
		int status = put(lane, x);

		if (status == PD_AGAIN)
			break;
		if (status < 0)
			return -1;
		append(&lane->flying, take(&lane->ready, &lane->ready.first));
		n++;
	}
	return n;
}

static void reap(struct lane *lane)
{
	while (lane->flying.first && atomic_load(&lane->flying.first->over))
		append(&lane->idle, take(&lane->flying, &lane->flying.first));
}

int pd_nccl_lane_move(struct lane *lane)
{
	int matched, put;

	reap(lane);
	forget_sent(lane);
	matched = match(lane);
	put = matched < 0 ? -1 : put_all(lane);
	return put < 0 ? -1 : matched + put;
}

int pd_nccl_lane_add(struct lane *lane, uint64_t tag, void *buf, size_t bytes,
		     const struct pd_event *after, struct pd_event *done)
{
	struct transfer *x = new_transfer(lane), *chain = x->chain;

	*x = (struct transfer){ .chain = chain, .lane = lane, .tag = tag, .buf = buf,
				.bytes = bytes, .after = after, .done = done };
	append(lane->receives ? &lane->asked : &lane->ready, x);
	if (!lane->receives && speak(lane, x) < 0)
		return -1;
	return pd_nccl_lane_move(lane) < 0 ? -1 : 0;
}

bool pd_nccl_lane_is_idle(struct lane *lane)
{
	reap(lane);
	return !lane->asked.first && !lane->ready.first && !lane->flying.first;
}

/* ---- beginning and end ---- */

struct lane *pd_nccl_lane_new(struct nccl *n, int peer, bool receives, const char *id,
			      struct pd_error *err)
{
	struct lane *lane = pd_zalloc(sizeof(*lane));

	lane->owner = n;
	lane->peer = peer;
	lane->receives = receives;
	memcpy(&lane->id, id, sizeof(lane->id));
	pthread_mutex_init(&lane->lock, NULL);
	lane->stream = n->device->ops->stream.open(n->device, err);
	if (lane->stream)
		return lane;
	pd_nccl_lane_free(lane);
	return NULL;
}

static void fail_all(struct lane *lane, const struct queue *q)
{
	for (const struct transfer *x = q->first; x; x = x->next) {
		struct pd_error err;

		pd_error_peer(&err, lane->peer,
			      "rank %d: %s of %zu bytes %s rank %d (tag %#llx): cancelled",
			      lane->owner->rank, lane->receives ? "receive" : "send", x->bytes,
			      lane->receives ? "from" : "to", lane->peer,
			      (unsigned long long)x->tag);
		pd_event_fail(x->done, &err, lane->owner->gate);
	}
}

void pd_nccl_lane_close(struct lane *lane)
{
	fail_all(lane, &lane->asked);
	fail_all(lane, &lane->ready);
	if (lane->stream)
		lane->owner->device->ops->stream.close(lane->stream);
	lane->stream = NULL;
}

void pd_nccl_lane_free(struct lane *lane)
{
	for (struct transfer *x = lane->chain, *next; x; x = next) {
		next = x->chain;
		free(x);
	}
	for (struct note *note = lane->notes, *next; note; note = next) {
		next = note->next;
		free(note);
	}
	for (struct note *note = lane->spare, *next; note; note = next) {
		next = note->next;
		free(note);
	}
	pthread_mutex_destroy(&lane->lock);
	free(lane);
}
