/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this folder share. */
#ifndef PD_WORKER_INTERNAL_H
#define PD_WORKER_INTERNAL_H

#include "base/mem.h"
#include "schedule/list.h"
#include "transport/collective.h"
#include "worker/worker.h"

/*
 * Tags of an all-reduce or agree: its number, above so many bits; an all-reduce's begin at the
 * half of what these count to, there are two for each of its pieces.
 */
#define TAG_COLLECTIVE (UINT64_C(1) << 47)
#define TAG_EVALUATE   (UINT64_C(1) << 46)
#define TAG_NUMBER     (TAG_EVALUATE - 1)
#define TAG_PLACES     20
#define TAG_ALLREDUCE  (UINT64_C(1) << (TAG_PLACES - 1))

/*
 * Events that stand for one use of a buffer, and the last operation that arms them or
 * waits for them.  They may be armed anew only when that operation has retired: then no
 * stream and no transport looks at them any more.
 */
struct mark {
	struct pd_event *events;
	int64_t last_use;               /* number of that operation, -1: none */
	int count;
	struct pd_event own;            /* `events` where there is one; so it must not be moved */
};

/* A microbatch on its way through the stage: its events, and where its inputs come in. */
struct flight {
	struct chunk *chunk;
	void *inbox;
	struct mark *received;          /* per link in */
	struct mark *sent;              /* per link out */
	struct mark *ended;             /* that of the last to use the inbox, or NULL */
	struct pd_batch *batch;
	int64_t valid;                  /* samples that count */
	struct mark forward;            /* with outboxes two events: the second, of the copy there */
	struct mark backward;
	/* less often used from here on */
	struct mark weight;             /* of its own where backward comes in two parts */
	struct mark loaded, recomputed;
	struct pd_loss *losses;         /* sizes->loss_count of them */
};

/* What a microbatch keeps from forward to backward; or, in an outbox, until it is sent. */
struct slot {
	void *memory;
	struct flight *flight;          /* of the one that had it last, or NULL */
};

/* One of the buffers on the way of gradients, in or out. */
struct passage {
	void *memory;
	struct mark *transfers;         /* per link */
};

/* An operation issued: a cache line. */
struct entry {
	struct pd_op op;
	struct mark *mark;              /* it is finished when the events are */
};

/* A link as this rank sees it: where each tensor lies. */
struct port {
	const struct pd_link *link;
	const struct pd_net_tensor **tensors;
	size_t *places;                 /* of those that leave, in an outbox */
};

/*
 * Where a stage adds up the gradients of a group.  There are two where it begins a group
 * before the update of the one before it.
 */
#define SUMS 2
struct sum {
	void *gradients;                /* of the group so far, or of one microbatch */
	/* Behind them, where the ranks agree on updates: with which they are made.  A copy, since
	 * the version that it is of may go before the group's update.  NULL: none so far. */
	struct pd_scale *scale;
	struct mark summed;
	struct mark *ready;             /* done when all are in it; NULL: none so far */
	int64_t backwards;              /* of this replica so far */
};

/* A stage on this rank.  There is one, or with the interleaved schedule several. */
struct chunk {
	const struct pd_net_sizes *sizes;
	const struct pd_stage *stage;
	int index, replicas;            /* of the stage */
	struct flight *flights;
	struct slot *slots;
	struct slot *outboxes;          /* room.outboxes of them, each of so many bytes */
	struct passage *in, *out;       /* gradients arriving, leaving */
	/* how many are taken in turn in this phase; 0: each microbatch has its place */
	int slot_turn, flight_turn;
	int port_in_count, port_out_count;
	struct port *ports_in, *ports_out;
	int64_t recomputed;             /* microbatches of this phase so far */
	struct pd_room room;            /* how many there are of these, and who has which */
	struct pd_net *net;
	struct pd_loader *loader;
	struct pd_collective *collective;
	struct pd_weights weights;
	void *fresh;                    /* of one microbatch, where a replica has several in a group */
	struct sum sums[SUMS];
	/* less often used from here on, and the second sum */
	int sum_count;
	size_t outbox_bytes;
	struct pd_arena_need arenas[PD_ARENAS];
	void *master;                   /* what is updated, where weights are rounded; or NULL */
	void *state, *velocity, *second;        /* the moments: NULL where there are none */
	int64_t delay;                  /* pd_schedule_delay */
	void *delta, *corrected;        /* of weights that are not stashed, or NULL (correct.c) */
	struct mark allreduce, step;
};

struct pd_worker {
	int replica, chunk_count;
	struct chunk *chunks;
	struct pd_stream *compute, *reduce, *load;      /* load: NULL where copies are on compute */
	struct ties *ties;              /* NULL: no layers have copies of what they share */
	struct agreement *agreement;    /* NULL: each stage updates by itself */
	int64_t issued, retired;        /* operations since the worker was made */
	int64_t ring;                   /* between the two, at most */
	int64_t entry_count;            /* a power of two; grows as far as it is needed */
	struct entry *entries;          /* number n in entries[n % entry_count] */
	enum pd_pause wanted, paused;   /* wanted: as soon as all that was issued has retired */
	uint64_t tensors_most;          /* of a link, for tags */
	void *scratch;                  /* of all chunks: they compute one after the other */
	size_t checkpoint_count;

