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

/* Returns the bytes of two pieces, of which one comes while the other is added. */
static int64_t ring_staging_bytes(const struct pd_topology *topology, const int *ranks, int n,
				  int64_t bytes)
{
	return (n > 2 ? 2 : 1) * (int64_t)(sizeof(float) *
					   pd_piece_most((size_t)bytes / sizeof(float), n));
}

static bool ring_sends(int n, int me, int i, int *peer_p, double *part_p)
{
	*peer_p = (me + 1) % n;
	*part_p = 2.0 * (n - 1) / n;
	return i == 0;
}

static int64_t doubling_staging_bytes(const struct pd_topology *topology, const int *ranks, int n,
				      int64_t bytes)
{
	return bytes;
}

static int log2_of(int64_t n)
{
	int log = 0;

	while (INT64_C(2) << log <= n)
		log++;
	return log;
}

/* Returns the time of the rounds, and of bringing in and serving members above a power of two. */
static int64_t doubling_cost_ns(int64_t whole_ns, int64_t latency_ns, int64_t n)
{
	int rounds = log2_of(n);

	if (n == 1 || whole_ns == 0)
		return 0;
	rounds += n > INT64_C(1) << rounds ? 2 : 0;
	return saturate((__int128)rounds * ((__int128)whole_ns + latency_ns));
}

static bool doubling_sends(int n, int me, int i, int *peer_p, double *part_p)
{
	int rounds = log2_of(n), power = 1 << rounds;

	*part_p = 1;
	*peer_p = me >= power ? me - power : i < rounds ? me ^ 1 << i : me + power;
	return me >= power ? i == 0 : i < rounds || (i == rounds && me + power < n);
}

const struct pd_reducer pd_reducers[] = {
	[PD_REDUCER_dense] = { dense_staging_bytes, true, NULL, dense_cost_ns },
	[PD_REDUCER_ring] = { ring_staging_bytes, false, ring_sends, dense_cost_ns },
	[PD_REDUCER_doubling] = { doubling_staging_bytes, false, doubling_sends,
				  doubling_cost_ns },
};
