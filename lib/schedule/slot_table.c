/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/slot_table.h"

#include "base/mem.h"
#include "schedule/count.h"

#include <inttypes.h>
#include <stdlib.h>

#define MOST_SLOTS (1 << 24)    /* microbatches times stages, of which tables are kept */
/* Of a group of 10 p microbatches the beginning, the end and, between them, what is repeated. */
#define PARTS 10
#define BEGINNING 3
#define MIDDLE 5
#define END 7

static int64_t slot(const struct pd_slot_table *table, int pass, int s, int64_t i)
{
	return *pd_order_time(&table->slots, (enum pd_order_pass)pass, s, (int)i);
}

/* Makes pd_slot_table.pairs. */
static bool *pairs_of(const struct pd_order *order)
{
	bool *pairs = pd_calloc((size_t)order->stages * (size_t)order->microbatches, sizeof(*pairs)), any = false;

	for (int q = 0; q < order->positions; q++)
		for (size_t k = 0; k < order->lists[q].count; k++) {
			const struct pd_order_op *op = &order->lists[q].ops[k];

			if (op->pass == PD_ORDER_F)
				pairs[op->stage * (int64_t)order->microbatches + op->microbatch] = op->beside;
			any |= op->beside;
		}
	if (any)
		return pairs;
	free(pairs);
	return NULL;
}

static bool is_beside(const struct pd_slot_table *table, int s, int64_t i)
{
	return table->pairs && table->pairs[s * (int64_t)table->slots.microbatches + i];
}

static int check_size(const struct pd_schedule *schedule, int64_t microbatches, struct pd_error *err)
{
	if (microbatches * schedule->stage_count <= MOST_SLOTS)
		return 0;
	return pd_error_input(err, "%s: microbatches: an order is of at most %d microbatches times stages, "
			      "found %" PRId64 " times %d", pd_plan_name(schedule->plan), MOST_SLOTS, microbatches,
			      schedule->stage_count);
}

/* Counts the slots that the stages of each position use at once, along its list. */
static void set_pools(struct pd_schedule *schedule, const struct pd_order *order)
{
	for (int q = 0; q < order->positions; q++) {
		const struct pd_order_list *list = &order->lists[q];
		int in_use = 0, most = 0;

		for (const struct pd_order_op *op = list->ops; op < list->ops + list->count; op++) {
			bool forward = op->pass == PD_ORDER_F, again = schedule->plan->stages[op->stage].recompute;

			in_use += forward || (again && op->pass != PD_ORDER_W);
			most = in_use > most ? in_use : most;
			in_use -= forward ? again : op->pass != PD_ORDER_I;
		}
		for (int s = 0; s < schedule->stage_count; s++)
			if (order->position_of[s] == q)
				schedule->pool[s] = most;
	}
}

int pd_slot_table_shape(struct pd_schedule *schedule, const struct pd_order *order, struct pd_error *err)
{
	struct pd_slot_table *table = schedule->table;
	int64_t count = order->microbatches, most = 0;

	if (!table) {
		table = schedule->table = pd_zalloc(sizeof(*table));
		if (check_size(schedule, count, err) < 0)
			return -1;
		if (pd_order_certify(order, &table->slots, err) < 0)
			return pd_error_prefix(err, "%s: order", pd_plan_name(schedule->plan));
		table->pairs = pairs_of(order);
	}
	table->middle = table->more = table->step = 0;
	for (int64_t k = 0; k < (int64_t)PD_ORDER_SPLIT * schedule->stage_count * count; k++)
		most = table->slots.of[k] > most ? table->slots.of[k] : most;
	schedule->round = count;
	schedule->group_span = PD_SLOT_TICKS * (most + 4);
	for (int s = 0; s < schedule->stage_count; s++) {
		schedule->slots[s] = pd_count_in_flight(schedule, s, count);
		schedule->kept[s] = pd_count_kept(schedule, s, count);
		schedule->warmup[s] = schedule->startup[s] = schedule->slots[s] - 1;
	}
	set_pools(schedule, order);
	return 0;
}

/* Tells whether everything between two microbatches comes `step` slots later from one to the next, pairs as pairs. */
static bool is_even(const struct pd_slot_table *table, int from, int to)
{
	for (int s = 0; s < table->slots.stages; s++)
		for (int i = from; i + 1 < to; i++) {
			if (is_beside(table, s, i) != is_beside(table, s, i + 1))
				return false;
			for (int pass = 0; pass < PD_ORDER_SPLIT; pass++)
				if (slot(table, pass, s, i + 1) != slot(table, pass, s, i) + table->step)
					return false;
		}
	return true;
}

