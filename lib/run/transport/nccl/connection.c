/* SPDX-License-Identifier: Apache-2.0 */
/* A connection makes its transfers in the sender's order, which the sender tells the receiver. */
#include "run/transport/nccl/connection.h"

#include "base/mem.h"
#include "engine/device/submit.h"

#include <stdlib.h>
#include <string.h>

#define NUMBER ((UINT64_C(1) << (PD_TRANSPORT_TAG_BITS - 1)) - 1)

/* ---- queues ---- */

static void append(struct queue *q, struct nccl_transfer *x)
{
	if (!q->last)
		q->last = &q->first;
	x->next = NULL;
	*q->last = x;
	q->last = &x->next;
}

/* Takes the transfer at *at out of the queue. */
static struct nccl_transfer *unlink_transfer(struct queue *q, struct nccl_transfer **at)
{
	struct nccl_transfer *x = *at;

	*at = x->next;
	if (!*at)
		q->last = at;
	return x;
}

static struct nccl_transfer *new_transfer(struct nccl_connection *connection)
{
	struct nccl_transfer *x;

	if (connection->idle.first)
		return unlink_transfer(&connection->idle, &connection->idle.first);
	x = pd_zalloc(sizeof(*x));
	x->chain = connection->chain;
	connection->chain = x;
	return x;
}

/* ---- words, by which a sender tells its order ---- */

int pd_nccl_connection_listen(struct nccl_connection *connection)
{
	struct pd_transport *host = connection->comm.owner->host;

	for (; connection->spoken < connection->heard + PD_NCCL_AHEAD; connection->spoken++) {
		size_t at = connection->spoken % PD_NCCL_AHEAD;

		pd_event_arm(&connection->came[at]);
		if (host->ops->recv(host, connection->comm.peer, connection->spoken & NUMBER,
				    &connection->words[at],
				     sizeof(connection->words[at]), NULL,
				     &connection->came[at]) < 0)
			return -1;
	}
	return 0;
}

static void forget_sent(struct nccl_connection *connection)
{
	while (connection->notes && pd_event_done(&connection->notes->sent)) {
		struct note *note = connection->notes;

		connection->notes = note->next;
		note->next = connection->spare;
		connection->spare = note;
	}
}

static int speak(struct nccl_connection *connection, const struct nccl_transfer *x)
{
	struct pd_transport *host = connection->comm.owner->host;
	struct note *note = connection->spare ? connection->spare : pd_zalloc(sizeof(*note));
	struct note **last = &connection->notes;

	if (connection->spare)
		connection->spare = note->next;
	while (*last)
		last = &(*last)->next;
	*last = note;
	note->next = NULL;
	note->word = (struct word){ .tag = x->tag, .bytes = x->bytes };
	pd_event_arm(&note->sent);
	return host->ops->send(host, connection->comm.peer, connection->spoken++ & NUMBER, &note->word,
				sizeof(note->word), NULL, &note->sent);
}

static struct nccl_transfer **find_asked(const struct nccl_connection *connection, uint64_t tag)
{
	struct nccl_transfer **at = (struct nccl_transfer **)&connection->asked.first;

	while (*at && (*at)->tag != tag)
		at = &(*at)->next;
	return at;
}

static const struct word *next_word(const struct nccl_connection *connection)
{
	size_t at = connection->heard % PD_NCCL_AHEAD;

	return connection->receives && pd_event_done(&connection->came[at]) ?
		&connection->words[at] : NULL;
}

bool pd_nccl_connection_can_move(const struct nccl_connection *connection)
{
	const struct word *word = next_word(connection);

	return word && *find_asked(connection, word->tag);
}

static int mismatch(struct nccl_connection *connection, const struct nccl_transfer *x,
		    const struct word *word)
{
	struct pd_error err;

	pd_error_failed(&err, "rank %d: rank %d sends %llu bytes, expected %zu (tag %#llx)",
			connection->comm.owner->rank, connection->comm.peer, (unsigned long long)word->bytes,
			x->bytes, (unsigned long long)x->tag);
	pd_event_fail(x->done, &err, connection->comm.owner->gate);
	return pd_nccl_give_up(connection->comm.owner, &err);
}

/*
 * Makes ready, in the sender's order, the transfers that the sender announced and recv() asked for.
 */
static int match(struct nccl_connection *connection)
{
	const struct word *word;
	int n = 0;

	while ((word = next_word(connection)) != NULL) {
		struct nccl_transfer **at = find_asked(connection, word->tag), *x = *at;

		if (pd_event_failed(&connection->came[connection->heard % PD_NCCL_AHEAD]))
			return -1;
		if (!x)
			break;
		unlink_transfer(&connection->asked, at);
		if (x->bytes != word->bytes)
			return mismatch(connection, x, word);
		append(&connection->ready, x);
		connection->heard++;
		n++;
		if (pd_nccl_connection_listen(connection) < 0)
			return -1;
	}
	return n;
}

