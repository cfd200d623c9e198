/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/traffic.h"

#include "base/mem.h"
#include "base/piece.h"
#include "topology/allreduce.h"

#include <stdlib.h>
#include <string.h>

/* A dense sum. */
struct dense {
	const struct pd_members *members;
	int64_t bytes;
	struct pd_allreduce how;
	double narrow;                  /* what travels of f32's bytes, but for parts of sums */
	struct pd_traffic *traffic;
};

static struct pd_traffic *at_level(const struct pd_members *members, struct pd_traffic *traffic,
				   int member, int level)
{
	return &traffic[member * members->topology->levels + level];
}

/* Adds what one member sends another. */
static void pass(const struct pd_members *members, struct pd_traffic *traffic, int from, int to,
		 double bytes, double sums_bytes)
{
	int outermost = pd_topology_level(members->topology, members->ranks[from],
					  members->ranks[to]);

	for (int k = 0; k <= outermost; k++) {
		struct pd_traffic *out = at_level(members, traffic, from, k);

		out->sent_bytes += bytes;
		out->sums_bytes += sums_bytes;
		at_level(members, traffic, to, k)->got_bytes += bytes;
	}
}

/* Returns the bytes of the pieces from one to before another. */
static double bytes_of(const struct dense *dense, int from, int to)
{
	size_t floats = (size_t)dense->bytes / sizeof(float);

	return (double)((pd_piece_begin(floats, dense->how.pieces, to) -
			 pd_piece_begin(floats, dense->how.pieces, from)) * sizeof(float));
}

/* Returns the bytes that member i of a group owns. */
static double share_of(const struct dense *dense, int size, int i)
{
	return bytes_of(dense, pd_allreduce_piece_begin(&dense->how, size, i),
			pd_allreduce_piece_begin(&dense->how, size, i + 1));
}

/* The members of a group in one component, and the bytes that they own. */
struct inside {
	int count;
	double bytes;
};

/*
 * Adds what a group exchanges through the links of components of `ranks` ranks: each member sends
 * its part of what members outside own, and the sum of its own to each of them, and gets as much.
 * inside has room for each component, and is zero before and after.
 */
static void exchange(const struct dense *dense, int first, int size, int level, int64_t ranks,
		     struct inside *inside)
{
	const struct pd_members *members = dense->members;

	for (int i = 0; i < size; i++) {
		struct inside *own = &inside[members->ranks[first + i] / ranks];

		own->count++;
		own->bytes += share_of(dense, size, i);
	}
	for (int i = 0; i < size; i++) {
		const struct inside *own = &inside[members->ranks[first + i] / ranks];
		struct pd_traffic *at = at_level(members, dense->traffic, first + i, level);
		double parts = dense->narrow * (bytes_of(dense, 0, dense->how.pieces) - own->bytes);
		double sums = dense->narrow * (size - own->count) * share_of(dense, size, i);

		at->sent_bytes += parts + sums;
		at->got_bytes += parts + sums;
		at->sums_bytes += sums;
	}
	for (int i = 0; i < size; i++)
		inside[members->ranks[first + i] / ranks] = (struct inside){ 0 };
}

/* Adds what owners of a group pass on to those of the next, and the sums that come back. */
static void chain(const struct dense *dense, int group)
{
	const struct pd_allreduce *how = &dense->how;
	int a = pd_allreduce_group_begin(how, group), b = pd_allreduce_group_begin(how, group + 1);
	int a_size = b - a, b_size = pd_allreduce_group_begin(how, group + 2) - b;

	for (int p = 0, end; p < how->pieces; p = end) {
		int i = pd_allreduce_owner(how, a_size, p), k = pd_allreduce_owner(how, b_size, p);
		int a_end = pd_allreduce_piece_begin(how, a_size, i + 1);
		int b_end = pd_allreduce_piece_begin(how, b_size, k + 1);
		double bytes;

		end = a_end < b_end ? a_end : b_end;
		bytes = bytes_of(dense, p, end);
		pass(dense->members, dense->traffic, a + i, b + k, bytes, 0);
		pass(dense->members, dense->traffic, b + k, a + i, dense->narrow * bytes,
		     dense->narrow * bytes);
	}
}

static void exchange_all(const struct dense *dense)
{
	const struct pd_topology *topology = dense->members->topology;
	int highest = 0;
	struct inside *inside;
	int64_t ranks = 1;

	for (int m = 0; m < dense->members->count; m++)
		if (dense->members->ranks[m] > highest)
			highest = dense->members->ranks[m];
	inside = pd_calloc((size_t)highest + 1, sizeof(*inside));
	for (int k = 0; k < topology->levels; ranks *= topology->level[k++].count)
		for (int g = 0; g < dense->how.groups; g++) {
			int first = pd_allreduce_group_begin(&dense->how, g);

			exchange(dense, first, pd_allreduce_group_begin(&dense->how, g + 1) - first,
				 k, ranks, inside);
		}
	free(inside);
}

void pd_traffic_of(enum pd_reducer_kind kind, const struct pd_members *members, int64_t bytes,
		   struct pd_traffic *traffic)
{
	const struct pd_reducer *reducer = pd_reducers[kind];
	int count = members->count, levels = members->topology->levels, peer;
	struct dense dense = { members, bytes, .traffic = traffic,
			       .narrow = (double)pd_dtype_bytes(members->dtype) / sizeof(float) };
	double part;

	memset(traffic, 0, (size_t)(count * levels) * sizeof(*traffic));
	if (count < 2 || bytes == 0)
		return;
	for (int m = 0; m < count && reducer->sends; m++)
		for (int i = 0; reducer->sends(members, m, i, &peer, &part); i++)
			pass(members, traffic, m, peer, part * (double)bytes, 0);
	if (reducer->sends)
		return;
	dense.how = pd_allreduce_choose(members->topology, members->ranks, count, bytes);
	if (dense.how.groups < count)
		exchange_all(&dense);
	for (int g = 0; g + 1 < dense.how.groups; g++)
		chain(&dense, g);
}

double pd_traffic_bytes(enum pd_reducer_kind kind, const struct pd_members *members, int64_t bytes)
{
	struct pd_traffic *traffic = pd_calloc((size_t)(members->count * members->topology->levels),
					       sizeof(*traffic));
	double sum = 0;

	pd_traffic_of(kind, members, bytes, traffic);
	for (int m = 0; m < members->count; m++)
		sum += at_level(members, traffic, m, 0)->sent_bytes;
	free(traffic);
	return sum;
}
