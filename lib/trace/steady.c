/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/steady.h"

#include "base/cost.h"
#include "base/mem.h"
#include "base/minmax.h"
#include "base/sort.h"

#include <stdlib.h>
#include <string.h>

struct back {                           /* a microbatch that came back to a stage */
	int64_t stage, microbatch, end_ns;
};

/* Tells whether every update begins and ends with an empty pipeline. */
static bool is_drained(const struct pd_plan *plan)
{
	return pd_weights_have(plan->weights, PD_WEIGHTS_DRAINS);
}

static int by_microbatch(const void *a, const void *b)
{
	const struct back *x = a, *y = b;

	PD_ORDER(x->stage, y->stage);
	PD_ORDER(x->microbatch, y->microbatch);
	return (x->end_ns > y->end_ns) - (x->end_ns < y->end_ns);
}

/* Returns those of all stages, ascending by stage and microbatch; of a backward in parts, the last part counts. */
static struct back *backs_of(const struct pd_trace *trace, size_t *count_p)
{
	int stages = is_drained(trace->plan) ? 1 : trace->plan->stage_count;
	struct back *list = pd_calloc(trace->count, sizeof(*list));
	size_t n = 0, kept = 0;

	for (size_t i = 0; i < trace->count; i++) {
		const struct pd_op *op = &trace->records[i].op;

		if (op->stage < stages && !op->evaluate && !op->more &&
		    (op->kind == PD_OP_backward || op->kind == PD_OP_backward_input ||
		     op->kind == PD_OP_backward_weight))
			list[n++] = (struct back){ op->stage, op->microbatch, trace->records[i].end_ns };
	}
	qsort(list, n, sizeof(*list), by_microbatch);
	for (size_t i = 0; i < n; i++)
		if (i + 1 == n || list[i + 1].stage != list[i].stage ||
		    list[i + 1].microbatch != list[i].microbatch)
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

