/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/check.h"

#include "base/mem.h"
#include "schedule/price.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Returns where the n-th operation of a list is stored. */
static size_t stored_at(const struct pd_list *list, size_t n)
{
	for (size_t b = 0; b < list->block_count; b++) {
		const struct pd_block *block = &list->blocks[b];
		size_t all = block->length * (size_t)block->repeat;

		if (n < block->first)
			break;
		if (n < block->first + all)
			return block->first + (n - block->first) % block->length;
		n -= all - block->length;
	}
	return n;
}

void pd_fault(struct pd_fault *fault, int rank, size_t n, const struct pd_op *op, const char *fmt,
	      ...)
{
	const struct pd_list *list = &fault->lists->ranks[rank];
	char what[80] = "at its end", wrong[500], cell[32] = "";
	size_t at = op || n == 0 ? n : n - 1, stored = stored_at(list, at);
	int64_t line = list->notes && stored < list->count ? list->notes[stored].line
							   : fault->first[rank] + (int64_t)at;
	va_list ap;

	if (line >= fault->line)
		return;
	fault->line = line;
	if (op)
		snprintf(what, sizeof(what), "%s of microbatch %" PRId64 " at stage %d",
			 pd_op_kind_name[op->kind], op->microbatch, op->stage);
	va_start(ap, fmt);
	vsnprintf(wrong, sizeof(wrong), fmt, ap);
	va_end(ap);
	if (list->notes && stored < list->count && list->notes[stored].cell > 0)
		snprintf(cell, sizeof(cell), ", cell %" PRId64, list->notes[stored].cell);
	pd_error_no(fault->err, "%s:%" PRId64 "%s: rank %d, %s: %s", fault->lists->name, line, cell,
		    rank, what, wrong);
}

static int check_plan(const struct pd_plan *plan, struct pd_error *err)
{
	for (int s = 0; s < plan->stage_count && plan->microbatches > 1; s++)
		if (plan->microbatches % plan->stages[s].replicas != 0)
			return pd_error_input(err, "%s: microbatches: expected a multiple of the"
					      " %d replicas of stages[%d], found %" PRId64,
					      pd_plan_name(plan), plan->stages[s].replicas, s, plan->microbatches);
	return 0;
}

/* Returns the number of operations of a rank. */
static int64_t count_of(const struct pd_fault *fault, int rank)
{
	struct pd_op_source source;
	int64_t count = 0;
	struct pd_op op;

	if (!fault->schedule)
		return pd_list_length(&fault->lists->ranks[rank]);
	pd_op_source_begin(&source, fault->schedule, fault->lists, rank,
			   fault->lists->microbatches);
	while (pd_op_source_next(&source, &op))
		count++;
	pd_op_source_end(&source);
	return count;
}

/* Checks the lists, or the operations that schedule makes if it is not NULL. */
static int check_all(const struct pd_lists *lists, const struct pd_schedule *schedule,
		     int64_t *count_p, struct pd_error *err)
{
	struct pd_fault fault = { .lists = lists, .schedule = schedule, .line = INT64_MAX,
				  .err = err };
	struct pd_prices prices;
	bool ascend = true;

	if (check_plan(lists->plan, err) < 0)
		return -1;
	fault.first = pd_calloc((size_t)lists->rank_count + 1, sizeof(*fault.first));
	fault.first[0] = 2;             /* the line below the header */
	fault.startup = pd_calloc((size_t)lists->plan->stage_count, sizeof(*fault.startup));
	pd_plan_first(lists->plan, fault.startup);
	pd_prices_init(&prices, lists->plan, lists->wiring);
	for (int r = 0; r < lists->rank_count; r++) {
		fault.first[r + 1] = fault.first[r] + count_of(&fault, r);
		pd_check_rank(&fault, &prices, r);
		ascend = lists->lack == PD_LACK_NOTHING && pd_check_numbers(&fault, r) && ascend;
	}
	pd_prices_release(&prices);
	if (ascend)
		pd_check_exchanges(&fault);
	*count_p = fault.first[lists->rank_count] - 2;
	free(fault.first);
	free(fault.startup);
	return fault.line == INT64_MAX ? 0 : -1;
}

int pd_check(const struct pd_lists *lists, struct pd_error *err)
{
	int64_t count;

	return check_all(lists, NULL, &count, err);
}

int pd_check_schedule(const char *name, const struct pd_schedule *schedule, int64_t minibatches,
		      int64_t *count_p, struct pd_error *err)
{
	struct pd_lists *lists = pd_lists_new(name, schedule->plan, NULL, minibatches, err);
	int result = lists ? pd_schedule_fits(schedule, lists->microbatches, err) : -1;

	if (result == 0)
		result = check_all(lists, schedule, count_p, err);
	pd_lists_free(lists);
	return result;
}
