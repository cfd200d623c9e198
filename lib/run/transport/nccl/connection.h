/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators, connections, transfers, groups; private to this folder. */
#pragma once

#include "run/transport/nccl/nccl.h"

#include <nccl.h>

#include <pthread.h>
#include <stdatomic.h>

#define PD_NCCL_AHEAD 16                /* a receiver is ready for so many words ahead */

/* A communicator, and the stream that does nothing else. */
struct nccl_comm {
	struct nccl *owner;
	struct nccl_comm *next;         /* in the list of all */
	int size, number;               /* its ranks, and this one's number among them */
	int peer;                       /* another of these */
	const char *way;                /* before the peer in errors: "to", "from", "with" */
	int ctas;
	ncclUniqueId id;
	pthread_mutex_t lock;           /* protects these two; is never held for long */
	ncclComm_t comm;
	bool gone;                      /* it is or will be aborted: nothing more is posted */
	ncclResult_t finishing;
	struct pd_stream *stream;
};

struct nccl_transfer {
	struct nccl_transfer *next;	/* in one of the connection's queues */
	struct nccl_transfer *chain;	/* in the list of all transfers of the connection */
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

/* The sender tells the receiver this about each transfer. */
struct word {
	uint64_t tag, bytes;
};

struct note {                           /* a word that the sender is sending */
	struct note *next;
	struct word word;
	struct pd_event sent;
};

struct nccl_connection {
	struct nccl_comm comm;
	bool receives;

	struct queue asked;	/* receives whose word has not come, in the order of their calls */
	struct queue ready;             /* in order, still to be put on the stream */
	struct queue in_flight;		/* on the stream */
	struct queue idle;
	struct nccl_transfer *chain;

