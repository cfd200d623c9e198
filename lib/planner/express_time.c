/* SPDX-License-Identifier: Apache-2.0 */
/* Time and links for express.c: the rules of lib/device/sim and lib/transport/sim. */
#include "planner/express_time.h"

#include "base/mem.h"

#include <stdlib.h>

static bool before(const struct pd_due *a, const struct pd_due *b)
{
	return a->when_ns < b->when_ns || (a->when_ns == b->when_ns && a->order < b->order);
}

static struct pd_due *due_at(const struct pd_dues *dues, uint32_t i)
{
	return &dues->list[(dues->first + i) & (dues->room - 1)];
}

static void grow(struct pd_dues *dues)
{
	uint32_t room = dues->room ? 2 * dues->room : 64;
	struct pd_due *list = pd_calloc(room, sizeof(*list));

	for (uint32_t i = 0; i < dues->count; i++)
		list[i] = *due_at(dues, i);
	free(dues->list);
	*dues = (struct pd_dues){ 0, dues->count, room, list };
}

static void put(struct pd_dues *dues, const struct pd_due *due)
{
	uint32_t i;

	if (dues->count == dues->room)
		grow(dues);
	for (i = dues->count++; i > 0 && before(due, due_at(dues, i - 1)); i--)
		*due_at(dues, i) = *due_at(dues, i - 1);
	*due_at(dues, i) = *due;
}

/* At a time, now or later; what is now comes behind all that is due at this time. */
static void at(struct pd_express_clock *clock, struct pd_doing *doing, int64_t when_ns)
{
	if (when_ns > clock->now_ns) {
		put(doing->kind == PD_DOING_TASK ? &clock->tasks : &clock->transfers,
		    &(struct pd_due){ when_ns, clock->order++, doing });
		return;
	}
	if (clock->today_count == clock->today_capacity)
		clock->today = pd_grow(clock->today, &clock->today_capacity,
				       clock->today_count + 1, sizeof(struct pd_doing *));
	clock->today[clock->today_count++] = doing;
}

/* Bits of those that wait, in words, and behind them one for each word. */
static void wait_at(struct pd_express_clock *clock, struct pd_one_way *link, struct pd_doing *x)
{
	uint32_t turn = (uint32_t)x->order & (clock->turn_count - 1), word = turn / 64;
	struct pd_doing **at = &clock->turns[turn];

	if (*at && *at != x) {
		clock->lost = true;
		return;
	}
	*at = x;
	link->waiting[word] |= UINT64_C(1) << turn % 64;
	link->waiting[clock->turn_count / 64 + word / 64] |= UINT64_C(1) << word % 64;
	link->count++;
}

/* The first word, of a ring of words, at or behind one that is not 0; there is one. */
static uint32_t next_word(const struct pd_express_clock *clock, const struct pd_one_way *link,
			  uint32_t from)
{
	const uint64_t *some = link->waiting + clock->turn_count / 64;
	uint32_t words = (clock->turn_count / 64 + 63) / 64, i = from / 64;
	uint64_t bits = from < clock->turn_count / 64 ? some[i] & UINT64_MAX << from % 64 : 0;

	for (uint32_t n = 0; !bits && n <= words; n++) {
		i = i + 1 < words ? i + 1 : 0;
		bits = some[i];
	}
	return 64 * i + (uint32_t)__builtin_ctzll(bits);
}

/* The one that was ready first. */
static struct pd_doing *take_first(struct pd_express_clock *clock, struct pd_one_way *link)
{
	uint32_t oldest = (uint32_t)clock->ready & (clock->turn_count - 1), word = oldest / 64;
	uint64_t bits = link->waiting[word] & UINT64_MAX << oldest % 64;
	struct pd_doing *first;

	if (!bits) {
		word = next_word(clock, link, word + 1);
		bits = link->waiting[word];
	}
	first = clock->turns[64 * word + (uint32_t)__builtin_ctzll(bits)];
	link->waiting[word] &= ~(bits & -bits);
	if (!link->waiting[word])
		link->waiting[clock->turn_count / 64 + word / 64] &= ~(UINT64_C(1) << word % 64);
	link->count--;
	return first;
}

