/* SPDX-License-Identifier: Apache-2.0 */
#include "sums/price.h"

#include "base/cost.h"
#include "base/mem.h"
#include "base/minmax.h"
#include "sums/allreduce.h"
#include "sums/direct.h"

#include <math.h>
#include <stdlib.h>

#define ROUNDING (1 - 1e-12)            /* allows for that of double */

int64_t pd_sum_alone_ns(const struct pd_sum *sum)
{
	return pd_reducers[sum->kind]->alone_ns(&sum->members, sum->bytes);
}

int64_t pd_sum_memory_ns(const struct pd_sum *sum)
{
	return sum->kind == PD_REDUCER_dense && pd_direct_expected(&sum->members, sum->bytes)
		? pd_direct_ns(&sum->members, sum->bytes) : -1;
}

int64_t pd_sum_grouped_ns(const struct pd_sum *sum)
{
	const struct pd_members *members = &sum->members;
	struct pd_allreduce how;

	if (sum->bytes == 0 || sum->kind != PD_REDUCER_dense)
		return 0;
	return pd_cost_of(pd_allreduce_expect(members->topology, members->ranks, members->count,
					      sum->bytes, &how));
}

struct pd_traffic *pd_sum_traffic(const struct pd_sum *sum, double *sure_p)
{
	size_t levels = (size_t)sum->members.topology->levels;
	struct pd_traffic *traffic;

	if (pd_sum_memory_ns(sum) >= 0)
		return NULL;
	traffic = pd_calloc((size_t)sum->members.count * levels, sizeof(*traffic));
	*sure_p = pd_traffic_of(sum->kind, &sum->members, sum->bytes, traffic);
	return traffic;
}

/* Returns what bytes take on the fastest link of a level. */
static int64_t link_ns(const struct pd_topology *topology, int level, int64_t bytes)
{
	return pd_bytes_ns(bytes, pd_topology_fastest_link(topology, level).bandwidth_bytes_per_s);
}

/*
 * Bounds a chain: member i is done when the sum has come from the one behind it and gone to the one
 * before.
 */
static void bound_chain(const struct pd_members *members, int64_t bytes, struct pd_sum_delay *delays)
{
	const struct pd_topology *topology = members->topology;
	const int *ranks = members->ranks, count = members->count;
	int64_t rest_ns = 0;

	for (int i = count - 1; i > 0; i--) {
		for (int k = pd_topology_level(topology, ranks[i - 1], ranks[i]); k >= 0; k--)
			rest_ns = pd_max(rest_ns, link_ns(topology, k, bytes));
		delays[i].rest_ns = rest_ns;
	}
	delays[0].rest_ns = rest_ns;
}

/* Returns what member i takes to send `part` of its traffic, of which half is sums of all. */
static struct pd_sum_delay delay_of(const struct pd_members *members, int i,
				    const struct pd_traffic *traffic, double part)
{
	const struct pd_topology *topology = members->topology;
	int64_t size = 1, sends_ns = 0;

	for (int k = 0; k < topology->levels; size *= topology->level[k++].count) {
		double ns_per_byte = 1e9 / (double)pd_topology_link(topology, k, members->ranks[i] / size)
					   .bandwidth_bytes_per_s;

		sends_ns = pd_max(sends_ns, pd_cost_of(traffic[i * topology->levels + k].sent_bytes *
							 part * ns_per_byte));
	}
	return (struct pd_sum_delay){ sends_ns, sends_ns / 2 };
}

/* Makes what is left more than half of what a member sends where it is for sure. */
static void bound_rest(const struct pd_sum *sum, struct pd_sum_delay *delays)
{
	const struct pd_members *members = &sum->members;
	int64_t bytes = sum->bytes * (int64_t)pd_dtype_bytes(members->dtype) / (int64_t)sizeof(float);
	int64_t own_ns = pd_cost_of((double)link_ns(members->topology, 0, bytes) * ROUNDING);

	for (int i = 0; i < members->count && sum->kind != PD_REDUCER_dense; i++)
		delays[i].rest_ns = own_ns;
	if (sum->kind == PD_REDUCER_dense &&
	    pd_allreduce_choose(members->topology, members->ranks, members->count, sum->bytes).groups ==
	    members->count)
		bound_chain(members, bytes, delays);
}

