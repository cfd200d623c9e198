/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual time: activities that are due, and events with their waiters. */
#include "engine/device/sim/engine.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/*
 * A waiter stands for an activity whose ring is taken.  A ring pointer to a waiter has its lowest
 * bit set.
 */
struct waiter {
	void *ring;                     /* as in an activity */
	struct pd_sim_activity *activity;
};

#define FIRST_SLAB 64
#define MANY_RANKS 1024         /* the data of more ranks does not fit a processor's own cache */
#define CHILDREN 4

void pd_pool_fill(struct pd_pool *pool, size_t bytes)
{
	size_t count = (size_t)FIRST_SLAB << (pool->slab_count < 10 ? pool->slab_count : 10);
	char *objects = pd_arena_take(&pool->arena, count, bytes);

	pool->slab_count++;
	while (count-- > 0)
		pd_pool_return(pool, objects + count * bytes);
}

void pd_pool_release(struct pd_pool *pool)
{
	pd_arena_release(&pool->arena);
	pool->unused = NULL;
}

static inline bool before(const struct pd_sim_due *a, const struct pd_sim_due *b)
{
	unsigned __int128 x = (unsigned __int128)(uint64_t)a->when_ns << 64 | a->order;
	unsigned __int128 y = (unsigned __int128)(uint64_t)b->when_ns << 64 | b->order;

	return x < y;
}

/* Keeps entries behind the last one that are never due, as many as a node has children. */
static void heap_grow(struct pd_sim *sim)
{
	size_t old = sim->heap_capacity;

	sim->heap = pd_grow(sim->heap, &sim->heap_capacity, sim->heap_count + CHILDREN + 1,
			    sizeof(*sim->heap));
	for (size_t i = old; i < sim->heap_capacity; i++)
		sim->heap[i].when_ns = INT64_MAX;
}

/* A node has four children: half the levels of a binary heap, with one or two cache lines each. */
static void heap_push(struct pd_sim *sim, const struct pd_sim_due *due)
{
	size_t i = sim->heap_count;

	if (i + CHILDREN + 1 > sim->heap_capacity)
		heap_grow(sim);
	sim->heap_count++;
	while (i > 0 && before(due, &sim->heap[(i - 1) / CHILDREN])) {
		sim->heap[i] = sim->heap[(i - 1) / CHILDREN];
		i = (i - 1) / CHILDREN;
	}
	sim->heap[i] = *due;
}

static struct pd_sim_activity *heap_pop(struct pd_sim *sim)
{
	struct pd_sim_due *heap = sim->heap, *child;
	struct pd_sim_activity *first = heap[0].activity;
	size_t n = --sim->heap_count, i = 0;
	struct pd_sim_due last = heap[n];

	heap[n].when_ns = INT64_MAX;
	for (; CHILDREN * i + 1 < n; i = (size_t)(child - heap)) {
		struct pd_sim_due *a = &heap[CHILDREN * i + 1], *b = a + 2;

		a += before(a + 1, a);
		b += before(b + 1, b);
		child = before(b, a) ? b : a;
		if (!before(child, &last))
			break;
		heap[i] = *child;
	}
	if (n > 0)
		heap[i] = last;
	return first;
}

static void *ring_of(struct pd_sim_activity *activity)
{
	return activity;
}

static void *ring_of_waiter(struct waiter *waiter)
{
	return (void *)((uintptr_t)waiter | 1);
}

/* Returns the waiter that a ring pointer leads to; NULL: it leads to an activity. */
static inline struct waiter *waiter_of(void *ring)
{
	uintptr_t address = (uintptr_t)ring;

	return address & 1 ? (struct waiter *)(address - 1) : NULL;
}

/* Returns where the ring's next pointer is stored. */
static inline void **goes_on(void *ring)
{
	struct waiter *waiter = waiter_of(ring);

	return waiter ? &waiter->ring : &((struct pd_sim_activity *)ring)->ring;
}

/*
 * With thousands of ranks, nearly all memory that an event touches has left the processor's caches
 * since the last touch.  As soon as an event is known to come, this prefetches what the event will
 * touch, step by step: each step finds its addresses in memory that the step before has fetched.  A
 * step is made each time another event becomes known.
 */
static void look_ahead(struct pd_sim *sim, const struct pd_sim_activity *activity)
{
	uint32_t newest = sim->coming = (sim->coming + 1) % PD_SIM_COMING;

	sim->comings[newest].event = activity->event;
	sim->comings[newest].rank = activity->rank;
	for (int step = 0; step < PD_SIM_COMING; step++) {
		uint32_t i = (newest - (uint32_t)step) % PD_SIM_COMING;
		const struct pd_event *event = sim->comings[i].event;
		int rank = sim->comings[i].rank;
		const void *ring;

		if (!event)
			continue;
		if (step == 0) {
			__builtin_prefetch(event, 1);
		} else if (step == 1 && !pd_event_done(event)) {
			ring = event->native;
			__builtin_prefetch((const void *)((uintptr_t)ring & ~(uintptr_t)1), 1);
		}
		/* a rank that awaits another event is not woken by this one */
		if (sim->ahead && step < 3 &&
		    (!sim->awaited[rank] || sim->awaited[rank] == event))
			sim->ahead(sim->ahead_context, rank, step);
	}
}

