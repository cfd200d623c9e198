/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/reducer.h"

#include "base/mem.h"
#include "base/buffer_pieces.h"
#include "topology/allreduce.h"
#include "topology/direct.h"
#include "topology/hierarchy.h"

const char *const pd_reducer_kind_name[] = {
#define REDUCER_KIND(symbol, name, what) name,
#include "topology/reducer_kind.def"
#undef REDUCER_KIND
	NULL
};

static bool narrows(const struct pd_members *members)
{
	return members->dtype != PD_F32;
}

static int64_t saturate(__int128 ns)
{
	return ns > PD_REDUCER_MOST_NS ? PD_REDUCER_MOST_NS : (int64_t)ns;
}

/* The slowest way between some ranks: of `bytes` without latency, and that. */
struct way {
	int64_t whole_ns, latency_ns;
};

static struct way way_between(const struct pd_members *members, int64_t bytes)
{
	int low = members->ranks[0], high = low;
	struct way way = { 0, 0 };

	for (int i = 1; i < members->count; i++) {
		low = members->ranks[i] < low ? members->ranks[i] : low;
		high = members->ranks[i] > high ? members->ranks[i] : high;
	}
	if (low == high)
		return way;
	way.latency_ns = pd_topology_transfer_ns(members->topology, low, high, 0);
	way.whole_ns = pd_topology_transfer_ns(members->topology, low, high, bytes) - way.latency_ns;
	for (int i = 0; i < members->count && members->topology->link_runs > 0; i++)
		if (members->ranks[i] != low) {
			int64_t own_ns = pd_topology_transfer_ns(members->topology, low, members->ranks[i], 0);
			int64_t all_ns = pd_topology_transfer_ns(members->topology, low, members->ranks[i], bytes);

			way.latency_ns = own_ns > way.latency_ns ? own_ns : way.latency_ns;
			way.whole_ns = all_ns - own_ns > way.whole_ns ? all_ns - own_ns : way.whole_ns;
		}
	return way;
}

static int64_t dense_staging_bytes(const struct pd_members *members, int64_t bytes)
{
	struct pd_allreduce how = pd_allreduce_choose(members->topology, members->ranks,
						      members->count, bytes);

	return pd_allreduce_staging_bytes(&how, bytes, members->dtype);
}

static void dense_meets(const struct pd_members *members, int me, int64_t bytes, bool *met)
{
	struct pd_allreduce how = pd_allreduce_choose(members->topology, members->ranks,
						      members->count, bytes);

	pd_allreduce_meets(&how, me, met);
}

/*
 * Returns the time of 2 (n - 1) steps, in which so many halves of an n-th of the buffer pass, rounded
 * up.
 */
static int64_t round_ns(const struct pd_members *members, int64_t bytes, __int128 halves)
{
	int64_t n = members->count;
	struct way way;

	if (n == 1 || bytes == 0)
		return 0;
	way = way_between(members, bytes);
	return saturate(((__int128)way.whole_ns * halves + 2 * n - 1) / (2 * n) +
			(__int128)way.latency_ns * (2 * (n - 1)));
}

/* In each other's memory two empty messages go to and fro: ready, and written. */
static int64_t dense_cost_ns(const struct pd_members *members, int64_t bytes)
{
	if (pd_direct_expected(members, bytes))
		return saturate((__int128)pd_direct_ns(members, bytes) +
				2 * way_between(members, 0).latency_ns);
	return round_ns(members, bytes, (int64_t)(members->count - 1) * (narrows(members) ? 2 : 4));
}

/*
 * Returns twice the n-ths of the buffer that a member of a ring sends: parts of sums are of f32, a
 * member's own gradients and sums of all may be of 16 bits.
 */
static int64_t ring_halves(const struct pd_members *members)
{
	int64_t n = members->count;

	return narrows(members) ? 1 + 2 * (n - 2) + (n - 1) : 4 * (n - 1);
}

static int64_t ring_staging_bytes(const struct pd_members *members, int64_t bytes)
{
	int n = members->count;
	int64_t piece = (int64_t)pd_piece_most((size_t)bytes / sizeof(float), n);

	/* two pieces, of which one comes while the other is added */
	if (!narrows(members))
		return (n > 2 ? 2 : 1) * 4 * piece;
	return bytes / 2 + (n > 2 ? 2 * 4 : 2) * piece;
}

static bool ring_sends(const struct pd_members *members, int me, int i, int *peer_p,
		       double *part_p)
{
	*peer_p = (me + 1) % members->count;
	*part_p = (double)ring_halves(members) / 2 / members->count;
	return i == 0;
}

