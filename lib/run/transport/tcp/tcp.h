/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transfers by TCP between hosts; private to this folder.
 *
 * Two ranks have a connection for each direction in which messages go.  It begins with words
 * (run/socket/door.h); nothing else is read from one who has not said the right one.  On the way back go
 * grants: one for each receive that is posted, with its tag and bytes.  A sender sends what it has a grant
 * for, in frames, each with the tag, the bytes of the whole message, and its own.  So bytes always find a
 * receive that is posted, and go from the socket into its buffer; a frame that fits none breaks the
 * transport.  What is granted and not yet sent is remembered, and is all that waits for anybody;
 * it is read when a transfer wants it, so that it wakes nobody before.
 *
 * Frames end after FRAME_BYTES, so that a short message need not wait for a long one.  Messages of one
 * length or another keep the order in which they could be sent.
 *
 * Of a host that goes silent TCP says nothing for minutes; that is noticed by whoever started its ranks
 * (run/launch/hosts.h).  A connection that ends is a lost peer only where transfers with it are left.
 *
 * UCX's own listens for as long as the run takes and does for whoever connects what it is told,
 * also to write where it is told.  A sender learns of a receive half a round trip after it was
 * posted, as with any rendezvous; the worker posts early.
 */
#pragma once

#include "engine/transport/transfers.h"
#include "run/socket/door.h"
#include "run/socket/socket.h"

#include <sys/epoll.h>

#define FRAME_BYTES ((size_t)256 << 10)         /* the most that one has */
#define SHORT_BYTES ((size_t)64 << 10)          /* of a message that goes before longer ones */
#define SLICE_BYTES ((size_t)1 << 20)           /* the most that a connection moves at a time */
#define ENOUGH_BYTES ((size_t)128 << 10)        /* of a frame, to wake for: to wake takes a busy host long */
#define GRANTS_READ 64                          /* at a time */
#define MOST_EARLY (1 << 20)                    /* grants of a peer that nothing was sent for */
#define MOST_TRIES 1000                         /* to connect: strangers may be in the way */

/* An address: where a rank listens, and the words of its peers. */
struct tcp_guest { int32_t rank; struct pd_words words; };
struct tcp_address {
	char at[PD_SOCKET_ADDRESS];
	int32_t port;
	uint32_t guests;
	struct tcp_guest guest[];
};

/* Both have the byte order of the ranks' processors, as the messages themselves have. */
struct grant { uint64_t tag, bytes; };
struct frame { uint64_t tag, total, bytes; };

enum end_state { END_EXPECTED, END_CONNECTING, END_GREETED, END_OPEN, END_OVER };

/* One end of a connection: over which this rank sends, or receives. */
struct tcp_end {
	struct tcp *owner;
	bool incoming;
	int peer, fd;                   /* fd -1: none */
	enum end_state state;
	bool reads, writes;             /* it waits until it can read, and write */
	int pending;                    /* transfers that are posted */
};

struct tcp_out {
	struct tcp_end end;
	char at[PD_SOCKET_ADDRESS];
	int port, tries;
	struct pd_words words;
	uint8_t answer[PD_WORD_BYTES];
	size_t answered;
	struct grant grants[GRANTS_READ];
	size_t grant_bytes;
	int early;                      /* grants for which nothing was sent yet */
	int ungranted;                  /* transfers that wait for a grant: else none is read */
	struct pd_transfer brief, lengthy;      /* rings: granted, in order */
	struct pd_transfer *current;    /* of the frame under way; NULL: none is */
	struct frame frame;
	size_t sent;                    /* of the frame and its bytes */
};

struct tcp_in {
	struct tcp_end end;
	char *grants;                   /* to be sent */
	size_t grants_used, grants_sent, grants_capacity;
	struct pd_transfer *current;
	struct frame frame;
	size_t head, left;              /* bytes of the frame that are here, bytes behind it that are not */
	size_t enough;                  /* so many bytes wake the owner */
};

/* Transfers by direction, peer and tag. */
struct tcp_table {
	struct pd_transfer **buckets;
	size_t size, count;             /* a power of two; how many are in it */
};

struct tcp {
	struct pd_transport base;
	struct pd_transfers transfers;
	struct pd_transfer posted;      /* a ring: receives, and sends without a grant */
	struct tcp_table table;         /* these, and grants without a send */
	int ranks, events;              /* events: an epoll */
	struct pd_door *door;
	int *guests;                    /* the rank of each */
	size_t guest_count;
	void *address;
	size_t address_bytes;
	struct tcp_out **out;           /* by rank; NULL: no business with it */
	struct tcp_in **in;
	bool unfinished;                /* transfers were cancelled */
};

/* ---- table.c ---- */

void tcp_table_add(struct tcp_table *table, struct pd_transfer *x);
struct pd_transfer *tcp_table_find(const struct tcp_table *table, bool receive, int peer, uint64_t tag);
void tcp_table_remove(struct tcp_table *table, struct pd_transfer *x);
/* Returns any of that peer (-1: of all peers); NULL: there is none. */
struct pd_transfer *tcp_table_any(const struct tcp_table *table, int peer);

/* ---- end.c ---- */

/* Takes a connection, which is closed with the end. */
void tcp_end_take(struct tcp_end *end, int fd, enum end_state state);
void tcp_end_close(struct tcp_end *end);
void tcp_end_wait(struct tcp_end *end, bool reads, bool writes);
/* The connection has ended, with errno or 0. */
void tcp_end_lost(struct tcp_end *end, int error);
/* The peer has sent what it should not. */
void tcp_end_accuse(struct tcp_end *end, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- out.c, in.c: what may be done of late, an event of epoll, and a transfer that is ready ---- */

void tcp_out_init(struct tcp_out *o);
void tcp_out_begin(struct tcp_out *o);
void tcp_out_handle(struct tcp_out *o, uint32_t events);
void tcp_out_post(struct tcp_out *o, struct pd_transfer *x);
/* Fails what has a grant and is not sent. */
void tcp_out_fail_all(struct tcp_out *o, const char *why);

void tcp_in_came(struct tcp_in *i, int fd);
void tcp_in_handle(struct tcp_in *i, uint32_t events);
void tcp_in_post(struct tcp_in *i, struct pd_transfer *x);

/* Fails all transfers with a peer; -1: with all. */
void tcp_fail_all(struct tcp *u, int peer, const char *why);