	bool running, exhausted, frozen, held, has_next;
	bool reducing;                  /* some of an all-reduce may have no place on the stream yet */
	struct pd_op next;              /* taken from the source, not yet issued */
	struct pd_phase phase;
	struct pd_op_source source;
	struct pd_worker_config config; /* the optimizer is its last */

	/* less often used from here on */
	struct pd_scale first_scale;
	int64_t bytes;
	struct checkpoint {
		int64_t at;             /* -1: none */
		bool state_seen;
	} *checkpoints;
	size_t checkpoint_room;
	struct pd_arena arena;          /* where the configuration names none: holds this, too */
};

static inline struct entry *worker_entry(const struct pd_worker *w, int64_t n)
{
	return &w->entries[n & (w->entry_count - 1)];
}

static inline struct chunk *worker_chunk(const struct pd_worker *w, int stage)
{
	struct chunk *c = w->chunks;

	while (c->index != stage)
		c++;
	return c;
}

/* Which of the replica's microbatches of this phase, from 0. */
static inline int64_t worker_local_number(const struct pd_worker *w, const struct chunk *c,
					  const struct pd_op *op)
{
	return (op->microbatch - w->phase.first) / c->replicas;
}

static inline struct flight *worker_flight(const struct pd_worker *w, const struct chunk *c,
					   const struct pd_op *op)
{
	int64_t i = worker_local_number(w, c, op);

	return &c->flights[c->flight_turn ? i % c->flight_turn : c->room.buffers[i].inbox];
}

/* Of a version of the weights: behind them, where the ranks agree on updates. */
static inline struct pd_scale *worker_scale(const struct chunk *c, const void *weights)
{
	size_t bytes = c->sizes->weights_bytes ? c->sizes->weights_bytes : PD_ALIGN;

	return (struct pd_scale *)((char *)weights + bytes);
}

/* Of a sum of gradients, likewise. */
static inline struct pd_scale *worker_scale_of_sum(const struct chunk *c, const void *gradients)
{
	size_t bytes = c->sizes->full_bytes ? c->sizes->full_bytes : PD_ALIGN;

	return (struct pd_scale *)((char *)gradients + bytes);
}

/* memory.c */
int worker_take(struct pd_worker *w, size_t bytes, void *out_p, struct pd_error *err);
void worker_mark_init(struct pd_worker *w, struct mark *mark, int count);
/* Host memory, zeroed, for as long as the worker lives. */
void *worker_keep(struct pd_worker *w, int count, size_t bytes);
int worker_memory_new(struct pd_worker *w, struct pd_error *err);
void worker_memory_free(struct pd_worker *w);

/* issue.c: issues what can be, in order; 1 something, 0 nothing, -1 failed */
int worker_issue(struct pd_worker *w, struct pd_error *err);

/* retire.c: retires what has finished, in order; 1 something, 0 nothing, -1 one failed */
int worker_retire(struct pd_worker *w, struct pd_error *err);

/* checkpoint.c: must everything come to rest before this operation (NULL: before the end), or
 * after it?  Where there are none it need not. */
void worker_pause_before(struct pd_worker *w, const struct pd_op *op);
void worker_pause_after(struct pd_worker *w, const struct pd_op *op);

/* tie.c: nothing of it where no parameters are shared */
int worker_ties_new(struct pd_worker *w, struct pd_error *err);
void worker_ties_free(struct pd_worker *w);
/* Gradients of the group (per chunk) on their way, once `ready`. */
int worker_ties_post(struct pd_worker *w, struct sum **sums, uint64_t tag,
		     const struct pd_event *ready);
/* What there is then to do on the stream, and one of that. */
int worker_ties_things(const struct pd_worker *w);
int worker_ties_issue(struct pd_worker *w, struct sum **sums, int n);

/* agree.c: nothing of it where the plan does not say so */
int worker_agree_new(struct pd_worker *w, struct pd_error *err);
void worker_agree_free(struct pd_worker *w);
/* How much it did, -1: broken. */
int worker_agree_progress(struct pd_worker *w);
/* Has some of it no place on the stream yet? */
bool worker_agreeing(const struct pd_worker *w);
/* The end of the last one; or NULL. */
struct mark *worker_agreed(struct pd_worker *w);
/* What an update of a chunk is told. */
void worker_fill_agreed(struct pd_worker *w, struct chunk *c, const void *from, void *to,
			struct pd_agreed *agreed);
/* Once a step that waited for it has retired: what it took, and what came of it; once. */
bool worker_agree_told(struct pd_worker *w, struct pd_record *record_p,
		       struct pd_outcome *outcome_p);

#endif