/* Takes all its links if they are free, else waits at the first that is not. */
static void try_start(struct pd_express_clock *clock, struct pd_doing *x, bool newcomer)
{
	const struct pd_way *way = x->way;

	for (int i = 0; i < way->count; i++) {
		struct pd_one_way *link = &clock->links[way->links[i]];

		if (link->busy || (newcomer && link->count > 0)) {
			wait_at(clock, link, x);
			return;
		}
	}
	for (int i = 0; i < way->count; i++)
		clock->links[way->links[i]].busy = true;
	if (!newcomer)
		clock->turns[x->order & (clock->turn_count - 1)] = NULL;
	at(clock, x, clock->now_ns + x->duration_ns);
}

static void give_out(struct pd_express_clock *clock)
{
	for (struct pd_one_way *link; (link = clock->first_freed);) {
		clock->first_freed = link->next_freed;
		while (!link->busy && link->count > 0)
			try_start(clock, take_first(clock, link), false);
	}
	clock->last_freed = NULL;
}

static void free_links(struct pd_express_clock *clock, const struct pd_way *way)
{
	for (int i = 0; i < way->count; i++) {
		struct pd_one_way *link = &clock->links[way->links[i]];

		link->busy = false;
		if (link->count == 0)
			continue;
		link->next_freed = NULL;
		if (clock->last_freed) {
			clock->last_freed->next_freed = link;
		} else {
			clock->first_freed = link;
			at(clock, NULL, clock->now_ns);
		}
		clock->last_freed = link;
	}
}

static void tell(struct pd_express_clock *clock, const struct pd_told *told)
{
	if (told->rank >= 0) {
		pd_express_done(clock, told);
		return;
	}
	for (int i = 0; i < told->count; i++)
		pd_clock_let(clock, told->list[i]);
}

void pd_clock_begin(struct pd_express_clock *clock, struct pd_doing *doing)
{
	switch ((enum pd_doing_kind)doing->kind) {
	case PD_DOING_TASK:
		at(clock, doing, clock->now_ns + doing->duration_ns);
		break;
	case PD_DOING_TRANSFER:
		doing->order = clock->ready++;
		try_start(clock, doing, true);
		break;
	case PD_DOING_HOOK:
		tell(clock, &doing->told);
		break;
	}
}

static void task_end(struct pd_express_clock *clock, struct pd_doing *task)
{
	struct pd_work_queue *queue = task->queue;

	queue->first = task->next;
	if (!queue->first)
		queue->last = NULL;
	tell(clock, &task->told);
	if (queue->first)
		pd_clock_let(clock, queue->first);
}

static void arrive(struct pd_express_clock *clock, struct pd_doing *x)
{
	x->posted = x->left = 0;
	x->waits = x->all;
	tell(clock, &x->received);
}

static void happen(struct pd_express_clock *clock, struct pd_doing *doing)
{
	if (!doing) {
		give_out(clock);
	} else if (doing->kind == PD_DOING_TASK) {
		task_end(clock, doing);
	} else if (doing->left) {
		arrive(clock, doing);
	} else {
		doing->left = 1;
		free_links(clock, doing->way);
		tell(clock, &doing->told);
		if (doing->way->latency_ns > 0)
			at(clock, doing, clock->now_ns + doing->way->latency_ns);
		else
			arrive(clock, doing);
	}
}

/* What is due next, or NULL. */
static struct pd_dues *soonest(struct pd_express_clock *clock)
{
	struct pd_dues *tasks = &clock->tasks, *transfers = &clock->transfers;

	if (transfers->count == 0)
		return tasks->count > 0 ? tasks : NULL;
	return tasks->count > 0 && before(due_at(tasks, 0), due_at(transfers, 0)) ? tasks
										  : transfers;
}

