/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/bound/reduce_bound.h"

#include "base/mem.h"

#include <stdlib.h>

/* Returns the least, over all placements of m replicas, of the largest k (m - k) of a component. */
static double spread(int64_t m, int64_t components, int64_t capacity)
{
	int64_t a = (m + components - 1) / components;
	double even = (double)a * (double)(m - a), full = (double)capacity * (double)(m - capacity);

	if (m <= capacity)
		return 0;
	return capacity >= m - capacity && full < even ? full : even;
}

void pd_reduce_bound_init(struct pd_reduce_bound *b, const struct pd_topology *topology,
			  enum pd_dtype dtype)
{
	size_t room = (size_t)topology->devices + 2;
	int devices = (int)topology->devices;
	int64_t capacity = 1;
	/* allows for the rounding of double */
	const double down = (1 - 1e-12) * (double)pd_dtype_bytes(dtype) / sizeof(float);

	b->own_link = pd_calloc(room, sizeof(*b->own_link));
	b->own_outer = pd_calloc(room, sizeof(*b->own_outer));
	b->outer_link = pd_calloc(room, sizeof(*b->outer_link));
	for (int k = 0; k < topology->levels; k++) {
		double ns = 2e9 / (double)topology->level[k].bandwidth_bytes_per_s * down;

		for (int m = 2; m <= devices; m++) {
			double own = m > capacity ? ns * (double)(m - capacity) / m : 0;
			double all = ns * spread(m, topology->devices / capacity, capacity) / m;

			if (k == 0) {
				b->own_link[m] = own;
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

void pd_reduce_bound_release(struct pd_reduce_bound *b)
{
	free(b->own_link);
	free(b->own_outer);
	free(b->outer_link);
}