	uint64_t spoken;                /* words sent, or expected by a posted recv */
	uint64_t heard;                 /* words used */
	struct note *notes, *spare;     /* at the sender: being sent, oldest first; and unused */
	/* at the receiver: word n is in n mod PD_NCCL_AHEAD */
	struct word words[PD_NCCL_AHEAD];
	struct pd_event came[PD_NCCL_AHEAD];
};

/* A rank's transfers to itself are copies, made once both sides are posted. */
struct loopback {
	struct pd_stream *stream;       /* NULL: it sends nothing to itself */
	struct half *halves, *idle;
};

struct nccl {
	struct pd_transport base;
	int rank, ranks, ctas;
	struct pd_transport *host;
	const struct pd_connector *connector;   /* its */
	struct pd_device *device;
	struct pd_gate *gate;
	struct nccl_connection **out, **in; /* by peer; NULL: none */
	struct nccl_group *groups;
	struct nccl_comm *comms;        /* of all of these */
	struct loopback loopback;
	int *processes;                 /* by peer: a descriptor that tells its end, or -1 */
	int64_t asked_ns;               /* when NCCL was last asked for errors */
	bool broken;
	int64_t limit_ns;               /* time limit to make one connection */
	struct {
		bool begun;
		bool threaded;          /* `thread` has to be joined */
		pthread_t thread;
		ncclComm_t *comms;      /* taken from their owners */
		int count;
	} abort;
};

/* Fails the whole transport, at the gate.  Returns -1. */
int pd_nccl_give_up(struct nccl *n, const struct pd_error *why);

/*
 * Waits until an event of the set-up is done; fails, and ends all, if that takes too long, or a peer's
 * process is gone.
 */
int pd_nccl_await(struct nccl *n, int peer, struct pd_event *ev, struct pd_error *err);
/*
 * Puts a call of the set-up on the communicator's stream, and waits for it.  Where that fails all is
 * aborted, and nothing of the call is used any more.
 */
int pd_nccl_try(struct nccl_comm *comm, const struct pd_call *call, struct pd_error *err);
/* Makes the communicator so, as all its ranks do. */
int pd_nccl_join(struct nccl_comm *comm, struct pd_error *err);

/* --- comm.c */
/* Makes the name of a communicator. */
int pd_nccl_id(ncclUniqueId *id, struct pd_error *err);
/* Opens the stream of a communicator that is to be made, and adds it to the owner's list. */
int pd_nccl_comm_open(struct nccl_comm *comm, struct nccl *owner, struct pd_error *err);
/* Ends the stream, once its work is done. */
void pd_nccl_comm_close(struct nccl_comm *comm);
/* These are of a struct pd_call. */
int pd_nccl_comm_init(void *comm, void *native, struct pd_error *err);
int pd_nccl_comm_ready(void *comm, struct pd_error *err);
int pd_nccl_post(void *transfer, void *native, struct pd_error *err);
int pd_nccl_check(void *transfer, struct pd_error *err);
int pd_nccl_post_sum(void *group_sum, void *native, struct pd_error *err);
int pd_nccl_check_sum(void *group_sum, struct pd_error *err);
/* Returns -1 if NCCL has reported an error since, or 0. */
int pd_nccl_ask(struct nccl_comm *comm, struct pd_error *err);
/* Takes NCCL's communicator (NULL: none) away, so that nothing more is posted. */
ncclComm_t pd_nccl_take(struct nccl_comm *comm);
/*
 * The first begins the end of a communicator without pending work, the second waits for it until
 * end_ns at most.  Where it takes longer, NCCL's is kept for pd_nccl_abort().
 */
void pd_nccl_finalize(struct nccl_comm *comm);
void pd_nccl_leave(struct nccl_comm *comm, int64_t end_ns);

/* --- abort.c */
/* 0, or -1 where this NCCL cannot abort several communicators at once. */
int pd_nccl_can_abort(struct pd_error *err);
/*
 * Begins to abort all communicators, which ends kernels that wait, and returns
 * at once.  Nothing is posted afterwards.  A second call does nothing.
 */
void pd_nccl_abort(struct nccl *n);
/* Blocks until the abort is done; returns at once where none was begun. */
void pd_nccl_aborted(struct nccl *n);

/* --- connection.c.  NULL: no stream. */
struct nccl_connection *pd_nccl_connection_new(struct nccl *n, int peer, bool receives,
					       const char *id, struct pd_error *err);
/* Ends the connection's stream; transfers that are not done fail. */
void pd_nccl_connection_close(struct nccl_connection *connection);
void pd_nccl_connection_free(struct nccl_connection *connection);
/* Posts receives for the sender's first words; -1: the host's transport is broken. */
int pd_nccl_connection_listen(struct nccl_connection *connection);
int pd_nccl_connection_add(struct nccl_connection *connection, uint64_t tag, void *buf,
			   size_t bytes, const struct pd_event *after, struct pd_event *done);
/* Advances all transfers; returns how many got further, -1: broken. */
int pd_nccl_connection_move(struct nccl_connection *connection);
/* Returns whether a word has come for a transfer that was asked for. */
bool pd_nccl_connection_can_move(const struct nccl_connection *connection);
bool pd_nccl_connection_is_idle(struct nccl_connection *connection);

/* --- group.c */
struct nccl_group {
	struct pd_group base;
	struct nccl_group *next;
	struct nccl_comm comm;
	struct pd_event told;           /* its id is known */
};
struct pd_group *pd_nccl_group(struct pd_transport *base, const int *ranks, int count,
			       const struct pd_group_trial *trial, struct pd_error *err);
/* Ends their streams. */
void pd_nccl_groups_close(struct nccl *n);
/* To be called once the host's transport is cancelled. */
void pd_nccl_groups_free(struct nccl *n);

/* --- loopback.c */
int pd_nccl_loopback_open(struct nccl *n, struct pd_error *err);
void pd_nccl_loopback_close(struct nccl *n);
int pd_nccl_loopback_add(struct nccl *n, bool receives, uint64_t tag, void *buf, size_t bytes,
			 const struct pd_event *after, struct pd_event *done);
int pd_nccl_loopback_move(struct nccl *n);