bool pd_clock_advance(struct pd_express_clock *clock)
{
	struct pd_dues *next = soonest(clock);

	if (clock->today_count == 0) {
		if (!next)
			return false;
		clock->now_ns = due_at(next, 0)->when_ns;
	}
	for (; next && due_at(next, 0)->when_ns == clock->now_ns; next = soonest(clock)) {
		struct pd_doing *doing = due_at(next, 0)->doing;

		next->first = (next->first + 1) & (next->room - 1);
		next->count--;
		happen(clock, doing);
	}
	while (clock->today_first < clock->today_count)
		happen(clock, clock->today[clock->today_first++]);
	clock->today_first = clock->today_count = 0;
	return true;
}

void pd_clock_queue(struct pd_express_clock *clock, struct pd_work_queue *queue,
		    struct pd_doing *task)
{
	task->queue = queue;
	task->next = NULL;
	if (queue->last) {
		queue->last->next = task;
		queue->last = task;
		return;
	}
	queue->first = queue->last = task;
	pd_clock_let(clock, task);
}

/* Rounded up, as pd_topology_transfer_ns does. */
int64_t pd_way_ns(const struct pd_way *way, int64_t bytes)
{
	int64_t bandwidth = way->bandwidth, scaled;

	if (bandwidth == INT64_MAX)
		return 0;
	if (pd_mul(bytes, 1000000000, &scaled) && pd_add(scaled, bandwidth - 1, &scaled))
		return scaled / bandwidth;
	return (int64_t)(((__int128)bytes * 1000000000 + bandwidth - 1) / bandwidth);
}

const struct pd_way *pd_clock_way(struct pd_express_clock *clock, int from, int to)
{
	const struct pd_topology *topology = clock->topology;
	struct pd_way *way = &clock->ways[(size_t)from * (size_t)clock->rank_count + (size_t)to];
	int64_t a = from, b = to, narrowest = INT64_MAX;

	if (way->count >= 0)
		return way;
	*way = (struct pd_way){ .bandwidth = INT64_MAX };
	for (int k = 0; k < topology->levels && a != b; k++) {
		const struct pd_level *level = &topology->level[k];

		if (level->bandwidth_bytes_per_s > 0) {
			way->links[way->count++] = (uint16_t)(clock->first_link[k] + 2 * a);
			way->links[way->count++] = (uint16_t)(clock->first_link[k] + 2 * b + 1);
			if (level->bandwidth_bytes_per_s < narrowest)
				narrowest = level->bandwidth_bytes_per_s;
		}
		way->bandwidth = narrowest;
		way->latency_ns = level->latency_ns;
		a /= level->count;
		b /= level->count;
	}
	return way;
}

void pd_clock_init(struct pd_express_clock *clock, const struct pd_topology *topology,
		   int rank_count)
{
	int64_t components = rank_count, links = 0;
	size_t pairs = (size_t)rank_count * (size_t)rank_count;

	*clock = (struct pd_express_clock){ .topology = topology, .rank_count = rank_count };
	for (int k = 0; k < topology->levels; k++) {
		clock->first_link[k] = links;
		links += 2 * components;
		components = (components + topology->level[k].count - 1) / topology->level[k].count;
	}
	clock->link_count = (size_t)links;
	clock->links = pd_calloc(clock->link_count, sizeof(*clock->links));
	clock->ways = pd_calloc(pairs, sizeof(*clock->ways));
	for (size_t i = 0; i < pairs; i++)
		clock->ways[i].count = -1;
}

void pd_clock_expect(struct pd_express_clock *clock, size_t transfers)
{
	size_t words;

	for (clock->turn_count = 4096; clock->turn_count < 2 * transfers;)
		clock->turn_count *= 2;
	words = clock->turn_count / 64 + (clock->turn_count / 64 + 63) / 64;
	clock->turns = pd_calloc(clock->turn_count, sizeof(struct pd_doing *));
	clock->bits = pd_calloc(clock->link_count * words, sizeof(*clock->bits));
	for (size_t i = 0; i < clock->link_count; i++)
		clock->links[i].waiting = clock->bits + i * words;
}

void pd_clock_release(struct pd_express_clock *clock)
{
	free(clock->links);
	free(clock->bits);
	free(clock->turns);
	free(clock->ways);
	free(clock->tasks.list);
	free(clock->transfers.list);
	free(clock->today);
	pd_arena_release(&clock->arena);
}