static void ring_meets(const struct pd_members *members, int me, int64_t bytes, bool *met)
{
	met[(me + 1) % members->count] = met[(me + members->count - 1) % members->count] = true;
}

int64_t pd_ring_ns(__int128 transfer_ns, int64_t latency_ns, int64_t n, int parts)
{
	int64_t steps = 2 * (n - 1);
	__int128 full_ns = transfer_ns + latency_ns;
	__int128 waits_ns = (transfer_ns * (steps + parts - 1) + steps * parts - 1) /
			    (steps * parts) + (__int128)latency_ns * steps;

	return saturate(full_ns > waits_ns ? full_ns : waits_ns);
}

static int64_t ring_cost_ns(const struct pd_members *members, int64_t bytes)
{
	int n = members->count;
	struct way way;

	if (n == 1 || bytes == 0)
		return 0;
	way = way_between(members, bytes);
	return pd_ring_ns(((__int128)way.whole_ns * ring_halves(members) + 2 * n - 1) / (2 * n),
			  way.latency_ns, n, pd_piece_parts((size_t)bytes / sizeof(float), n));
}

static int64_t doubling_staging_bytes(const struct pd_members *members, int64_t bytes)
{
	return narrows(members) ? bytes / 2 + (members->count > 2 ? bytes : bytes / 2) : bytes;
}

static int log2_of(int64_t n)
{
	int log = 0;

	while (INT64_C(2) << log <= n)
		log++;
	return log;
}

/* Returns the time of the rounds, and of bringing in and serving members above a power of two. */
static int64_t doubling_cost_ns(const struct pd_members *members, int64_t bytes)
{
	int rounds = log2_of(members->count);
	bool extra = members->count > INT64_C(1) << rounds;
	int steps = rounds + (extra ? 2 : 0), halves = 2 * steps;
	struct way way;

	if (members->count == 1 || bytes == 0)
		return 0;
	if (narrows(members))           /* the first step has plain gradients */
		halves--;
	way = way_between(members, bytes);
	return saturate(((__int128)way.whole_ns * halves + 1) / 2 + (__int128)way.latency_ns * steps);
}

static bool doubling_sends(const struct pd_members *members, int me, int i, int *peer_p,
			   double *part_p)
{
	int n = members->count, rounds = log2_of(n), power = 1 << rounds;
	bool plain = i == 0 && (me >= power || me + power >= n);

	*part_p = plain && narrows(members) ? 0.5 : 1;
	*peer_p = me >= power ? me - power : i < rounds ? me ^ 1 << i : me + power;
	return me >= power ? i == 0 : i < rounds || (i == rounds && me + power < n);
}

/* Whom a member sends to sends to it. */
static void doubling_meets(const struct pd_members *members, int me, int64_t bytes, bool *met)
{
	double part;
	int peer;

	for (int i = 0; doubling_sends(members, me, i, &peer, &part); i++)
		met[peer] = true;
}

/* The transport decides. */
static void all_meet(const struct pd_members *members, int me, int64_t bytes, bool *met)
{
	for (int m = 0; m < members->count; m++)
		met[m] |= m != me;
}

/* The transport's own memory is not counted. */
static int64_t no_staging_bytes(const struct pd_members *members, int64_t bytes)
{
	return 0;
}

static const struct pd_reducer pd_reducer_dense = {
	dense_staging_bytes, false, NULL, dense_meets, dense_cost_ns,
}, pd_reducer_ring = {
	ring_staging_bytes, false, ring_sends, ring_meets, ring_cost_ns,
}, pd_reducer_doubling = {
	doubling_staging_bytes, false, doubling_sends, doubling_meets, doubling_cost_ns,
}, pd_reducer_nccl = {
	no_staging_bytes, true, ring_sends, all_meet, ring_cost_ns,
};

const struct pd_reducer *const pd_reducers[] = {
#define REDUCER_KIND(symbol, name, what) [PD_REDUCER_##symbol] = &pd_reducer_##symbol,
#include "topology/reducer_kind.def"
#undef REDUCER_KIND
};

int pd_reducer_check(enum pd_reducer_kind kind, enum pd_dtype dtype, struct pd_error *err)
{
	if (dtype == PD_F32 || !pd_reducers[kind]->of_transport)
		return 0;
	return pd_error_input(err, "--gradient-dtype: expected f32 with --all-reduce=%s, found %s",
			      pd_reducer_kind_name[kind], pd_dtype_name[dtype]);
}
