/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/price/reduce.h"

#include "base/mem.h"
#include "plan/buckets.h"
#include "planner/price/cost.h"
#include "topology/allreduce.h"
#include "topology/direct.h"
#include "topology/traffic.h"

#include <math.h>
#include <stdlib.h>

#define ROUNDING (1 - 1e-12)            /* allows for that of double */

/* Returns what bytes take on the fastest link of a level. */
static int64_t link_ns(const struct pd_topology *topology, int level, int64_t bytes)
{
	return pd_bytes_ns(bytes, pd_topology_fastest_link(topology, level).bandwidth_bytes_per_s);
}

/*
 * Bounds a chain: member i is done when the sum has come from the one behind it and gone to the one
 * before.
 */
static void bound_chain(const struct pd_members *members, int64_t bytes, struct pd_reduce *reduces)
{
	const struct pd_topology *topology = members->topology;
	const int *ranks = members->ranks, count = members->count;
	int64_t rest_ns = 0;

	for (int i = count - 1; i > 0; i--) {
		for (int k = pd_topology_level(topology, ranks[i - 1], ranks[i]); k >= 0; k--)
			rest_ns = pd_max64(rest_ns, link_ns(topology, k, bytes));
		reduces[i].rest_ns = rest_ns;
	}
	reduces[0].rest_ns = rest_ns;
}

/* Returns what a member takes to send `part` of its traffic, of which half is sums of all. */
static struct pd_reduce reduce_of(const struct pd_topology *topology, int rank,
				  const struct pd_traffic *traffic, double part)
{
	struct pd_reduce reduce = { 0, 0 };
	int64_t size = 1;

	for (int k = 0; k < topology->levels; size *= topology->level[k++].count) {
		double ns_per_byte = 1e9 / (double)pd_topology_link(topology, k, rank / size)
					   .bandwidth_bytes_per_s;

		reduce.sends_ns = pd_max64(reduce.sends_ns, pd_cost_of(traffic[k].sent_bytes * part *
								   ns_per_byte));
	}
	reduce.rest_ns = reduce.sends_ns / 2;
	return reduce;
}

void pd_reduce_times(enum pd_reducer_kind kind, const struct pd_members *members, int64_t bytes,
		     struct pd_reduce *reduces)
{
	const struct pd_topology *topology = members->topology;
	int count = members->count, levels = topology->levels;
	int64_t wire_bytes = bytes * (int64_t)pd_dtype_bytes(members->dtype) / (int64_t)sizeof(float);
	struct pd_traffic *traffic;
	double part;

	if (pd_direct_expected(members, bytes)) {
		for (int i = 0; i < count; i++)
			reduces[i].sends_ns = reduces[i].rest_ns = pd_direct_ns(members, bytes);
		return;
	}
	traffic = pd_calloc((size_t)count * (size_t)levels, sizeof(*traffic));
	part = pd_traffic_of(kind, members, bytes, traffic);
	for (int i = 0; i < count; i++)
		reduces[i] = reduce_of(topology, members->ranks[i], &traffic[i * levels], part);
	free(traffic);
	if (count == 1 || bytes == 0)
		return;
	for (int i = 0; i < count && kind != PD_REDUCER_dense; i++)
		reduces[i].rest_ns = pd_cost_of((double)link_ns(topology, 0, wire_bytes) * ROUNDING);
	if (kind == PD_REDUCER_dense &&
	    pd_allreduce_choose(topology, members->ranks, count, bytes).groups == count)
		bound_chain(members, wire_bytes, reduces);
}

int64_t pd_reduce_grouped_ns(const struct pd_plan *plan, int stage)
{
	const struct pd_stage *at = &plan->stages[stage];
	int64_t bytes = pd_plan_stage_sum_bytes(plan, stage);
	struct pd_allreduce how;
	double ns;

	if (at->replicas == 1 || bytes == 0 || plan->reducer != PD_REDUCER_dense)
		return 0;
	ns = pd_allreduce_expect(&plan->topology, at->ranks, at->replicas, bytes, &how);
	return how.groups > 1 ? pd_cost_of(ns) : 0;
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
static void set_links(struct pd_reduce_least *b, const struct pd_topology *topology, enum pd_dtype dtype)
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
static void set_direct(struct pd_reduce_least *b, const struct pd_topology *topology,
		       int64_t bytes_per_s)
{
	double ns = 1e9 / (double)bytes_per_s * ROUNDING;
	int64_t size = 1, most = 0;

	for (int k = 0; k < topology->levels; k++) {
		size *= topology->level[k].count;
		if (pd_topology_shares_memory(topology, 0, size - 1))
			most = pd_min64(size, PD_DIRECT_MEMBERS);
	}
	for (int m = 2; m <= most; m++) {
		b->own_sum[m] = fmin(b->own_sum[m], ns);
		b->own_link[m] = b->own_outer[m] = b->outer_link[m] = 0;
	}
}

void pd_reduce_least_init(struct pd_reduce_least *b, const struct pd_topology *topology,
			  enum pd_dtype dtype, int64_t direct_bytes_per_s)
{
	size_t room = (size_t)topology->devices + 2;

	b->own_sum = pd_calloc(room, sizeof(*b->own_sum));
	b->own_link = pd_calloc(room, sizeof(*b->own_link));
	b->own_outer = pd_calloc(room, sizeof(*b->own_outer));
	b->outer_link = pd_calloc(room, sizeof(*b->outer_link));
	set_links(b, topology, dtype);
	if (direct_bytes_per_s > 0 && dtype == PD_F32)
		set_direct(b, topology, direct_bytes_per_s);
}

void pd_reduce_least_release(struct pd_reduce_least *b)
{
	free(b->own_sum);
	free(b->own_link);
	free(b->own_outer);
	free(b->outer_link);
}
