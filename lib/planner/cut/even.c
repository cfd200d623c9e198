/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A given number of stages on one rank each.
 *
 * Even cuts: the variance of the stages' times is least where the sum of squares is,
 *
 *     S_k(v) = min over u < v of S_{k-1}(u) + T(u, v)^2,     S_0(0) = 0
 *
 * The best u does not fall with v (T^2 has the quadrangle inequality, times being additive
 * and not negative), so half of the v narrow the u of the other half: N log N for each k.
 *
 * Fast ones: the slowest stage, or link, is least,
 *
 *     M_k(v) = min over u < v of max( M_{k-1}(u), T(u, v), L(u, v) ),     M_0(0) = 0
 *
 * L being what the stage's link carries each way for a minibatch.  It has no such order: N^2.
 */
#include "planner/cut/even.h"

#include "base/mem.h"

#include <stdlib.h>

#define MOST_CELLS (INT64_C(1) << 24)
#define MOST_STEPS 200000000.0

struct even {
	const struct pd_costs *costs;
	const double *before;           /* S_{k-1} */
	double *here;                   /* S_k */
	int *from;                      /* the best u of each v, for this k */
};

static double square(const struct pd_costs *costs, int u, int v)
{
	double time = (double)(costs->compute_ns[v] - costs->compute_ns[u]);

	return time * time;
}

/* Sets S_k for v from low to high, whose best u are from `first` to `last`. */
static void divide(struct even *even, int low, int high, int first, int last)
{
	int v = low + (high - low) / 2, best = -1;

	if (low > high)
		return;
	for (int u = first; u <= last && u < v; u++) {
		double sum = even->before[u] + square(even->costs, u, v);

		if (best < 0 || sum < even->here[v]) {
			even->here[v] = sum;
			best = u;
		}
	}
	even->from[v] = best;
	divide(even, low, v - 1, first, best);
	divide(even, v + 1, high, best, last);
}

/*
 * Makes the partition: from has the beginning of the last stage, for each number of stages and each
 * end.
 */
static struct pd_partition *partition_of(const struct pd_costs *costs, int count, const int *from)
{
	struct pd_partition *partition = pd_zalloc(sizeof(*partition));

	*partition = (struct pd_partition){ .cost_ns = PD_NEVER, .stage_count = count };
	partition->layers = pd_calloc((size_t)count, sizeof(*partition->layers));
	partition->replicas = pd_calloc((size_t)count, sizeof(*partition->replicas));
	for (int k = count - 1, v = costs->unit_count; k >= 0; k--) {
		int u = from[(size_t)k * ((size_t)costs->unit_count + 1) + (size_t)v];

		partition->layers[k] = costs->first[v] - costs->first[u];
		partition->replicas[k] = 1;
		v = u;
	}
	return partition;
}

struct pd_partition *pd_even_partition(const struct pd_costs *costs, int count)
{
	int units = costs->unit_count, room = units + 1;
	double *sums[2] = { pd_calloc((size_t)room, sizeof(double)),
			    pd_calloc((size_t)room, sizeof(double)) };
	struct pd_partition *partition;
	int *from;

	if ((int64_t)count * room > MOST_CELLS) {
		free(sums[0]);
		free(sums[1]);
		return NULL;
	}
	from = pd_calloc((size_t)count * (size_t)room, sizeof(*from));
	for (int v = 1; v <= units; v++)
		sums[0][v] = square(costs, 0, v);
	for (int k = 1; k < count; k++) {
		struct even even = { costs, sums[(k - 1) % 2], sums[k % 2],
				     from + (size_t)k * (size_t)room };

		divide(&even, k + 1, units, k, units - 1);
	}
	partition = partition_of(costs, count, from);
	free(from);
	free(sums[0]);
	free(sums[1]);
	return partition;
}

/* Returns max( T(u, v), L(u, v) ), u being the row's unit. */
static int64_t stage_ns(const struct pd_row *row, int v, int64_t bandwidth_bytes_per_s)
{
	const struct pd_costs *costs = row->costs;
	int64_t bytes = pd_row_in_bytes(row, v) + pd_row_out_bytes(row, v);

	return pd_max64(costs->compute_ns[v] - costs->compute_ns[row->unit],
			pd_bytes_ns(bytes, bandwidth_bytes_per_s));
}

/* Returns stage_ns for all u < v, in rows. */
static int64_t *stage_times(const struct pd_costs *costs, int64_t bandwidth_bytes_per_s)
{
	size_t room = (size_t)costs->unit_count + 1;
	int64_t *times = pd_calloc(room * room, sizeof(*times));
	struct pd_row row;

	pd_row_init(&row, costs);
	for (int u = 0; u < costs->unit_count; u++) {
		pd_row_set(&row, u);
		for (int v = u + 1; v <= costs->unit_count; v++)
			times[(size_t)u * room + (size_t)v] = stage_ns(&row, v,
								       bandwidth_bytes_per_s);
	}
	pd_row_release(&row);
	return times;
}

/* Computes M_k for all ends up to `last`, from M_{k-1}. */
static void slowest(const int64_t *times, size_t room, int k, int last, const int64_t *before,
		    int64_t *here, int *from)
{
	for (int v = k + 1; v <= last; v++) {
		here[v] = PD_NEVER;
		for (int u = k; u < v; u++) {
			int64_t time = pd_max64(before[u], times[(size_t)u * room + (size_t)v]);

			if (time < here[v]) {
				here[v] = time;
				from[v] = u;
			}
		}
	}
}

