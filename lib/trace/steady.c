/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/steady.h"

#include "base/mem.h"
#include "base/minmax.h"
#include "base/sort.h"

#include <stdlib.h>
#include <string.h>

struct back {                           /* a minibatch that came back to the input stage */
	int64_t microbatch, end_ns;
};

static int by_microbatch(const void *a, const void *b)
{
	const struct back *x = a, *y = b;

	PD_ORDER(x->microbatch, y->microbatch);
	return (x->end_ns > y->end_ns) - (x->end_ns < y->end_ns);
}

/* Returns all of them, ascending; of a backward in parts, the last part counts. */
static struct back *backs_of(const struct pd_trace *trace, size_t *count_p)
{
	struct back *list = pd_calloc(trace->count, sizeof(*list));
	size_t n = 0, kept = 0;

	for (size_t i = 0; i < trace->count; i++) {
		const struct pd_op *op = &trace->records[i].op;

		if (op->stage == 0 && !op->evaluate && !op->more
		    && (op->kind == PD_OP_backward || op->kind == PD_OP_backward_input
			|| op->kind == PD_OP_backward_weight))
			list[n++] = (struct back){ op->microbatch, trace->records[i].end_ns };
	}
	qsort(list, n, sizeof(*list), by_microbatch);
	for (size_t i = 0; i < n; i++)
		if (i + 1 == n || list[i + 1].microbatch != list[i].microbatch)
			list[kept++] = list[i];
	*count_p = kept;
	return list;
}

/* Returns the end of the stretch that begins with list[first]. */
static size_t stretch_end(const struct pd_trace *trace, const struct back *list, size_t count,
			  size_t first)
{
	int64_t epoch = pd_trace_epoch(trace);
	size_t i = first + 1;

	while (i < count && list[i].microbatch == list[i - 1].microbatch + 1 &&
	       list[i].microbatch % epoch != 0)
		i++;
	return i;
}

/*
 * Returns the smallest c for which all e(b + c) - e(b), of which there are several, are equal, or 0.  Where
 * the last c was wrong the next one most likely is, too, so it is looked at first.
 */
static size_t cycle_of(const int64_t *ends, size_t n)
{
	size_t wrong = 0;

	for (size_t c = 1; c <= n / 2 && c + 2 <= n; c++) {
		int64_t difference = ends[c] - ends[0];
		size_t i = 1;

		if (wrong + c < n && ends[wrong + c] - ends[wrong] != difference)
			continue;
		while (i + c < n && ends[i + c] - ends[i] == difference)
			i++;
		if (i + c == n)
			return c;
		wrong = i;
	}
	return 0;
}

#define LONGEST_TURN 1024       /* unless more are in flight */
#define LONGEST_GPIPE 65536     /* for GPipe, whose backwards alone say nothing of the forwards */

static int64_t longest_turn(const struct pd_plan *plan)
{
	return pd_schedule_has(plan->schedule, PD_FACT_FORWARDS_FIRST) ? LONGEST_GPIPE : LONGEST_TURN;
}

bool pd_steady_shows_updates(const struct pd_plan *plan)
{
	return plan->microbatches <= longest_turn(plan);
}

int64_t pd_steady_in_flight(const struct pd_plan *plan)
{
	int64_t most = pd_steady_shows_updates(plan) ? plan->microbatches : 1;
	int64_t each = pd_schedule_has(plan->schedule, PD_FACT_MINIBATCHES) ? plan->microbatches : 1;

	for (int s = 0; s < plan->stage_count; s++)
		most = pd_max(most, ((int64_t)plan->stages[s].warmup + 1) * plan->stages[s].replicas * each);
	return most;
}

int64_t pd_steady_turn(const struct pd_plan *plan)
{
	int64_t longest = pd_max(longest_turn(plan), pd_steady_in_flight(plan));
	int64_t turn = plan->microbatches <= longest ? plan->microbatches : 1;

	for (int s = 0; s < plan->stage_count; s++)
		turn = pd_lcm(turn, plan->stages[s].replicas, longest);
	return turn > 0 ? turn : 1;
}

int64_t pd_steady_microbatches(const struct pd_plan *plan)
{
	int64_t turn = pd_steady_turn(plan);

	/* A longer turn is no longer than what is in flight; three of these follow the start-up. */
	return 8 * pd_steady_in_flight(plan) + 48 + (turn <= longest_turn(plan) ? 8 * (turn - 1) : 0);
}

int64_t pd_steady_minibatches(const struct pd_plan *plan)
{
	int64_t n = pd_steady_microbatches(plan);

	return n / plan->microbatches + (n % plan->microbatches != 0);
}

bool pd_steady_of(const struct pd_plan *plan, const int64_t *ends, size_t n, bool whole,
		  struct pd_steady *out_p)
{
	int64_t in_flight = pd_steady_in_flight(plan), turn = pd_steady_turn(plan);
	size_t skip, cycle, step = (size_t)turn, slowest;