void pd_sum_delays(const struct pd_sum *sum, struct pd_sum_delay *delays)
{
	const struct pd_members *members = &sum->members;
	int64_t memory_ns = pd_sum_memory_ns(sum);
	double sure;
	struct pd_traffic *traffic = pd_sum_traffic(sum, &sure);

	for (int i = 0; i < members->count; i++)
		delays[i] = traffic ? delay_of(members, i, traffic, sure)
				    : (struct pd_sum_delay){ memory_ns, memory_ns };
	free(traffic);
	if (memory_ns < 0 && members->count > 1 && sum->bytes > 0)
		bound_rest(sum, delays);
}

int64_t pd_sum_together_ns(const struct pd_sum *sum)
{
	size_t count = (size_t)sum->members.count;
	struct pd_sum_delay *delays = pd_calloc(count, sizeof(*delays));
	int64_t ns = pd_sum_grouped_ns(sum);

	pd_sum_delays(sum, delays);
	for (size_t i = 0; i < count; i++)
		ns = pd_max(ns, pd_max(delays[i].sends_ns, delays[i].rest_ns));
	free(delays);
	return ns;
}

/* Returns the least, over all placements of m replicas, of the largest k (m - k) of a component. */
static double spread(int64_t m, int64_t components, int64_t capacity)
{
	int64_t a = (m + components - 1) / components;
	double even = (double)a * (double)(m - a), full = (double)capacity * (double)(m - capacity);

	if (m <= capacity)
		return 0;
	return capacity >= m - capacity && full < even ? full : even;
}

/* By messages.  With gradients of 16 bits nothing sends less than half. */
static void set_links(struct pd_sum_least *b, const struct pd_topology *topology, enum pd_dtype dtype)
{
	int devices = (int)topology->devices;
	int64_t capacity = 1;
	const double down = ROUNDING * (double)pd_dtype_bytes(dtype) / sizeof(float);

	for (int k = 0; k < topology->levels; k++) {
		double ns = 2e9 / (double)pd_topology_fastest_link(topology, k).bandwidth_bytes_per_s * down;

		for (int m = 2; m <= devices; m++) {
			double own = m > capacity ? ns * (double)(m - capacity) / m : 0;
			double all = ns * spread(m, topology->devices / capacity, capacity) / m;

			if (k == 0) {
				b->own_link[m] = b->own_sum[m] = own;
				continue;
			}
			/* a chain, of members or of groups of them, sends all of it once through
			 * each outer link, twice between two others: what a component has
			 * added up goes on, and sums for those behind it come back.  (Those with
			 * the most of a group in the middle, or of the larger one of two, send
			 * at least what they would in an exchange.) */
			own = own < ns / 2 ? own : ns / 2;
			if (all > ns / 2)
				all = all < ns && m > 2 * capacity ? all :
				      m > 2 * capacity ? ns : ns / 2;
			b->own_outer[m] = own > b->own_outer[m] ? own : b->own_outer[m];
			b->outer_link[m] = all > b->outer_link[m] ? all : b->outer_link[m];
		}
		capacity *= topology->level[k].count;
	}
	for (int m = devices - 1; m >= 2; m--)       /* it never falls with m */
		if (b->outer_link[m] > b->outer_link[m + 1])
			b->outer_link[m] = b->outer_link[m + 1];
}

/* Sets what as many take as a component has whose ranks share a memory. */
static void set_direct(struct pd_sum_least *b, const struct pd_topology *topology,
		       int64_t bytes_per_s)
{
	double ns = 1e9 / (double)bytes_per_s * ROUNDING;
	int64_t size = 1, most = 0;

	for (int k = 0; k < topology->levels; k++) {
		size *= topology->level[k].count;
		if (pd_topology_shares_memory(topology, 0, size - 1))
			most = pd_min(size, PD_DIRECT_MEMBERS);
	}
	for (int m = 2; m <= most; m++) {
		b->own_sum[m] = fmin(b->own_sum[m], ns);
		b->own_link[m] = b->own_outer[m] = b->outer_link[m] = 0;
	}
}

void pd_sum_least_init(struct pd_sum_least *b, const struct pd_topology *topology,
			  enum pd_dtype dtype, int64_t direct_bytes_per_s)
{
	size_t room = (size_t)topology->devices + 2;

	b->own_sum = pd_calloc(4 * room, sizeof(*b->own_sum));
	b->own_link = b->own_sum + room;
	b->own_outer = b->own_link + room;
	b->outer_link = b->own_outer + room;
	set_links(b, topology, dtype);
	if (direct_bytes_per_s > 0 && dtype == PD_F32)
		set_direct(b, topology, direct_bytes_per_s);
}

void pd_sum_least_release(struct pd_sum_least *b)
{
	free(b->own_sum);
}
