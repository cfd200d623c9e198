/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine runs activities at a time, or when the events they wait for are done.  Only the
 * simulated device and the simulated transport use it.
 *
 * An activity waits for `waits` reasons; when the last one is gone, its `next` is called.  That may
 * name a time with pd_sim_at(), at which `next` (by then another function) is called.  No function
 * called in this way completes an event before pd_sim_advance() runs, so nothing here recurses.
 *
 * The `native` of a pending event leads to the last of its waiters.  These form a ring, so that
 * they go on in the order in which they came.  A waiter is the activity itself, by its `ring`, or,
 * where that is taken, a struct waiter that names the activity.
 */
#pragma once

#include "base/arena.h"
#include "engine/device/sim/sim.h"

/* A pool has objects of one size, which are freed at the end only. */
struct pd_pool {
	void *unused;                   /* a list of unused objects */
	struct pd_arena arena;
	int slab_count;                 /* the first slabs double in size */
};

void pd_pool_fill(struct pd_pool *pool, size_t bytes);
void pd_pool_release(struct pd_pool *pool);

/*
 * Returns an object with undefined contents.  `bytes` is always the same: the size of a struct with
 * pointers.
 */
static inline void *pd_pool_take(struct pd_pool *pool, size_t bytes)
{
	void *object;

	if (!pool->unused)
		pd_pool_fill(pool, bytes);
	object = pool->unused;
	pool->unused = *(void **)object;
	__builtin_prefetch(pool->unused, 1);    /* for the next call */
	return object;
}

static inline void pd_pool_return(struct pd_pool *pool, void *object)
{
	*(void **)object = pool->unused;
	pool->unused = object;
}

struct pd_sim_activity {
	void (*next)(struct pd_sim *sim, struct pd_sim_activity *activity);
	struct pd_event *event;         /* completed by `next`; NULL: none */
	void *ring;	/* ring of waiters while `ringed` is set; else for the owner's use */
	int32_t rank;                   /* the event is this rank's */
	uint32_t waits : 31;
	uint32_t ringed : 1;
};

#define PD_SIM_COMING 4                 /* events to look ahead at; a power of two */

/* Calls `next` at that time, which is now or later. */
void pd_sim_at(struct pd_sim *sim, struct pd_sim_activity *activity, int64_t when_ns);
/* Adds a reason to wait, if the event is pending (and not NULL). */
void pd_sim_await(struct pd_sim *sim, struct pd_sim_activity *activity, const struct pd_event *ev);
/* Removes a reason to wait. */
static inline void pd_sim_let(struct pd_sim *sim, struct pd_sim_activity *activity)
{
	if (--activity->waits == 0)
		activity->next(sim, activity);
}

/* Completes a rank's event (or NULL), and lets its waiters go on. */
void pd_sim_complete(struct pd_sim *sim, int rank, struct pd_event *ev, int64_t start_ns,
		     int64_t end_ns);

/* Does pd_sim_work() where processors are shared and the work takes time. */
void pd_sim_work_shared(struct pd_sim *sim, struct pd_sim_activity *activity, int rank,
			int64_t threads, int64_t duration_ns);
/* Charges a thread of the rank with work from now on for which nobody waits. */
void pd_sim_work_aside(struct pd_sim *sim, int rank, int64_t duration_ns);
/* Lets each rank have processors of its own, on which computing is slower while bytes come or leave. */
void pd_sim_slow_beside_transfers(struct pd_sim *sim, double factor);
/* Bytes begin (1) or end (-1) to come to or leave a rank. */
void pd_sim_travels(struct pd_sim *sim, int rank, int change);
void pd_sim_free_processors(struct pd_sim *sim);

/* An activity that is due at a time. */
struct pd_sim_due {
	int64_t when_ns;
	uint64_t order;                 /* of insertion, for equal times */
	struct pd_sim_activity *activity;
};

/* Factors and delays that replicas of a rank's stages cost each other (struct pd_in_step). */
struct pd_sim_replicas {
	double forward, backward, update;       /* times as long as in the profile; 1 or more */
	int64_t slowest_ns;             /* how long a sum of gradients waits for the slowest */
	int first;                      /* first rank of the stage: the same for all of them */
};

