/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The generator's times are linear in the microbatch (tick.c).  A period later every operation
 * comes a fixed number of ticks later, so a list repeats itself.  Exceptions are its beginning,
 * where versions and inboxes from before the phase are missing, and its end, where operations are
 * missing.  Any other list repeats itself where it is found to do so.
 */
#include "schedule/compact.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define MOST_PERIOD (INT64_C(1) << 24)

static int64_t with_stage(const struct pd_plan *plan, int64_t period, int s)
{
	return pd_lcm(pd_lcm(period, plan->stages[s].replicas, MOST_PERIOD), plan->microbatches, MOST_PERIOD);
}

int64_t pd_compact_period(const struct pd_lists *lists, int rank)
{
	const struct pd_plan *plan = lists->plan;
	const struct pd_wiring *wiring = lists->wiring;
	int64_t period = 1;

	if (pd_weights_have(plan->weights, PD_WEIGHTS_TAGS))
		period = with_stage(plan, period, 0);
	for (int i = lists->first_role[rank]; i < lists->first_role[rank + 1]; i++) {
		int s = lists->roles[i].stage;

		period = with_stage(plan, period, s);
		for (int k = 0; k < wiring->in_count[s]; k++)
			period = with_stage(plan, period, wiring->links[wiring->in[s][k]].from);
		for (int k = 0; k < wiring->out_count[s]; k++)
			period = with_stage(plan, period, wiring->links[wiring->out[s][k]].to);
	}
	return period;
}

int64_t pd_compact_fewer(const struct pd_schedule *schedule, int64_t period,
			  int64_t microbatches)
{
	int64_t most = 0, fewer;

	for (int s = 0; s < schedule->stage_count; s++) {
		int64_t flight = (schedule->slots[s] + 2) * schedule->plan->stages[s].replicas +
				 2 * schedule->group[s];

		most = flight > most ? flight : most;
	}
	if (period == 0)
		return microbatches;
	fewer = microbatches % period + (2 * most / period + 5) * period;
	return fewer < microbatches ? fewer : microbatches;
}

/*
 * Tells whether operation b is operation a, `period` microbatches later.  numbers is the difference
 * of their sequence numbers, -1: any.
 */
static bool repeats(const struct pd_list *list, size_t a, size_t b, int64_t period,
		    int64_t *numbers)
{
	const struct pd_op *x = &list->ops[a], *y = &list->ops[b];
	const struct pd_note *n = list->notes ? &list->notes[a] : NULL;
	const struct pd_note *m = list->notes ? &list->notes[b] : NULL;

	if (x->kind != y->kind || x->stage != y->stage || x->peer != y->peer ||
	    x->link != y->link || x->bucket != y->bucket || x->beside != y->beside ||
	    x->microbatch + period != y->microbatch ||
	    (x->version < 0 ? y->version >= 0 : x->version + period != y->version) ||
	    (x->seq < 0) != (y->seq < 0))
		return false;
	if (n && (n->duration_ns != m->duration_ns ||
		  n->memory_delta_bytes != m->memory_delta_bytes))
		return false;
	if (x->seq < 0)
		return true;
	if (*numbers < 0)
		*numbers = y->seq - x->seq;
	return *numbers >= 0 && *numbers == y->seq - x->seq;
}

/* Finds the first block from an operation on; returns false if there is none. */
static bool find_block(const struct pd_list *list, size_t from, int64_t period, size_t length,
		       struct pd_block *out_p)
{
	int64_t numbers = -1;
	size_t run = 0, n = from;

	for (; n + length < list->count; n++) {
		if (repeats(list, n, n + length, period, &numbers)) {
			run++;
			continue;
		}
		if (run >= length)
			break;
		/* It can be the first of another block, with other numbers. */
		numbers = -1;
		run = repeats(list, n, n + length, period, &numbers);
		if (!run)
			numbers = -1;
	}
	*out_p = (struct pd_block){
		.first = n - run, .length = length, .repeat = (int64_t)(run / length) + 1,
		.microbatches = period, .versions = period, .numbers = numbers < 0 ? 0 : numbers,
	};
	return run >= length;
}

/* Returns the number of operations in one period, taken from the second one. */
static size_t period_length(const struct pd_list *list, int64_t period)
{
	size_t length = 0;

	for (size_t n = 0; n < list->count; n++)
		length += list->ops[n].microbatch >= period &&
			  list->ops[n].microbatch < 2 * period;
	return length;
}

static void add_block(struct pd_list *list, const struct pd_block *block)
{
	list->blocks = pd_grow(list->blocks, &list->block_capacity, list->block_count + 1,
			       sizeof(*list->blocks));
	list->blocks[list->block_count++] = *block;
}

/* Removes all but the first repetition of each block. */
static void close_up(struct pd_list *list)
{
	size_t to = 0, from = 0;

	for (size_t b = 0; b <= list->block_count; b++) {
		struct pd_block *block = b < list->block_count ? &list->blocks[b] : NULL;
		size_t end = block ? block->first + block->length : list->count;

		memmove(&list->ops[to], &list->ops[from], (end - from) * sizeof(*list->ops));
		if (list->notes)
			memmove(&list->notes[to], &list->notes[from],
				(end - from) * sizeof(*list->notes));
		to += end - from;
		if (!block)
			break;
		from = block->first + block->length * (size_t)block->repeat;
		block->first = to - block->length;
	}
	list->count = to;
}

static void lengthen(struct pd_list *list, struct pd_block *block, int64_t more)
{
	block->repeat += more;
	for (size_t n = block->first + block->length; n < list->count; n++) {
		struct pd_op *op = &list->ops[n];

		op->microbatch += more * block->microbatches;
		if (op->version >= 0)
			op->version += more * block->versions;
		if (op->seq >= 0)
			op->seq += more * block->numbers;
	}
}

bool pd_compact(struct pd_list *list, int64_t period, int64_t more)
{
	size_t length = period ? period_length(list, period) : 0, longest = 0, n = 0;
	struct pd_block block;

	while (length > 0 && find_block(list, n, period, length, &block)) {
		add_block(list, &block);
		n = block.first + block.length * (size_t)block.repeat;
	}
	if (more > 0 && list->block_count == 0)
		return false;
	close_up(list);
	for (size_t b = 1; b < list->block_count; b++)
		if (list->blocks[b].repeat > list->blocks[longest].repeat)
			longest = b;
	if (more > 0)
		lengthen(list, &list->blocks[longest], more);
	return true;
}
