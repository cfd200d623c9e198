/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual time: what is due, who waits for what. */
#include "device/sim/engine.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct waiter {
	struct waiter *next;
	struct pd_sim_thing *thing;
};

#define FIRST_SLAB 64
#define MANY_RANKS 1024         /* that have no room in a processor's own cache */

static void pool_fill(struct pd_pool *pool, size_t bytes)
{
	size_t count = (size_t)FIRST_SLAB << (pool->slab_count < 10 ? pool->slab_count : 10);
	char *objects = pd_arena_take(&pool->arena, count, bytes);

	pool->slab_count++;
	while (count-- > 0)
		pd_pool_return(pool, objects + count * bytes);
}

void *pd_pool_take(struct pd_pool *pool, size_t bytes)
{
	void *object;

	if (!pool->unused)
		pool_fill(pool, bytes);
	object = pool->unused;
	pool->unused = *(void **)object;
	__builtin_prefetch(pool->unused, 1);    /* for the next one */
	return object;
}

void pd_pool_release(struct pd_pool *pool)
{
	pd_arena_release(&pool->arena);
	pool->unused = NULL;
}

static bool before(const struct pd_sim_due *a, const struct pd_sim_due *b)
{
	return a->when_ns < b->when_ns || (a->when_ns == b->when_ns && a->order < b->order);
}

/* Four children per node: half the levels of a binary heap, and one cache line or two each. */
static void heap_push(struct pd_sim *sim, const struct pd_sim_due *due)
{
	size_t i = sim->heap_count++;

	sim->heap = pd_grow(sim->heap, &sim->heap_capacity, sim->heap_count, sizeof(*sim->heap));
	while (i > 0 && before(due, &sim->heap[(i - 1) / 4])) {
		sim->heap[i] = sim->heap[(i - 1) / 4];
		i = (i - 1) / 4;
	}
	sim->heap[i] = *due;
}

static struct pd_sim_due heap_pop(struct pd_sim *sim)
{
	struct pd_sim_due *heap = sim->heap;
	struct pd_sim_due first = heap[0];
	size_t n = --sim->heap_count, i = 0;
	struct pd_sim_due last = heap[n];

	for (size_t child; (child = 4 * i + 1) < n;) {
		size_t end = child + 4 < n ? child + 4 : n, least = child;

		while (++child < end)
			if (before(&heap[child], &heap[least]))
				least = child;
		if (!before(&heap[least], &last))
			break;
		heap[i] = heap[least];
		i = least;
	}
	heap[i] = last;
	return first;
}

static struct pd_sim_due *soon(struct pd_sim *sim, uint32_t i)
{
	return &sim->soon[(sim->soon_first + i) % PD_SIM_SOON];
}

/*
 * With thousands of ranks nearly all that an event touches has left the processor's caches
 * since it was touched last.  What comes next is known, so it is asked for while there is other
 * work, step by step, since each step finds its addresses in what the one before asked for.
 */
static void look_ahead(struct pd_sim *sim, const struct pd_sim_due *due, int step)
{
	const struct pd_sim_thing *thing = due->thing;
	const struct pd_event *event;

	if (step == 0) {
		__builtin_prefetch(thing, 1);
		return;
	}
	event = thing->event;
	if (step == 1)
		__builtin_prefetch(event, 1);
	else if (step == 2 && event)
		__builtin_prefetch(event->native, 1);
	else if (step == 3 && event && event->native)
		__builtin_prefetch(((const struct waiter *)event->native)->thing, 1);
	/* who waits for something else is not woken by it */
	if (sim->ahead && (!sim->awaited[thing->rank] || sim->awaited[thing->rank] == event))
		sim->ahead(sim->ahead_context, thing->rank, step - 1);
}

static void refill(struct pd_sim *sim)
{
	while (sim->heap_count > 0 && sim->soon_count < PD_SIM_SOON)
		*soon(sim, sim->soon_count++) = heap_pop(sim);
}