/* A kind of device: times of all layers before each one, layer_count + 1 entries. */
struct pd_sim_kind {
	const struct pd_profile *profile;       /* borrowed: speeds of sums */
	int64_t *forward_ns, *again_ns, *backward_ns, *update_ns, *update_apart_ns;
	int64_t *input_ns, *weight_ns;  /* parts of backward */
};

struct pd_sim_device {
	struct pd_device base;
	struct pd_sim *sim;
	const struct pd_sim_kind *kind;
	int64_t direct_bytes_per_s;     /* of sums with its stage's other replicas (struct pd_members) */
	int rank;
	struct pd_sim_replicas replicas;
	int64_t bytes;
	uint64_t next_address;
	size_t block_count, block_capacity;
	struct pd_sim_block { uint64_t address; int64_t bytes; } *blocks;    /* ascending */
};

struct pd_sim_net {
	struct pd_net base;
	const struct pd_net_sizes *sizes;       /* of the stage */
	struct pd_tied_layer *tied_layers;
	int tied_layer_count;
};

struct pd_sim {
	int64_t now_ns;
	uint64_t order;
	struct pd_sim_due *heap;        /* entries behind the last are never due */
	size_t heap_count, heap_capacity;
	struct pd_sim_activity **today;	/* due now, after those of the heap: a queue */
	size_t today_first, today_count, today_capacity;
	struct pd_pool waiters, tasks, wakes, asides;
	struct pd_arena streams;
	struct pd_sim_fabric *fabric;   /* between the devices; or NULL */
	struct pd_sim_share *shares;    /* of the processors; rank r has share r mod share_count */
	int share_count;                /* 0: every rank has processors enough of its own, at one pace */
	bool shared;                    /* ranks share processors (pd_sim_set_processors()) */
	double beside_transfers;        /* from the profile, 1 or more; only where they do not */
	int64_t threads;                /* that a rank computes with */
	double in_turns;                /* from the profile */
	/* From the profile; these count where processors are shared. */
	int64_t operation_ns;
	int64_t launch_ns;              /* from the profile, wherever a stream was idle */
	int64_t copied_bytes_per_s;     /* by a link of shared memory; 0: unknown */
	struct pd_members direct;       /* who sums in each other's memory, but for ranks, count and speed */
	bool computed;                  /* what is let go now waited for the end of computing */

	/* for pd_sim_look_ahead() */
	void (*ahead)(void *context, int rank, int step);
	void *ahead_context;
	bool many;
	uint32_t coming;                /* index of the newest */
	struct { const struct pd_event *event; int rank; } comings[PD_SIM_COMING];

	int rank_count;
	int32_t *ready;                 /* a queue of ranks, each at most once */
	int ready_first, ready_count;
	bool *is_ready;
	const struct pd_event **awaited;        /* per rank, for pd_sim_awaits() */

	struct pd_sim_device *devices;
	struct pd_sim_net *nets;
	int stage_count;
	struct pd_net_sizes *sizes;     /* per stage */
	int kind_count;
	struct pd_sim_kind *kinds;
};

/*
 * Calls `next` when the rank's work on so many threads is done: after its duration, or later where
 * processors are shared (pd_sim_set_processors()).
 */
static inline void pd_sim_work(struct pd_sim *sim, struct pd_sim_activity *activity, int rank,
			       int64_t threads, int64_t duration_ns)
{
	if (!sim->shared || duration_ns == 0)
		pd_sim_at(sim, activity, sim->now_ns + duration_ns);
	else
		pd_sim_work_shared(sim, activity, rank, threads, duration_ns);
}

/* Does the same for a computation, which also takes longer while bytes come or leave (pd_sim_travels()). */
static inline void pd_sim_compute(struct pd_sim *sim, struct pd_sim_activity *activity, int rank,
				  int64_t duration_ns)
{
	if (sim->share_count == 0 || duration_ns == 0)
		pd_sim_at(sim, activity, sim->now_ns + duration_ns);
	else
		pd_sim_work_shared(sim, activity, rank, sim->threads, duration_ns);
}