	if (n < 2)
		return false;
	if (whole && (int64_t)n >= in_flight + 2)
		n -= (size_t)in_flight;
	skip = n >= 4 ? n / 2 : 0;
	ends += skip;
	n -= skip;
	if ((int64_t)n <= turn)         /* what is left says nothing of what repeats */
		return false;
	cycle = cycle_of(ends, n);
	if (cycle)
		step = cycle;
	slowest = 0;
	if (!cycle && n >= 2 * step) {  /* replicas that need not wait for each other drift apart */
		size_t length = n / step * step - step;

		for (size_t i = 1; i < n - length; i++)
			if (ends[i + length] - ends[i] > ends[slowest + length] - ends[slowest])
				slowest = i;
		n = length;
	} else {
		n = (n - 1) / step * step;      /* from the first to the last */
	}
	ends += slowest;
	skip += slowest;
	*out_p = (struct pd_steady){
		.first = (int64_t)skip, .last = (int64_t)(skip + n), .cycle = (int64_t)cycle,
		.begin_ns = ends[0], .end_ns = ends[n],
		.period_ns = (double)(ends[n] - ends[0]) / (double)n };
	return true;
}

static int by_period(const void *a, const void *b)
{
	const struct pd_steady *x = a, *y = b;

	return (x->period_ns > y->period_ns) - (x->period_ns < y->period_ns);
}

/* Sets the steady state of a stretch of n. */
static bool steady_of_stretch(const struct pd_trace *trace, const struct back *list, size_t n,
			      struct pd_steady *out_p)
{
	int64_t *ends = pd_calloc(n, sizeof(*ends));
	bool steady;

	for (size_t i = 0; i < n; i++)
		ends[i] = list[i].end_ns;
	steady = pd_steady_of(trace->plan, ends, n, true, out_p);
	if (steady) {
		out_p->first += list[0].microbatch;
		out_p->last += list[0].microbatch;
	}
	free(ends);
	return steady;
}

bool pd_trace_steady(const struct pd_trace *trace, struct pd_steady *out_p)
{
	size_t count, end, longest = 0, found = 0;
	struct back *list = backs_of(trace, &count);
	struct pd_steady *steady = pd_calloc(count + 1, sizeof(*steady));
	bool lasts;

	for (size_t i = 0; i < count; i = end) {
		end = stretch_end(trace, list, count, i);
		longest = end - i > longest ? end - i : longest;
	}
	for (size_t i = 0; i < count; i = end) {
		end = stretch_end(trace, list, count, i);
		if (end - i == longest)
			found += steady_of_stretch(trace, list + i, longest, &steady[found]);
	}
	qsort(steady, found, sizeof(*steady), by_period);
	lasts = found > 0 && steady[(found - 1) / 2].period_ns > 0;
	if (lasts)
		*out_p = steady[(found - 1) / 2];
	free(steady);
	free(list);
	return lasts;
}

/* Returns the first microbatch that was trained; INT64_MAX: there is none. */
static int64_t first_microbatch(const struct pd_trace *trace)
{
	int64_t first = INT64_MAX;

	for (size_t i = 0; i < trace->count; i++)
		if (!trace->records[i].op.evaluate && trace->records[i].op.microbatch < first)
			first = trace->records[i].op.microbatch;
	return first;
}

void pd_trace_limit(struct pd_trace *trace, int64_t minibatches)
{
	int64_t first = first_microbatch(trace), most;
	size_t n = 0;

	if (!pd_mul(minibatches, trace->plan->microbatches, &most))
		most = INT64_MAX;
	for (size_t i = 0; i < trace->count; i++)
		if (!trace->records[i].op.evaluate
		    && trace->records[i].op.microbatch - first < most)
			trace->records[n++] = trace->records[i];
	trace->count = n;
}

int64_t pd_trace_limit_operations(struct pd_trace *trace, size_t most)
{
	int64_t first = first_microbatch(trace), size = trace->plan->microbatches, minibatches = 0;
	int64_t *numbers = pd_calloc(trace->count, sizeof(*numbers));
	size_t n = 0, kept = 0;

	for (size_t i = 0; i < trace->count; i++)
		if (!trace->records[i].op.evaluate)
			numbers[n++] = (trace->records[i].op.microbatch - first) / size;
	qsort(numbers, n, sizeof(*numbers), pd_by_value);
	for (size_t next; kept < n && trace->count > most; kept = next) {
		for (next = kept; next < n && numbers[next] == numbers[kept];)
			next++;
		if (next > most && minibatches > 0)
			break;
		minibatches = numbers[kept] + 1;
	}
	free(numbers);
	if (minibatches > 0)
		pd_trace_limit(trace, minibatches);
	return minibatches;
}

double pd_trace_period_ns(const struct pd_trace *trace)
{
	struct pd_steady steady;

	return pd_trace_steady(trace, &steady) ? steady.period_ns : 0;
}
