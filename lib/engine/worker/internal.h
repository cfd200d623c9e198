/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations shared by the files of this folder. */
#pragma once

#include "base/mem.h"
#include "engine/reduce/queue.h"
#include "engine/reduce/sparse.h"
#include "engine/worker/worker.h"
#include "schedule/list.h"

/*
 * The tag of an all-reduce or agree is its number, shifted left by TAG_PLACES bits.  Those of an
 * all-reduce begin at TAG_ALLREDUCE.
 */
#define TAG_COLLECTIVE (UINT64_C(1) << 47)
#define TAG_EVALUATE   (UINT64_C(1) << 46)
#define TAG_NUMBER     (TAG_EVALUATE - 1)
#define TAG_PLACES     20
#define TAG_ALLREDUCE  PD_REDUCTION_TAGS

/*
 * The events of one use of a buffer, and the last operation that arms them or waits for them.  They
 * may be armed anew only after that operation has retired: then no stream and no transport uses
 * them any more.  What was received is the exception: see worker_behind.
 */
struct fence {
	struct pd_event *events;
	int64_t last_use;               /* number of the last operation, -1: none */
	int count;
	struct pd_event own;            /* what `events` points to if there is one; it must not be
					   moved */
};

/* A microbatch in the stage: its events and its inbox. */
struct microbatch {
	struct chunk *chunk;
	void *inbox;
	struct slot *slot;              /* of its newest forward or recompute */
	struct fence *received;		/* per link in */
	struct fence *sent;		/* per link out */
	struct fence *ended;		/* that of the last operation to use the inbox, or NULL */
	struct pd_batch *batch;
	struct fence forward;		/* with outboxes there are two events, the second for the
					   copy there */
	/* These take turns, because a receive that has not retired may wait for the one before. */
	struct fence backward[2];
	int turn;                       /* the number of the newest backward's */
	/* The rest is used less often. */
	struct fence weight;		/* a separate one if backward has two parts */
	struct fence loaded, recomputed;
	struct pd_loss *losses;         /* as many as sizes->loss_count */
};

/* The memory of a microbatch from forward to backward; or, for an outbox, until it is sent. */
struct slot {
	void *memory;
	struct microbatch *microbatch;	/* the last one that used it, or NULL */
};

/* Slots that a stage, or all stages of the rank, take and give back in the order of the list. */
struct pool {
	struct slot *slots;
	struct slot **free;             /* a ring of `count`: those that are free, for longest first */
	int count, first, free_count;
};

/* A buffer for gradients that arrive or leave. */
struct gradient_buffer {
	void *memory;
	struct fence *transfers;	/* per link */
	int64_t made;                   /* for those that leave: the operation that made them */
};

/* An operation that was issued; it fills a cache line. */
struct issued_op {
	struct pd_op op;
	struct fence *fence;		/* the operation has finished when these events are done */
};

/* The tensors of a link in this rank's buffers. */
struct stage_link {
	const struct pd_link *link;
	const struct pd_net_tensor **tensors;
	size_t *places;                 /* for those that leave: places in an outbox */
};

/*
 * The sums of gradients of a group.  There are two if the stage begins a group before the update of
 * the group before.
 */
#define SUMS 2

/* The fences of one bucket. */
struct bucket_sum {
	struct fence made;              /* by its part of a backward, if that is not the last part */
	struct fence summed;
	struct fence *ready;		/* done when the sum is complete; NULL: none so far */
};

struct sum {
	void *gradients;                /* of the group so far, or of one microbatch */
	/*
	 * The loss scale behind the gradients, if the ranks agree on updates.  It is a copy,
	 * because its version may be freed before the group's update.  NULL: none so far.
	 */
	struct pd_scale *scale;
	struct bucket_sum *buckets;
	int64_t group;                  /* number in the phase of the group that has it, or will next */
	int64_t backwards;              /* backwards of this replica so far */
};

/* A range of a stage's gradients that its replicas sum by itself. */
struct bucket {
	int first_layer, layer_count;   /* whose backward completes it */
	size_t begin, floats;
	struct pd_reduction *reduction; /* NULL: the stage has one replica */
	struct fence allreduce;
};

