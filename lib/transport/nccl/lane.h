/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this folder share: lanes, transfers, and what ranks tell each other. */
#ifndef PD_TRANSPORT_NCCL_LANE_H
#define PD_TRANSPORT_NCCL_LANE_H

#include "transport/nccl/nccl.h"

#include <nccl.h>

#include <pthread.h>
#include <stdatomic.h>

#define PD_NCCL_AHEAD 16                /* words of a sender that a receiver is ready for */

struct transfer {
	struct transfer *next;          /* in one of a lane's lists */
	struct transfer *chain;         /* all of a lane's */
	struct lane *lane;
	uint64_t tag;
	void *buf;
	size_t bytes;
	const struct pd_event *after;
	struct pd_event *done;
	bool waits;                     /* the stream was told to wait for `after` */
	_Atomic bool over;              /* NCCL is done with it */
};

struct queue {
	struct transfer *first, **last;
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

struct lane {
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
	struct queue flying;            /* on the stream */
	struct queue idle;
	struct transfer *chain;

	uint64_t spoken;                /* words sent; words that recv was posted for */
	uint64_t heard;                 /* words taken */
	struct note *notes, *spare;     /* sender: on their way, oldest first; not in use */
	struct word words[PD_NCCL_AHEAD];       /* receiver: number n in n mod so many */
	struct pd_event came[PD_NCCL_AHEAD];
};

/* What a rank sends to itself: copied when both sides are there. */
struct mirror {
	struct pd_stream *stream;       /* NULL: it sends itself nothing */
	struct half *halves, *idle;
};

struct nccl {
	struct pd_transport base;
	int rank, ranks, ctas;
	struct pd_transport *host;
	struct pd_device *device;
	struct pd_gate *gate;
	struct lane **out, **in;        /* by peer; NULL: none */
	struct mirror mirror;
	int *processes;                 /* by peer: a descriptor that tells its end, or -1 */
	int64_t asked_ns;               /* when NCCL was last asked for errors */
	bool broken;
	struct {
		bool begun;
		bool threaded;          /* `thread` has to be joined */
		pthread_t thread;
		ncclComm_t *comms;      /* taken from their lanes */
		int count;
	} abort;
};

/* The whole transport fails: the gate says why.  Returns -1. */
int pd_nccl_give_up(struct nccl *n, const struct pd_error *why);

/* --- comm.c: the lane's communicator.  The first four are those of a struct pd_call. */
int pd_nccl_join(void *lane, void *native, struct pd_error *err);
int pd_nccl_joined(void *lane, struct pd_error *err);
int pd_nccl_post(void *transfer, void *native, struct pd_error *err);
int pd_nccl_check(void *transfer, struct pd_error *err);
/* What NCCL has found wrong since: 0, or -1. */
int pd_nccl_ask(struct lane *lane, struct pd_error *err);
/* Takes the communicator, which may be NULL, away from the lane: nothing more is posted. */
ncclComm_t pd_nccl_take(struct lane *lane);
/* The end of a communicator with nothing under way: begun; waited for until then at most, and
 * where it is not over by then the lane keeps it, for pd_nccl_abort. */
void pd_nccl_finish(struct lane *lane);
void pd_nccl_leave(struct lane *lane, int64_t end_ns);

/* --- abort.c */
/* 0, or -1 where this NCCL cannot abort several communicators at once. */
int pd_nccl_can_abort(struct pd_error *err);
/*
 * Begins to abort the communicators of all lanes, which ends kernels that wait, and returns at
 * once.  Nothing more is posted from then on.  A second call does nothing.
 */
void pd_nccl_abort(struct nccl *n);
/* Blocks until it is done; returns at once where it was not begun. */
void pd_nccl_aborted(struct nccl *n);

/* --- lane.c.  NULL: no stream. */
struct lane *pd_nccl_lane_new(struct nccl *n, int peer, bool receives, const char *id,
			      struct pd_error *err);
/* What is not done fails; the lane's stream ends. */
void pd_nccl_lane_close(struct lane *lane);
void pd_nccl_lane_free(struct lane *lane);
/* Is ready for the sender's first words; -1: the inner transport is broken. */
int pd_nccl_lane_listen(struct lane *lane);
int pd_nccl_lane_add(struct lane *lane, uint64_t tag, void *buf, size_t bytes,
		     const struct pd_event *after, struct pd_event *done);
/* Everything that can get further: how much did; -1: broken. */
int pd_nccl_lane_move(struct lane *lane);
/* Has a word come that was asked for? */
bool pd_nccl_lane_can_move(const struct lane *lane);
bool pd_nccl_lane_is_idle(struct lane *lane);

/* --- mirror.c */
int pd_nccl_mirror_open(struct nccl *n, struct pd_error *err);
void pd_nccl_mirror_close(struct nccl *n);
int pd_nccl_mirror_add(struct nccl *n, bool receives, uint64_t tag, void *buf, size_t bytes,
		       const struct pd_event *after, struct pd_event *done);
int pd_nccl_mirror_move(struct nccl *n);

#endif