/* Tells whether all of microbatches up to `first` is over before any of microbatch `next` begins. */
static bool is_apart(const struct pd_slot_table *table, int first, int next)
{
	int64_t last = 0, least = INT64_MAX;

	for (int s = 0; s < table->slots.stages; s++) {
		int64_t end = slot(table, PD_ORDER_W, s, first), begin = slot(table, PD_ORDER_F, s, next);

		last = end > last ? end : last;
		least = begin < least ? begin : least;
	}
	return last < least;
}

/*
 * Has the table repeat its middle.  Dependencies are between computations of one microbatch, which all come as much
 * later.  Those of the middle are as they were; those before it and behind it are no nearer to each other.
 */
static int stretch(struct pd_schedule *schedule, int p, int64_t microbatches, struct pd_error *err)
{
	struct pd_slot_table *table = schedule->table;

	table->middle = MIDDLE * p;
	table->step = slot(table, PD_ORDER_F, 0, table->middle + 1) - slot(table, PD_ORDER_F, 0, table->middle);
	if (!is_even(table, BEGINNING * p, END * p) || !is_apart(table, BEGINNING * p, MIDDLE * p) ||
	    !is_apart(table, MIDDLE * p, END * p))
		return pd_error_input(err, "%s: microbatches: found %" PRId64 " of a replica; schedule \"%s\" is not "
				      "even enough on %d ranks for more than %d", pd_plan_name(schedule->plan),
				      microbatches, pd_schedule_kind_name[schedule->plan->schedule], p, PARTS * p);
	table->more = microbatches - PARTS * (int64_t)p;
	schedule->round = schedule->tail = MIDDLE * (int64_t)p;
	schedule->group_span += PD_SLOT_TICKS * table->more * table->step;
	return 0;
}

int pd_slot_table_make(struct pd_schedule *schedule, struct pd_order *(*make)(int positions, int microbatches),
		       struct pd_error *err)
{
	int64_t local = pd_pattern_local(schedule), most = PARTS * (int64_t)schedule->positions;
	int64_t count = local < most ? local : most;
	struct pd_order *order;
	int result;

	if (check_size(schedule, count, err) < 0)
		return -1;
	order = schedule->table ? schedule->table->made : make(schedule->positions, (int)count);
	result = pd_slot_table_shape(schedule, order, err);
	schedule->table->made = order;
	return result < 0 || count == local ? result : stretch(schedule, schedule->positions, local, err);
}

/* Returns which microbatch of the table a microbatch n is, *behind_p of those that were put in later. */
static int64_t at(const struct pd_schedule *schedule, int s, int64_t n, int64_t *behind_p)
{
	const struct pd_slot_table *table = schedule->table;
	int64_t i = n / pd_pattern_replicas(schedule, s), behind = i - table->middle;

	if (behind < 0 || table->more == 0)
		behind = 0;
	else if (behind > table->more)
		behind = table->more;
	*behind_p = behind;
	return i - behind;
}

int64_t pd_slot_table_tick(const struct pd_schedule *schedule, enum pd_compute what, int s, int64_t n)
{
	static const struct {
		enum pd_order_pass pass;
		int64_t tick;
	} of[] = {
		[PD_COMPUTE_FORWARD] = { PD_ORDER_F, 4 }, [PD_COMPUTE_BACKWARD] = { PD_ORDER_I, 8 },
		[PD_COMPUTE_WEIGHTS] = { PD_ORDER_W, 12 },
	};
	const struct pd_slot_table *table = schedule->table;
	int64_t behind, i = at(schedule, s, n, &behind);
	int64_t later = what == PD_COMPUTE_FORWARD && is_beside(table, s, i) ? 3 : 0;

	return PD_SLOT_TICKS * (slot(table, (int)of[what].pass, s, i) + behind * table->step) + of[what].tick + later;
}

bool pd_slot_table_beside(const struct pd_schedule *schedule, int s, int64_t n)
{
	int64_t behind;

	return is_beside(schedule->table, s, at(schedule, s, n, &behind));
}

bool pd_slot_table_whole(const struct pd_schedule *schedule, int s, int64_t n)
{
	int64_t behind, i = at(schedule, s, n, &behind);

	return slot(schedule->table, PD_ORDER_I, s, i) == slot(schedule->table, PD_ORDER_W, s, i);
}

void pd_slot_table_free(struct pd_slot_table *table)
{
	if (!table)
		return;
	pd_order_times_release(&table->slots);
	pd_order_free(table->made);
	free(table->pairs);
	free(table);
}