/* ---- on the stream ---- */

/* Puts a transfer on the stream: 0, PD_AGAIN or -1. */
static int put(struct nccl_connection *connection, struct nccl_transfer *x)
{
	struct pd_call call = { .post = pd_nccl_post, .check = pd_nccl_check, .context = x };

	if (!x->waits && x->after && (!pd_event_done(x->after) || pd_event_failed(x->after))) {
		int status = pd_submit_wait(connection->comm.stream, (struct pd_event *)x->after);

		if (status != 0)
			return status;
	}
	x->waits = true;
	return pd_submit_call(connection->comm.stream, &call, x->done);
}

static int put_all(struct nccl_connection *connection)
{
	int n = 0;

	while (connection->ready.first) {
		struct nccl_transfer *x = connection->ready.first;
		int status = put(connection, x);

		if (status == PD_AGAIN)
			break;
		if (status < 0)
			return -1;
		append(&connection->in_flight, unlink_transfer(&connection->ready, &connection->ready.first));
		n++;
	}
	return n;
}

static void reap(struct nccl_connection *connection)
{
	while (connection->in_flight.first && atomic_load(&connection->in_flight.first->over))
		append(&connection->idle,
		       unlink_transfer(&connection->in_flight, &connection->in_flight.first));
}

int pd_nccl_connection_move(struct nccl_connection *connection)
{
	int matched, put;

	reap(connection);
	forget_sent(connection);
	matched = match(connection);
	put = matched < 0 ? -1 : put_all(connection);
	return put < 0 ? -1 : matched + put;
}

int pd_nccl_connection_add(struct nccl_connection *connection, uint64_t tag, void *buf,
			   size_t bytes, const struct pd_event *after, struct pd_event *done)
{
	struct nccl_transfer *x = new_transfer(connection), *chain = x->chain;

	*x = (struct nccl_transfer){ .chain = chain, .connection = connection, .tag = tag,
				     .buf = buf, .bytes = bytes, .after = after, .done = done };
	append(connection->receives ? &connection->asked : &connection->ready, x);
	if (!connection->receives && speak(connection, x) < 0)
		return -1;
	return pd_nccl_connection_move(connection) < 0 ? -1 : 0;
}

bool pd_nccl_connection_is_idle(struct nccl_connection *connection)
{
	reap(connection);
	return !connection->asked.first && !connection->ready.first && !connection->in_flight.first;
}

/* ---- beginning and end ---- */

struct nccl_connection *pd_nccl_connection_new(struct nccl *n, int peer, bool receives,
					       const char *id, struct pd_error *err)
{
	struct nccl_connection *connection = pd_zalloc(sizeof(*connection));

	connection->receives = receives;
	connection->comm = (struct nccl_comm){ .peer = peer, .way = receives ? "from" : "to",
					       .size = 2, .number = receives, .ctas = n->ctas };
	memcpy(&connection->comm.id, id, sizeof(connection->comm.id));
	if (pd_nccl_comm_open(&connection->comm, n, err) == 0)
		return connection;
	free(connection);
	return NULL;
}

static void fail_all(struct nccl_connection *connection, const struct queue *q)
{
	for (const struct nccl_transfer *x = q->first; x; x = x->next) {
		struct pd_error err;

		pd_error_peer(&err, connection->comm.peer,
			      "rank %d: %s of %zu bytes %s rank %d (tag %#llx): cancelled",
			      connection->comm.owner->rank, connection->receives ? "receive" : "send",
			      x->bytes, connection->comm.way, connection->comm.peer,
			      (unsigned long long)x->tag);
		pd_event_fail(x->done, &err, connection->comm.owner->gate);
	}
}

void pd_nccl_connection_close(struct nccl_connection *connection)
{
	fail_all(connection, &connection->asked);
	fail_all(connection, &connection->ready);
	pd_nccl_comm_close(&connection->comm);
}

void pd_nccl_connection_free(struct nccl_connection *connection)
{
	for (struct nccl_transfer *x = connection->chain, *next; x; x = next) {
		next = x->chain;
		free(x);
	}
	for (struct note *note = connection->notes, *next; note; note = next) {
		next = note->next;
		free(note);
	}
	for (struct note *note = connection->spare, *next; note; note = next) {
		next = note->next;
		free(note);
	}
	pthread_mutex_destroy(&connection->comm.lock);
	free(connection);
}
