/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/reducer.h"

#include "base/mem.h"
#include "base/piece.h"
#include "topology/allreduce.h"

const char *const pd_reducer_kind_name[] = {
#define REDUCER_KIND(symbol, name, what) name,
#include "topology/reducer_kind.def"
#undef REDUCER_KIND
	NULL
};

static int64_t dense_staging_bytes(const struct pd_topology *topology, const int *ranks, int n,
				   int64_t bytes)
{
	struct pd_allreduce how = pd_allreduce_choose(topology, ranks, n, bytes);

	return pd_times(pd_allreduce_slots(&how), (int64_t)(sizeof(float) *
			pd_piece_most((size_t)bytes / sizeof(float), how.pieces)));
}

static int64_t saturate(__int128 ns)
{
	return ns > PD_REDUCER_MOST_NS ? PD_REDUCER_MOST_NS : (int64_t)ns;
}

/* Returns the time of 2 (n - 1) steps, in each of which one n-th of the buffer passes, rounded up. */
static int64_t dense_cost_ns(int64_t whole_ns, int64_t latency_ns, int64_t n)
{
	int64_t steps = 2 * (n - 1);

	if (n == 1 || whole_ns == 0)
		return 0;
	if (whole_ns > PD_REDUCER_MOST_NS / 2 / steps || latency_ns > PD_REDUCER_MOST_NS / 2 / steps)
		return saturate(((__int128)whole_ns * steps + n - 1) / n +
				(__int128)latency_ns * steps);
	return (whole_ns * steps + n - 1) / n + latency_ns * steps;     /* much faster */
}

const struct pd_reducer pd_reducers[] = {
	[PD_REDUCER_dense] = { .staging_bytes = dense_staging_bytes, .cost_ns = dense_cost_ns },
};