/* A stage on this rank.  There is one, or several with the interleaved schedule. */
struct chunk {
	const struct pd_net_sizes *sizes;
	const struct pd_stage *stage;
	int index, replicas;            /* of the stage */
	struct microbatch *microbatches;
	struct pool *pool, own_pool;
	void **kept;                    /* counts.kept of them: what layers keep that are not computed
					   again */
	struct slot *outboxes;          /* counts.outboxes of them, each of outbox_bytes */
	struct gradient_buffer *in, *out; /* gradients that arrive, that leave */
	int evaluated_first, evaluated_turn;    /* slots of the pool that an evaluation uses in turn */
	int microbatch_turn;            /* the same of inboxes; 0: a list assigns them to microbatches */
	int links_in_count, links_out_count;
	struct stage_link *links_in, *links_out;
	struct pd_buffer_counts counts;	/* how many buffers there are, and which microbatch has
					   which */
	struct pd_net *net;
	struct pd_loader *loader;
	struct bucket *buckets;         /* in the order of backward; at least one */
	int bucket_count;
	struct pd_weights weights;
	void *fresh;                    /* gradients of one microbatch, if a group has several of
					   the replica */
	struct sum sums[SUMS];
	/* The rest, and the second sum, are used less often. */
	int sum_count;
	size_t outbox_bytes;
	struct pd_arena_need arenas[PD_ARENAS];
	void *master;                   /* the parameters that are updated, if weights are rounded */
	void *state, *velocity, *second;        /* running statistics, moments; or NULL */
	int64_t delay;                  /* pd_schedule_delay */
	void *delta, *corrected;        /* for discrepancy correction, or NULL (discrepancy.c) */
	/* These take turns, because an update may end long before it retires. */
	struct fence step[2];
	int step_turn;                  /* the number of the newest update's */
	/* Only sparse sums have these; else they are NULL. */
	float *residual;
	void *chunk_table;              /* pd_plan_chunk_table_bytes */
	struct pd_reduction *norm_sum;
	struct fence norms;
};

struct pd_worker {
	int replica, chunk_count;
	struct chunk *chunks;
	struct pd_stream *compute, *reduce, *load;      /* load is NULL if copies are on compute */
	struct pd_stream *behind;       /* the device's; compute, or what is behind it (batch.c) */
	struct tied_weights *tied;	/* NULL: no layers have copies of shared parameters */
	struct global_norm *global_norm; /* NULL: each stage updates by itself */
	int64_t issued, retired;        /* operations since the worker was made */
	int64_t ring;                   /* most operations between these two */
	int64_t entry_count;            /* a power of two, which grows as needed */
	struct issued_op *entries;	/* number n in entries[n % entry_count] */
	enum pd_pause wanted, paused;   /* wanted: pause as soon as all operations have retired */
	const struct fence *until;      /* what `next` waits for; NULL: until others have retired */
	uint64_t tensors_most;          /* the most of a link, for tags */
	uint64_t sums_most;             /* the most of a group of any stage, for tags */
	void *scratch;                  /* shared by all chunks, which take turns */
	size_t checkpoint_count;

	bool running, exhausted, frozen, held, has_next;
	struct pd_reduction_queue reductions;   /* not all on the stream yet */
	struct pd_op next;              /* taken from the source, not yet issued */
	struct pd_phase phase;
	struct pd_op_source source;
	struct pd_worker_config config; /* the optimizer is its last member */

	/* The rest is used less often. */
	struct pd_scale first_scale;
	int64_t bytes;
	struct checkpoint {
		int64_t at;             /* -1: none */
		bool state_seen;
	} *checkpoints;
	size_t checkpoint_capacity;
	struct pd_arena arena;          /* used if the configuration names none; it also holds this
					   struct */
};

static inline struct issued_op *worker_entry(const struct pd_worker *w, int64_t n)
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

/* Returns the number of the microbatch among the replica's in this phase, from 0. */
static inline int64_t worker_local_number(const struct pd_worker *w, const struct chunk *c,
					  const struct pd_op *op)
{
	return (op->microbatch - w->phase.first) / c->replicas;
}

static inline struct microbatch *worker_microbatch(const struct pd_worker *w, const struct chunk *c,
						   const struct pd_op *op)
{
	int64_t i = worker_local_number(w, c, op);

	return &c->microbatches[c->microbatch_turn ? i % c->microbatch_turn
				: c->counts.buffers[i].inbox];
}

/*
 * Returns what a stage's replicas sum last, and so when all of it is summed: one stream does all
 * sums.  NULL: there is one replica.
 */
static inline struct fence *worker_allreduced(struct chunk *c)
{
	struct bucket *last = &c->buckets[c->bucket_count - 1];

	return last->reduction ? &last->allreduce : NULL;
}