struct pd_partition *pd_straight_partition(const struct pd_costs *costs, int count,
					   int64_t bandwidth_bytes_per_s)
{
	int units = costs->unit_count, free_cuts = units - count + 1;
	size_t room = (size_t)units + 1;
	struct pd_partition *partition;
	int64_t *times, *most[2];
	int *from;

	if ((int64_t)room * (int64_t)room > MOST_CELLS || (int64_t)count * units > MOST_CELLS ||
	    (double)count * free_cuts * free_cuts > MOST_STEPS)
		return NULL;
	times = stage_times(costs, bandwidth_bytes_per_s);
	most[0] = pd_calloc(room, sizeof(*most[0]));
	most[1] = pd_calloc(room, sizeof(*most[1]));
	from = pd_calloc((size_t)count * room, sizeof(*from));
	for (int v = 1; v <= units; v++)
		most[0][v] = times[v];
	for (int k = 1; k < count; k++)
		slowest(times, room, k, units - (count - 1 - k), most[(k - 1) % 2], most[k % 2],
			from + (size_t)k * room);
	partition = partition_of(costs, count, from);
	free(times);
	free(most[0]);
	free(most[1]);
	free(from);
	return partition;
}

/*
 * For a value t, the fewest stages from unit u on, each of which keeps to t,
 *
 *     F(u) = min over u < v <= U, where [u, v) keeps to t before F(v) stages, of  1 + F(v),
 *     F(U) = 0,
 *
 * and the least t with F(0) small enough by bisection.  What follows v may be replaced by the fewest
 * stages, since the stage before then keeps to t all the more.
 */
#define NONE INT32_MAX

struct fewest {
	const struct pd_costs *costs;
	pd_fewest_holds holds;
	const void *context;
	struct pd_row row;
	int *stages, *next;             /* F(u), or NONE; the v that gives it */
};

static int fewest_for(struct fewest *f, int64_t value)
{
	int U = f->costs->unit_count;

	f->stages[U] = 0;
	for (int u = U - 1; u >= 0; u--) {
		pd_row_set(&f->row, u);
		f->stages[u] = NONE;
		for (int v = u + 1; v <= U; v++) {
			enum pd_fewest_answer answer;

			if (f->stages[v] >= f->stages[u] - 1)
				continue;
			answer = f->holds(f->context, &f->row, v, f->stages[v], value);
			if (answer == PD_FEWEST_NEVER)
				break;
			if (answer == PD_FEWEST_NO)
				continue;
			f->stages[u] = f->stages[v] + 1;
			f->next[u] = v;
		}
	}
	return f->stages[0];
}

static struct pd_partition *fewest_partition(const struct fewest *f, int64_t value)
{
	struct pd_partition *partition = pd_zalloc(sizeof(*partition));
	size_t room = (size_t)f->stages[0];

	partition->cost_ns = value;
	partition->layers = pd_calloc(room, sizeof(int));
	partition->replicas = pd_calloc(room, sizeof(int));
	for (int u = 0; u < f->costs->unit_count; u = f->next[u]) {
		partition->layers[partition->stage_count] = f->costs->first[f->next[u]] -
							    f->costs->first[u];
		partition->replicas[partition->stage_count++] = 1;
	}
	return partition;
}

struct pd_partition *pd_fewest_stages(const struct pd_costs *costs, int most, int64_t low,
				      pd_fewest_holds holds, const void *context)
{
	size_t room = (size_t)costs->unit_count + 1;
	struct fewest f = { .costs = costs, .holds = holds, .context = context,
			    .stages = pd_calloc(room, sizeof(int)),
			    .next = pd_calloc(room, sizeof(int)) };
	struct pd_partition *partition = NULL;
	int64_t high = low > 0 ? low : 1;

	pd_row_init(&f.row, costs);
	while (high < PD_COST_MAX && fewest_for(&f, high) > most) {
		low = high + 1;
		high = pd_min64(2 * high, PD_COST_MAX);
	}
	while (low < high) {
		int64_t middle = low + (high - low) / 2;

		if (fewest_for(&f, middle) <= most)
			high = middle;
		else
			low = middle + 1;
	}
	if (fewest_for(&f, high) <= most)
		partition = fewest_partition(&f, high);
	pd_row_release(&f.row);
	free(f.stages);
	free(f.next);
	return partition;
}

/* Tells whether a stage keeps to a time, and fits. */
static enum pd_fewest_answer is_fast(const void *context, const struct pd_row *row, int v, int behind,
				     int64_t time)
{
	const struct pd_costs *costs = row->costs;
	const int64_t *bandwidth = context;

	if (costs->compute_ns[v] - costs->compute_ns[row->unit] > time)
		return PD_FEWEST_NEVER;
	return stage_ns(row, v, *bandwidth) <= time &&
	       (costs->memory_limit_bytes == INT64_MAX ||
		pd_row_memory(row, v, 1, behind) <= costs->memory_limit_bytes)
	       ? PD_FEWEST_YES : PD_FEWEST_NO;
}

struct pd_partition *pd_straight_most(const struct pd_costs *costs, int count,
				      int64_t bandwidth_bytes_per_s)
{
	return pd_fewest_stages(costs, count, costs->compute_ns[costs->unit_count] / count, is_fast,
				&bandwidth_bytes_per_s);
}