void pd_sim_at(struct pd_sim *sim, struct pd_sim_activity *activity, int64_t when_ns)
{
	if (when_ns > sim->now_ns) {
		struct pd_sim_due due = { .when_ns = when_ns, .order = sim->order++,
					  .activity = activity };

		heap_push(sim, &due);
		if (sim->many)
			look_ahead(sim, activity);
		return;
	}
	if (sim->today_count == sim->today_capacity)
		sim->today = pd_grow(sim->today, &sim->today_capacity, sim->today_count + 1,
				     sizeof(*sim->today));
	sim->today[sim->today_count++] = activity;
}

void pd_sim_await(struct pd_sim *sim, struct pd_sim_activity *activity, const struct pd_event *ev)
{
	struct pd_event *event = (struct pd_event *)ev;         /* only native changes */
	struct waiter *waiter;
	void *ring, **last;

	if (!ev || pd_event_done(ev))
		return;
	activity->waits++;
	if (!activity->ringed) {
		activity->ringed = true;
		ring = ring_of(activity);
	} else {
		waiter = pd_pool_take(&sim->waiters, sizeof(*waiter));
		waiter->activity = activity;
		ring = ring_of_waiter(waiter);
	}
	if (event->native) {
		last = goes_on(event->native);
		*goes_on(ring) = *last;
		*last = ring;
	} else {
		*goes_on(ring) = ring;
	}
	event->native = ring;
}

static void mark_ready(struct pd_sim *sim, int rank)
{
	int end = sim->ready_first + sim->ready_count;

	if (sim->is_ready[rank])
		return;
	sim->is_ready[rank] = true;
	sim->ready[end < sim->rank_count ? end : end - sim->rank_count] = rank;
	sim->ready_count++;
}

void pd_sim_awaits(struct pd_sim *sim, int rank, const struct pd_event *ev)
{
	sim->awaited[rank] = ev;
}

void pd_sim_look_ahead(struct pd_sim *sim, void (*ahead)(void *context, int rank, int step),
		       void *context)
{
	sim->ahead = ahead;
	sim->ahead_context = context;
	sim->many = sim->rank_count >= MANY_RANKS;
}

int pd_sim_ready(struct pd_sim *sim)
{
	int rank;

	if (sim->ready_count == 0)
		return -1;
	rank = sim->ready[sim->ready_first];
	if (++sim->ready_first == sim->rank_count)
		sim->ready_first = 0;
	sim->ready_count--;
	sim->is_ready[rank] = false;
	return rank;
}

/* Lets waiters go on in the order in which they came. */
static void let_waiters(struct pd_sim *sim, void *last)
{
	void *next = *goes_on(last), *ring;

	do {
		struct waiter *waiter = waiter_of(next);
		struct pd_sim_activity *activity = waiter ? waiter->activity : next;

		ring = next;
		next = *goes_on(ring);
		if (waiter)
			pd_pool_return(&sim->waiters, waiter);
		else
			activity->ringed = false;
		pd_sim_let(sim, activity);
	} while (ring != last);
}

void pd_sim_complete(struct pd_sim *sim, int rank, struct pd_event *ev, int64_t start_ns,
		     int64_t end_ns)
{
	void *last;

	if (!ev)
		return;
	last = ev->native;
	ev->native = NULL;
	pd_event_end(ev, start_ns, end_ns);
	if (sim->shared && sim->operation_ns > 0)
		pd_sim_work_aside(sim, rank, sim->operation_ns);
	if (!sim->awaited[rank] || sim->awaited[rank] == ev)
		mark_ready(sim, rank);
	if (last)
		let_waiters(sim, last);
}

bool pd_sim_advance(struct pd_sim *sim)
{
	struct pd_sim_activity *activity;

	if (sim->today_count == 0) {
		if (sim->heap_count == 0)
			return false;
		sim->now_ns = sim->heap[0].when_ns;
	}
	while (sim->heap_count > 0 && sim->heap[0].when_ns == sim->now_ns) {
		activity = heap_pop(sim);
		activity->next(sim, activity);
	}
	while (sim->today_first < sim->today_count) {
		activity = sim->today[sim->today_first++];
		activity->next(sim, activity);
	}
	sim->today_first = sim->today_count = 0;
	return true;
}

int64_t pd_sim_now_ns(const struct pd_sim *sim)
{
	return sim->now_ns;
}
