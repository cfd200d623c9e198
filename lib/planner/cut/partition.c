/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A given number of stages on one rank each.
 *
 * Even cuts: the variance of the stages' times is least where the sum of squares is.  Fast ones: the
 * slowest stage, or link, is least.  So with c(u, v) the square T(u, v)^2, or the larger of T(u, v) and
 * L(u, v), what the stage's link carries each way for a minibatch,
 *
 *     S_k(v) = min over u < v of S_{k-1}(u) + c(u, v),  or of max( S_{k-1}(u), c(u, v) ),     S_0(0) = 0
 */
#include "planner/cut/partition.h"

#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define MOST_CELLS (INT64_C(1) << 24)
#define MOST_STEPS 200000000.0

struct pd_partition *pd_partition_new(int stage_count)
{
	struct pd_partition *partition = pd_zalloc(sizeof(*partition));

	*partition = (struct pd_partition){ .cost_ns = PD_NEVER, .stage_count = stage_count };
	partition->layers = pd_calloc((size_t)stage_count, sizeof(int));
	partition->replicas = pd_calloc((size_t)stage_count, sizeof(int));
	for (int s = 0; s < stage_count; s++)
		partition->replicas[s] = 1;
	return partition;
}

void pd_partition_free(struct pd_partition *partition)
{
	if (!partition)
		return;
	for (int s = 0; partition->ranks && s < partition->stage_count; s++)
		free(partition->ranks[s]);
	free(partition->ranks);
	free(partition->order);
	free(partition->layers);
	free(partition->replicas);
	free(partition->warmups);
	free(partition);
}

/* Returns max( T(u, v), L(u, v) ), u being the row's unit. */
static int64_t stage_ns(const struct pd_row *row, int v, int64_t bandwidth_bytes_per_s)
{
	const struct pd_costs *costs = row->costs;
	int64_t bytes = pd_row_in_bytes(row, v) + pd_row_out_bytes(row, v);

	return pd_max(costs->compute_ns[v] - costs->compute_ns[row->unit],
		      pd_bytes_ns(bytes, bandwidth_bytes_per_s));
}

/* Returns c(u, v) for all u < v, in rows; a bandwidth of 0: squares. */
static double *stage_costs(const struct pd_costs *costs, int64_t bandwidth_bytes_per_s)
{
	size_t room = (size_t)costs->unit_count + 1;
	double *list = pd_calloc(room * room, sizeof(*list));
	struct pd_row row;

	pd_row_init(&row, costs);
	for (int u = 0; u < costs->unit_count; u++) {
		if (bandwidth_bytes_per_s > 0)
			pd_row_set(&row, u);
		for (int v = u + 1; v <= costs->unit_count; v++) {
			double time = (double)(costs->compute_ns[v] - costs->compute_ns[u]);

			list[(size_t)u * room + (size_t)v] = bandwidth_bytes_per_s == 0 ? time * time
				: (double)stage_ns(&row, v, bandwidth_bytes_per_s);
		}
	}
	pd_row_release(&row);
	return list;
}

/* Computes S_k for all ends up to `last`, from S_{k-1}. */
static void one_more(const double *list, size_t room, int k, int last, bool sum,
		     const double *before, double *here, int *from)
{
	for (int v = k + 1; v <= last; v++)
		for (int u = v - 1; u >= k; u--) {
			double own = list[(size_t)u * room + (size_t)v], all = before[u] + own;

			if (!sum)
				all = before[u] > own ? before[u] : own;
			else if (u < v - 1 && own > here[v])
				break;          /* squares of longer stages are larger */
			if (u == v - 1 || all <= here[v]) {
				here[v] = all;
				from[v] = u;
			}
		}
}

/* Follows the beginnings of last stages, for each number of stages and each end, back. */
static struct pd_partition *partition_of(const struct pd_costs *costs, int count, const int *from)
{
	struct pd_partition *partition = pd_partition_new(count);

	for (int k = count - 1, v = costs->unit_count; k >= 0; k--) {
		int u = from[(size_t)k * ((size_t)costs->unit_count + 1) + (size_t)v];

		partition->layers[k] = costs->first[v] - costs->first[u];
		v = u;
	}
	return partition;
}

/*
 * Returns where the last stage begins, for each number of stages from `least` to `most` and each end, or
 * NULL if that would be too much work.
 */