/* Into its place among those that come soonest, if that is where it belongs. */
static bool comes_soon(struct pd_sim *sim, const struct pd_sim_due *due)
{
	uint32_t i = sim->soon_count;

	if (i == 0 ? sim->heap_count > 0 : sim->heap_count > 0 && !before(due, soon(sim, i - 1)))
		return false;
	if (i == PD_SIM_SOON) {
		if (!before(due, soon(sim, i - 1)))
			return false;
		heap_push(sim, soon(sim, --i));
	} else {
		sim->soon_count++;
	}
	for (; i > 0 && before(due, soon(sim, i - 1)); i--)
		*soon(sim, i) = *soon(sim, i - 1);
	*soon(sim, i) = *due;
	return true;
}

static struct pd_sim_thing *take_soonest(struct pd_sim *sim)
{
	struct pd_sim_thing *thing = soon(sim, 0)->thing;

	sim->soon_first = (sim->soon_first + 1) % PD_SIM_SOON;
	sim->soon_count--;
	refill(sim);
	for (uint32_t i = 0; sim->many && i < sim->soon_count; i++) {
		struct pd_sim_due *due = soon(sim, i);

		if (due->step < PD_SIM_STEPS)
			look_ahead(sim, due, due->step++);
	}
	return thing;
}

void pd_sim_at(struct pd_sim *sim, struct pd_sim_thing *thing, int64_t when_ns)
{
	struct pd_sim_due due = { .when_ns = when_ns, .order = sim->order++, .thing = thing };

	if (when_ns > sim->now_ns) {
		if (!comes_soon(sim, &due))
			heap_push(sim, &due);
		return;
	}
	sim->today = pd_grow(sim->today, &sim->today_capacity, sim->today_count + 1,
			     sizeof(*sim->today));
	sim->today[sim->today_count++] = thing;
}

void pd_sim_await(struct pd_sim *sim, struct pd_sim_thing *thing, const struct pd_event *ev)
{
	struct pd_event *event = (struct pd_event *)ev;         /* only native changes */
	struct waiter *w, *last;

	if (!ev || pd_event_done(ev))
		return;
	thing->waits++;
	w = pd_pool_take(&sim->waiters, sizeof(*w));
	w->thing = thing;
	last = event->native;
	if (last) {
		w->next = last->next;
		last->next = w;
	} else {
		w->next = w;
	}
	event->native = w;
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

void pd_sim_complete(struct pd_sim *sim, int rank, struct pd_event *ev, int64_t start_ns,
		     int64_t end_ns)
{
	struct waiter *last, *w, *next;

	if (!ev)
		return;
	last = ev->native;
	ev->native = NULL;
	pd_event_complete(ev, start_ns, end_ns, NULL);
	if (sim->share_count > 0 && sim->operation_ns > 0)
		pd_sim_work_aside(sim, rank);
	if (!sim->awaited[rank] || sim->awaited[rank] == ev)
		mark_ready(sim, rank);
	if (!last)
		return;
	next = last->next;
	do {
		struct pd_sim_thing *thing;

		w = next;
		next = w->next;
		thing = w->thing;
		pd_pool_return(&sim->waiters, w);
		pd_sim_let(sim, thing);
	} while (w != last);
}

bool pd_sim_advance(struct pd_sim *sim)
{
	struct pd_sim_thing *thing;

	if (sim->today_count == 0) {
		if (sim->soon_count == 0)
			return false;
		sim->now_ns = soon(sim, 0)->when_ns;
	}
	while (sim->soon_count > 0 && soon(sim, 0)->when_ns == sim->now_ns) {
		thing = take_soonest(sim);
		thing->next(sim, thing);
	}
	while (sim->today_first < sim->today_count) {
		thing = sim->today[sim->today_first++];
		thing->next(sim, thing);
	}
	sim->today_first = sim->today_count = 0;
	return true;
}

int64_t pd_sim_now_ns(const struct pd_sim *sim)
{
	return sim->now_ns;
}