/* These are the parts of a chunk table: where chunks are in a sum follows their norms. */
static inline float *worker_norms(const struct chunk *c)
{
	return c->chunk_table;
}

static inline int64_t worker_sparse_chunks(const struct pd_worker *w, const struct chunk *c)
{
	return c->chunk_table ? pd_plan_chunks(w->config.schedule->plan, (int64_t)(
			c->sizes->full_bytes / sizeof(float))) : 0;
}

static inline int32_t *worker_places(const struct pd_worker *w, const struct chunk *c)
{
	return c->chunk_table ? (int32_t *)(worker_norms(c) + worker_sparse_chunks(w, c)) : NULL;
}

/* Returns the scale behind a version of the weights, if the ranks agree on updates. */
static inline struct pd_scale *worker_scale(const struct chunk *c, const void *weights)
{
	size_t bytes = c->sizes->weights_bytes ? c->sizes->weights_bytes : PD_ALIGN;

	return (struct pd_scale *)((char *)weights + bytes);
}

/* Returns the scale behind a sum of gradients, if the ranks agree on updates. */
static inline struct pd_scale *worker_scale_of_sum(const struct chunk *c, const void *gradients)
{
	size_t bytes = c->sizes->full_bytes ? c->sizes->full_bytes : PD_ALIGN;

	return (struct pd_scale *)((char *)gradients + bytes);
}

/* memory.c */
int worker_take(struct pd_worker *w, size_t bytes, void *out_p, struct pd_error *err);
void worker_fence_init(struct pd_worker *w, struct fence *fence, int count);
/* Returns host memory, zeroed, which lives as long as the worker. */
void *worker_keep(struct pd_worker *w, int count, size_t bytes);
int worker_memory_new(struct pd_worker *w, struct pd_error *err);
void worker_memory_free(struct pd_worker *w);

/* batch.c: returns a stream that keeps works for another one until they are handed over */
struct pd_stream *worker_batch_new(struct pd_worker *w, struct pd_stream *stream);
/* Submits what the compute stream keeps: 0, PD_AGAIN (it is still kept) or -1. */
int worker_hand_over(struct pd_worker *w);

/* issue.c: issues operations, in order; returns 1: some, 0: none, -1: failed */
int worker_issue(struct pd_worker *w, struct pd_error *err);

/* retire.c: retires finished operations, in order; returns 1: some, 0: none, -1: one failed */
int worker_retire(struct pd_worker *w, struct pd_error *err);

/*
 * checkpoint.c: these pause the worker, if a checkpoint needs it, until all operations have
 * retired: before this operation (NULL: before the end), or after it.
 */
void worker_pause_before(struct pd_worker *w, const struct pd_op *op);
void worker_pause_after(struct pd_worker *w, const struct pd_op *op);

/* tied_weights.c: does nothing if no parameters are shared */
int worker_tied_new(struct pd_worker *w, struct pd_error *err);
void worker_tied_free(struct pd_worker *w);
/* Posts the transfers of the group's gradients (per chunk), which start when `ready` is done. */
int worker_tied_post(struct pd_worker *w, struct sum **sums, uint64_t tag,
		     const struct pd_event *ready);
/* These return the number of steps that then go on the stream, and issue one of them. */
int worker_tied_steps(const struct pd_worker *w);
int worker_tied_issue(struct pd_worker *w, struct sum **sums, int n);

/* Copies at once, behind what is queued on the compute stream; `what` begins an error. */
int worker_copy_now(struct pd_worker *w, void *to, const void *from, size_t bytes,
		    enum pd_copy way, const char *what, struct pd_error *err);

/* global_norm.c: does nothing if the plan does not say so */
int worker_global_norm_new(struct pd_worker *w, struct pd_error *err);
void worker_global_norm_free(struct pd_worker *w);
/* Returns how many steps it did; -1: broken. */
int worker_global_norm_progress(struct pd_worker *w);
/* Tells whether some steps are not on the stream yet. */
bool worker_global_norm_pending(const struct pd_worker *w);
/* Returns the end of the last one, or NULL. */
struct fence *worker_global_norm_done(struct pd_worker *w);
/* Sets what an update of a chunk needs. */
void worker_fill_global_norm(struct pd_worker *w, struct chunk *c, const void *from, void *to,
			     struct pd_global_norm *norm);
/*
 * After a step that waited for the agree has retired, returns the record and the outcome of the
 * agree; once.
 */
bool worker_global_norm_told(struct pd_worker *w, struct pd_record *record_p,
			     struct pd_outcome *outcome_p);