static int *beginnings(const struct pd_costs *costs, int least, int most, int64_t bandwidth_bytes_per_s)
{
	int units = costs->unit_count, free_cuts = units - least + 1, *from;
	bool squares = bandwidth_bytes_per_s == 0;
	size_t room = (size_t)units + 1;
	/* For squares one_more() leaves its inner loop early. */
	double *list, *sums[2], rows = squares ? 2 * sqrt(most) : most;

	if ((int64_t)room * (int64_t)room > MOST_CELLS || rows * free_cuts * free_cuts > MOST_STEPS)
		return NULL;
	list = stage_costs(costs, bandwidth_bytes_per_s);
	for (int i = 0; i < 2; i++)
		sums[i] = pd_calloc(room, sizeof(**sums));
	from = pd_calloc((size_t)most * room, sizeof(*from));
	for (int v = 1; v <= units; v++)
		sums[0][v] = list[v];
	for (int k = 1; k < most; k++)
		one_more(list, room, k, k < least ? units - (least - 1 - k) : units, squares,
			 sums[(k - 1) % 2], sums[k % 2], from + (size_t)k * room);
	free(list);
	free(sums[0]);
	free(sums[1]);
	return from;
}

struct pd_partition *pd_even_partition(const struct pd_costs *costs, int count,
				       int64_t bandwidth_bytes_per_s)
{
	int *from = beginnings(costs, count, count, bandwidth_bytes_per_s);
	struct pd_partition *partition = from ? partition_of(costs, count, from) : NULL;

	free(from);
	return partition;
}

void pd_even_partitions(const struct pd_costs *costs, int most, int64_t bandwidth_bytes_per_s,
			struct pd_partition **partitions)
{
	int *from = beginnings(costs, 1, most, bandwidth_bytes_per_s);

	for (int count = 1; count <= most; count++)
		partitions[count - 1] = from ? partition_of(costs, count, from) : NULL;
	free(from);
}

/*
 * Returns the pipeline with the fewest stages, at most `most`, that keeps to the least value, from
 * `low` on; cost_ns is that value.  `stage`, `context` and ns are those of fewest.h.  NULL if there
 * is none.
 */
static struct pd_partition *fewest_stages(const struct pd_costs *costs, int most, int64_t low,
					  pd_fewest_stage stage, const void *context,
					  const int64_t *ns)
{
	struct pd_points points;
	struct pd_fewest fewest = { .points = &points, .most = most, .each = 1, .stage = stage,
				    .context = context, .ns = ns, .effort = costs->effort };
	struct pd_partition *partition = NULL;
	int64_t value;

	pd_points_of_units(&points, costs);
	pd_fewest_init(&fewest);
	value = pd_fewest_value(&fewest, low, INT64_MAX, NULL);
	if (value < PD_COST_MAX) {
		partition = pd_partition_new(fewest.devices[0]);
		partition->cost_ns = value;
		for (int s = 0, u = 0; s < partition->stage_count; u = fewest.next[u])
			partition->layers[s++] = costs->first[fewest.next[u]] - costs->first[u];
	}
	pd_fewest_release(&fewest);
	pd_points_release(&points);
	return partition;
}

/* Tells whether a stage keeps to so many bytes with one minibatch at a time. */
static int is_small(const struct pd_fewest *fewest, int u, int i, int behind, int most, int64_t bytes)
{
	(void)behind;
	(void)most;
	if (pd_points_exceed(fewest->points, u, u + 1 + i, bytes))
		return PD_FEWEST_TOO_LONG;
	return pd_row_memory(&fewest->points->row, u + 1 + i, 1, 0) <= bytes ? 1 : PD_FEWEST_NONE;
}

/* Returns bytes that some stage takes: weights, gradients and moments of the largest unit. */
static int64_t least_bytes(const struct pd_costs *costs)
{
	int64_t most = 1;

	for (int u = 0; u < costs->unit_count && !costs->copies; u++)
		most = pd_max(most, pd_times(3, costs->parameter_bytes[u + 1] - costs->parameter_bytes[u]));
	return most;
}

struct pd_partition *pd_straight_least_memory(const struct pd_costs *costs, int count)
{
	struct pd_partition *partition = fewest_stages(costs, count, least_bytes(costs), is_small, NULL,
							  NULL);

	if (partition)
		partition->warmups = pd_calloc((size_t)partition->stage_count, sizeof(int));
	return partition;
}

struct limits { int64_t bandwidth_bytes_per_s, memory_bytes; };

