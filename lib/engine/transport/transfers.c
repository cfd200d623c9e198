/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/transport/transfers.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>

#define CHUNK 64

struct pd_transfer_chunk {              /* transfers are allocated in chunks */
	struct pd_transfer_chunk *next;
	struct pd_transfer transfers[CHUNK];
};

void pd_ring_init(struct pd_transfer *head)
{
	head->next = head->prev = head;
}

void pd_ring_append(struct pd_transfer *head, struct pd_transfer *x)
{
	x->next = head;
	x->prev = head->prev;
	head->prev->next = x;
	head->prev = x;
}

void pd_ring_remove(struct pd_transfer *x)
{
	x->prev->next = x->next;
	x->next->prev = x->prev;
}

void pd_transfers_init(struct pd_transfers *t)
{
	pd_ring_init(&t->idle);
	pd_ring_init(&t->waiting);
}

void pd_transfers_release(struct pd_transfers *t)
{
	while (t->chunks) {
		struct pd_transfer_chunk *chunk = t->chunks;

		t->chunks = chunk->next;
		free(chunk);
	}
}

struct pd_transfer *pd_transfer_get(struct pd_transfers *t)
{
	struct pd_transfer *x;

	if (t->idle.next == &t->idle) {
		struct pd_transfer_chunk *chunk = pd_zalloc(sizeof(*chunk));

		chunk->next = t->chunks;
		t->chunks = chunk;
		for (int i = 0; i < CHUNK; i++)
			pd_ring_append(&t->idle, &chunk->transfers[i]);
	}
	x = t->idle.prev;
	pd_ring_remove(x);
	*x = (struct pd_transfer){ .owner = t };
	return x;
}

void pd_transfer_give(struct pd_transfer *x)
{
	pd_ring_append(&x->owner->idle, x);
}

/* ---- ends ---- */

static void describe_transfer(const struct pd_transfer *x, char *text, size_t size)
{
	snprintf(text, size, "%s of %zu bytes %s rank %d (tag %#llx)",
		 x->receive ? "receive" : "send", x->bytes, x->receive ? "from" : "to", x->peer,
		 (unsigned long long)x->tag);
}

void pd_transfer_finish(struct pd_transfer *x)
{
	pd_event_complete(x->done, x->start_ns, pd_now_ns(), x->owner->gate);
	pd_transfer_give(x);
}

void pd_transfer_fail(struct pd_transfer *x, const char *why)
{
	struct pd_error err;
	char what[128];

	describe_transfer(x, what, sizeof(what));
	pd_error_peer(&err, x->peer, "rank %d: %s: %s", x->owner->rank, what, why);
	pd_event_fail(x->done, &err, x->owner->gate);
	pd_transfer_give(x);
}

void pd_transfers_give_up(struct pd_transfers *t, const struct pd_error *why)
{
	struct pd_event none = {.state = PD_EVENT_PENDING};

	pd_event_fail(&none, why, t->gate);
	t->broken = true;
}

/* ---- beginnings ---- */

static void post(struct pd_transfers *t, struct pd_transfer *x)
{
	x->start_ns = pd_now_ns();
	t->post(t, x);
}

int pd_transfers_post_ready(struct pd_transfers *t)
{
	struct pd_transfer *x, *next;
	int n = 0;

	for (x = t->waiting.next; x != &t->waiting; x = next) {
		next = x->next;
		if (!pd_event_done(x->after))
			continue;
		pd_ring_remove(x);
		if (pd_event_failed(x->after))
			pd_transfer_fail(x, "what it waited for failed");
		else
			post(t, x);
		n++;
	}
	return n;
}

bool pd_transfers_ready(const struct pd_transfers *t)
{
	for (const struct pd_transfer *x = t->waiting.next; x != &t->waiting; x = x->next)
		if (pd_event_done(x->after))
			return true;
	return false;
}

int pd_transfers_begin(struct pd_transfers *t, const struct pd_transfer *what)
{
	struct pd_transfer *x = pd_transfer_get(t);

	*x = *what;
	x->owner = t;
	if (x->after)
		pd_ring_append(&t->waiting, x);
	if (!x->after)
		post(t, x);
	else if (pd_event_done(x->after))
		pd_transfers_post_ready(t);
	return t->broken ? -1 : 0;
}

void pd_transfers_cancel_waiting(struct pd_transfers *t)
{
	struct pd_transfer *x;

	while ((x = t->waiting.next) != &t->waiting) {
		pd_ring_remove(x);
		pd_transfer_fail(x, "cancelled");
	}
}