	while (i < count && list[i].stage == list[first].stage &&
	       list[i].microbatch == list[i - 1].microbatch + 1 &&
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

#define LONGEST_TURN 1024       /* of updates of one microbatch each, unless more are in flight */
#define LEAST_UPDATES 4         /* of a drained plan: the first is the start-up */
#define MORE_DRAINED 64 /* microbatches behind the first update of a drained plan, at least */

int64_t pd_steady_in_flight(const struct pd_plan *plan)
{
	int64_t most = is_drained(plan) || plan->microbatches <= LONGEST_TURN ? plan->microbatches : 1;
	int64_t each = pd_schedule_has(plan->schedule, PD_FACT_MINIBATCHES) ? plan->microbatches : 1;

	for (int s = 0; s < plan->stage_count; s++)
		most = pd_max(most, ((int64_t)plan->stages[s].warmup + 1) * plan->stages[s].replicas * each);
	return most;
}

int64_t pd_steady_turn(const struct pd_plan *plan)
{
	int64_t longest = pd_max(pd_max(LONGEST_TURN, plan->microbatches), pd_steady_in_flight(plan));
	int64_t turn = plan->microbatches;

	for (int s = 0; s < plan->stage_count; s++)
		turn = pd_lcm(turn, plan->stages[s].replicas, longest);
	return turn > 0 ? turn : 1;
}

int64_t pd_steady_microbatches(const struct pd_plan *plan)
{
	int64_t turn = pd_steady_turn(plan), in_flight = pd_steady_in_flight(plan);

	if (is_drained(plan))
		return pd_max(LEAST_UPDATES, 1 + pd_ceil_div(MORE_DRAINED, plan->microbatches)) *
		       plan->microbatches;
	/* Of what follows the start-up, the second half is three short turns, or two long ones. */
	return 8 * in_flight + 48 + (turn <= LONGEST_TURN ? 8 * (turn - 1) : turn > in_flight ? 4 * turn : 0);
}

int64_t pd_steady_part(const struct pd_plan *plan)
{
	int64_t lead = 1;

	for (int s = 0; s < plan->stage_count; s++)
		lead = pd_max(lead, ((int64_t)plan->stages[s].warmup + 1) * plan->stages[s].replicas);
	return pd_min(8 * lead + 48, plan->microbatches);
}

bool pd_steady_shorter(const struct pd_plan *plan, int64_t fill, struct pd_plan shorter[2])
{
	int64_t step = 1, least, more, lead = 0;

	for (int s = 0; s < plan->stage_count; s++) {
		step = pd_lcm(step, plan->stages[s].replicas, plan->microbatches);
		lead = pd_max(lead, ((int64_t)plan->stages[s].warmup + 1) * plan->stages[s].replicas);
	}
	if (pd_schedule_has(plan->schedule, PD_FACT_FORWARDS_FIRST))
		lead = 0;
	step = pd_times(step, (int64_t)plan->stage_count * pd_max(plan->round, 1));
	least = pd_max(pd_times(step, fill), pd_times(lead, 2));
	more = pd_times(step, pd_max(1, fill / 2));
	if (step == 0 || plan->order || !pd_updates_in_groups(plan->schedule, plan->weights) ||
	    plan->microbatches - more <= least)
		return false;
	shorter[0] = shorter[1] = *plan;
	shorter[0].microbatches = least + (plan->microbatches - least) % step;
	shorter[1].microbatches = shorter[0].microbatches + more;
	return shorter[1].microbatches < plan->microbatches;
}

double pd_steady_longer_ns(const struct pd_plan *plan, const struct pd_plan shorter[2],
			   const double periods_ns[2])
{
	double m = (double)shorter[0].microbatches, n = (double)shorter[1].microbatches;
	double each_ns = (n * periods_ns[1] - m * periods_ns[0]) / (n - m);

	return (m * periods_ns[0] + ((double)plan->microbatches - m) * each_ns) /
	       (double)plan->microbatches;
}

int64_t pd_steady_minibatches(const struct pd_plan *plan)
{
	int64_t n = pd_steady_microbatches(plan);

	return n / plan->microbatches + (n % plan->microbatches != 0);
}

/* Does what pd_steady_of() does, with the ends of whole updates. */
static bool steady_of_updates(const struct pd_plan *plan, const int64_t *ends, size_t n,
			      struct pd_steady *out_p)
{
	size_t size = (size_t)plan->microbatches, updates = n / size,
	       skip = updates >= 4 ? updates / 2 - 1 : 0;
	int64_t *last = pd_calloc(updates, sizeof(*last));
	size_t cycle, count;

	for (size_t i = 0; i < updates * size; i++)
		last[i / size] = pd_max(last[i / size], ends[i]);
	if (updates >= 2) {
		cycle = cycle_of(last + skip, updates - skip);
		count = cycle ? (updates - skip - 1) / cycle * cycle : updates - skip - 1;
		*out_p = (struct pd_steady){
			.first = (int64_t)((skip + 1) * size - 1), .cycle = (int64_t)(cycle * size),
			.last = (int64_t)((skip + 1 + count) * size - 1),
			.begin_ns = last[skip], .end_ns = last[skip + count],
			.period_ns = (double)(last[skip + count] - last[skip]) / (double)(count * size) };
	}
	free(last);
	return updates >= 2;
}

bool pd_steady_of(const struct pd_plan *plan, const int64_t *ends, size_t n, bool whole,
		  struct pd_steady *out_p)
{
	int64_t in_flight = pd_steady_in_flight(plan), turn = pd_steady_turn(plan);
	size_t skip, cycle, step = (size_t)turn, slowest;

	if (is_drained(plan))
		return steady_of_updates(plan, ends, n, out_p);
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

/* Sets the steady state of a stage, whose stretches these are; false if there is none. */
static bool steady_of_stage(const struct pd_trace *trace, const struct back *list, size_t count,
			    struct pd_steady *out_p)
{
	struct pd_steady *steady = pd_calloc(count, sizeof(*steady));
	size_t end, longest = 0, found = 0;
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
	return lasts;
}

bool pd_trace_steady(const struct pd_trace *trace, struct pd_steady *out_p)
{
	size_t count, end;
	struct back *list = backs_of(trace, &count);
	bool lasts = false;

	for (size_t i = 0; i < count; i = end) {
		struct pd_steady steady;

		for (end = i + 1; end < count && list[end].stage == list[i].stage;)
			end++;
		if (steady_of_stage(trace, list + i, end - i, &steady) &&
		    (!lasts || steady.period_ns > out_p->period_ns)) {
			*out_p = steady;
			lasts = true;
		}
	}
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