/* Tells whether a stage keeps to a time, and fits. */
static int is_fast(const struct pd_fewest *fewest, int u, int i, int behind, int most, int64_t time)
{
	const struct pd_row *row = &fewest->points->row;
	const struct limits *limits = fewest->context;
	int v = u + 1 + i;

	(void)most;
	if (pd_points_exceed(fewest->points, u, v, limits->memory_bytes))
		return PD_FEWEST_TOO_LONG;
	return stage_ns(row, v, limits->bandwidth_bytes_per_s) <= time &&
	       (limits->memory_bytes == INT64_MAX ||
		pd_row_memory(row, v, 1, behind) <= limits->memory_bytes) ? 1 : PD_FEWEST_NONE;
}

struct pd_partition *pd_straight_most(const struct pd_costs *costs, int count,
				      int64_t bandwidth_bytes_per_s, int64_t limit_bytes)
{
	struct limits limits = { bandwidth_bytes_per_s, limit_bytes };

	return fewest_stages(costs, count, costs->compute_ns[costs->unit_count] / count, is_fast,
				&limits, costs->compute_ns);
}

struct pd_partition *pd_data_parallel_partition(const struct pd_costs *costs, int64_t devices)
{
	struct pd_partition *partition = pd_partition_new(1);

	partition->layers[0] = costs->profile->layer_count;
	partition->replicas[0] = (int)devices;
	return partition;
}

struct pd_partition *pd_chunks_partition(const struct pd_costs *costs, int64_t chunks, int64_t ranks,
					 int64_t bandwidth_bytes_per_s, struct pd_error *err)
{
	int count = (int)(pd_min(costs->unit_count / chunks, ranks) * chunks);
	struct pd_partition *partition;

	if (count == 0) {
		pd_error_input(err, "--chunks: the network can be cut into %d stages, expected"
				      " at least %" PRId64, costs->unit_count, chunks);
		return NULL;
	}
	partition = pd_even_partition(costs, count, bandwidth_bytes_per_s);
	if (partition)
		return partition;
	partition = pd_partition_new(count);
	for (int64_t s = 0, u = 0, v; s < count; s++, u = v) {
		v = (int64_t)costs->unit_count * (s + 1) / count;
		partition->layers[s] = costs->first[v] - costs->first[u];
	}
	return partition;
}

/* Returns the first unit at which the units from `from` on take more than a time. */
static int v_reach(const struct pd_costs *costs, int from, int64_t most_ns, int end)
{
	int to = from;

	while (to < end && costs->compute_ns[to + 1] - costs->compute_ns[from] <= most_ns)
		to++;
	return to;
}

/*
 * Cuts the network into two stages for each of `ranks` positions, which take at most most_ns together, about half of it
 * each: from both ends, inwards.  Sets where each begins; returns false if that is not enough.
 */
static bool v_cut(const struct pd_costs *costs, int ranks, int64_t most_ns, int *begin)
{
	int low = 0, high = costs->unit_count;

	begin[0] = 0;
	begin[2 * ranks] = high;
	for (int q = 0; q < ranks; q++) {
		int left = 2 * (ranks - 1 - q), to = v_reach(costs, low, most_ns / 2, high), from = high;

		/* Each needs a unit at least, and leaves one for each that is left. */
		to = to > low ? to : low + 1;
		to = to < high - left - 1 ? to : high - left - 1;
		while (from > to + left && from > 0 &&
		       (from == high || costs->compute_ns[high] - costs->compute_ns[from - 1] +
					costs->compute_ns[to] - costs->compute_ns[low] <= most_ns))
			from--;
		if (costs->compute_ns[high] - costs->compute_ns[from] + costs->compute_ns[to] -
		    costs->compute_ns[low] > most_ns)
			return false;
		begin[q + 1] = to;
		begin[2 * ranks - 1 - q] = q == ranks - 1 ? to : from;
		if (q == ranks - 1)
			return from == to;
		low = to;
		high = from;
	}
	return false;
}

struct pd_partition *pd_v_partition(const struct pd_costs *costs, int ranks)
{
	int64_t low = 0, high = costs->compute_ns[costs->unit_count];
	int *begin = pd_calloc((size_t)(2 * ranks + 1), sizeof(*begin));
	struct pd_partition *partition = NULL;

	while (low + 1 < high) {
		int64_t middle = low + (high - low) / 2;

		if (v_cut(costs, ranks, middle, begin))
			high = middle;
		else
			low = middle;
	}
	if (v_cut(costs, ranks, high, begin)) {
		partition = pd_partition_new(2 * ranks);
		for (int s = 0; s < 2 * ranks; s++)
			partition->layers[s] = costs->first[begin[s + 1]] - costs->first[begin[s]];
	}
	free(begin);
	return partition;
}
