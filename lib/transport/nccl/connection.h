/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this folder share: connections, transfers, and what ranks tell each other. */
#ifndef PD_TRANSPORT_NCCL_CONNECTION_H
#define PD_TRANSPORT_NCCL_CONNECTION_H

#include "transport/nccl/nccl.h"

#include <nccl.h>

#include <pthread.h>
#include <stdatomic.h>

#define PD_NCCL_AHEAD 16                /* words of a sender that a receiver is ready for */

struct nccl_transfer {
	struct nccl_transfer *next;	/* in one of a connection's lists */
	struct nccl_transfer *chain;	/* all of a connection's */
	struct nccl_connection *connection;
	uint64_t tag;
	void *buf;
	size_t bytes;
	const struct pd_event *after;
	struct pd_event *done;
	bool waits;                     /* the stream was told to wait for `after` */
	_Atomic bool over;              /* NCCL is done with it */
};

struct queue {
	struct nccl_transfer *first, **last;
};

/* What a sender tells with each transfer. */
struct word {
	uint64_t tag, bytes;
};

struct note {                           /* one on its way, at the sender */
	struct note *next;
	struct word word;
	struct pd_event sent;
};

struct nccl_connection {
	struct nccl *owner;
	int peer;
	bool receives;
	ncclUniqueId id;
	pthread_mutex_t lock;           /* of these two; never held for long */
	ncclComm_t comm;
	bool gone;                      /* aborted, or to be: nothing more is posted */
	ncclResult_t finishing;
	struct pd_stream *stream;

	struct queue asked;             /* receives whose word has not come, as they were posted */
	struct queue ready;             /* in order, not all on the stream yet */
	struct queue in_flight;		/* on the stream */
	struct queue idle;
	struct nccl_transfer *chain;

	uint64_t spoken;                /* words sent; words that recv was posted for */
	uint64_t heard;                 /* words taken */
	struct note *notes, *spare;     /* sender: on their way, oldest first; not in use */
	struct word words[PD_NCCL_AHEAD];       /* receiver: number n in n mod so many */
	struct pd_event came[PD_NCCL_AHEAD];
};

/* What a rank sends to itself: copied when both sides are there. */
struct loopback {
	struct pd_stream *stream;       /* NULL: it sends itself nothing */
	struct half *halves, *idle;
};

struct nccl {
	struct pd_transport base;
	int rank, ranks, ctas;
	struct pd_transport *host;
	struct pd_device *device;
	struct pd_gate *gate;
	struct nccl_connection **out, **in; /* by peer; NULL: none */
	struct loopback loopback;
	int *processes;                 /* by peer: a descriptor that tells its end, or -1 */
	int64_t asked_ns;               /* when NCCL was last asked for errors */
	bool broken;
	struct {
		bool begun;
		bool threaded;          /* `thread` has to be joined */
		pthread_t thread;
		ncclComm_t *comms;      /* taken from their connections */
		int count;
	} abort;
};

/* The whole transport fails: the gate says why.  Returns -1. */
int pd_nccl_give_up(struct nccl *n, const struct pd_error *why);

/* --- comm.c: the connection's communicator.  The first four are those of a struct pd_call. */
int pd_nccl_comm_init(void *connection, void *native, struct pd_error *err);
int pd_nccl_comm_ready(void *connection, struct pd_error *err);
int pd_nccl_post(void *transfer, void *native, struct pd_error *err);
int pd_nccl_check(void *transfer, struct pd_error *err);
/* What NCCL has found wrong since: 0, or -1. */
int pd_nccl_ask(struct nccl_connection *connection, struct pd_error *err);
/* Takes the communicator, which may be NULL, away from the connection: nothing more is posted. */
ncclComm_t pd_nccl_take(struct nccl_connection *connection);
/* The end of a communicator with nothing under way: begun; waited for until then at most, and
 * where it is not over by then the connection keeps it, for pd_nccl_abort. */
void pd_nccl_finalize(struct nccl_connection *connection);
void pd_nccl_leave(struct nccl_connection *connection, int64_t end_ns);

/* --- abort.c */
/* 0, or -1 where this NCCL cannot abort several communicators at once. */
int pd_nccl_can_abort(struct pd_error *err);
/*
 * Begins to abort the communicators of all connections, which ends kernels that wait, and returns
 * at once.  Nothing more is posted from then on.  A second call does nothing.
 */
void pd_nccl_abort(struct nccl *n);
/* Blocks until it is done; returns at once where it was not begun. */
void pd_nccl_aborted(struct nccl *n);

/* --- connection.c.  NULL: no stream. */
struct nccl_connection *pd_nccl_connection_new(struct nccl *n, int peer, bool receives,
					       const char *id, struct pd_error *err);
/* What is not done fails; the connection's stream ends. */
void pd_nccl_connection_close(struct nccl_connection *connection);
void pd_nccl_connection_free(struct nccl_connection *connection);
/* Is ready for the sender's first words; -1: the inner transport is broken. */
int pd_nccl_connection_listen(struct nccl_connection *connection);
int pd_nccl_connection_add(struct nccl_connection *connection, uint64_t tag, void *buf,
			   size_t bytes, const struct pd_event *after, struct pd_event *done);
/* Everything that can get further: how much did; -1: broken. */
int pd_nccl_connection_move(struct nccl_connection *connection);
/* Has a word come that was asked for? */
bool pd_nccl_connection_can_move(const struct nccl_connection *connection);
bool pd_nccl_connection_is_idle(struct nccl_connection *connection);

/* --- loopback.c */
int pd_nccl_loopback_open(struct nccl *n, struct pd_error *err);
void pd_nccl_loopback_close(struct nccl *n);
int pd_nccl_loopback_add(struct nccl *n, bool receives, uint64_t tag, void *buf, size_t bytes,
			 const struct pd_event *after, struct pd_event *done);
int pd_nccl_loopback_move(struct nccl *n);

#endif
