/* SPDX-License-Identifier: Apache-2.0 */
#include "sums/traffic.h"

#include "base/buffer_pieces.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* A sum, and its traffic. */
struct sum {
	const struct pd_members *members;
	double bytes;
	struct pd_traffic *traffic;
	struct pd_allreduce how;        /* of a dense one: */
	double narrow;                  /* what travels of f32's bytes, but for parts of sums */
};

static struct pd_traffic *at_level(const struct sum *sum, int member, int level)
{
	return &sum->traffic[member * sum->members->topology->levels + level];
}

/* Adds what one member sends another. */
static void pass(const struct sum *sum, int from, int to, double bytes)
{
	const int *ranks = sum->members->ranks;

	for (int k = pd_topology_level(sum->members->topology, ranks[from], ranks[to]); k >= 0; k--) {
		at_level(sum, from, k)->sent_bytes += bytes;
		at_level(sum, to, k)->got_bytes += bytes;
	}
}

/*
 * Adds what a group exchanges through the links of components of `size` ranks: each member sends its
 * part of what each member outside owns, and the sum of its own to it, and gets as much.  inside counts
 * members by component; it is zero before and after.
 */
static void exchange(const struct sum *sum, int first, int end, int level, int64_t size, int *inside)
{
	const int *ranks = sum->members->ranks;
	double both = 2 * sum->narrow * sum->bytes / (end - first);

	for (int i = first; i < end; i++)
		inside[ranks[i] / size]++;
	for (int i = first; i < end; i++) {
		struct pd_traffic *at = at_level(sum, i, level);
		int outside = end - first - inside[ranks[i] / size];

		at->sent_bytes += both * outside;
		at->got_bytes += both * outside;
	}
	for (int i = first; i < end; i++)
		inside[ranks[i] / size] = 0;
}

static void exchange_all(const struct sum *sum)
{
	const struct pd_topology *topology = sum->members->topology;
	int lowest, highest, *inside;
	int64_t size = 1;

	pd_members_ends(sum->members, &lowest, &highest);
	inside = pd_calloc((size_t)highest + 1, sizeof(*inside));
	for (int k = 0; k < topology->levels; size *= topology->level[k++].count)
		for (int g = 0; g < sum->how.groups; g++)
			exchange(sum, pd_allreduce_group_begin(&sum->how, g),
				 pd_allreduce_group_begin(&sum->how, g + 1), k, size, inside);
	free(inside);
}

/* Adds what owners of a group pass on to those of the next, and the sums that come back. */
static void chain(const struct sum *sum, int group)
{
	const struct pd_allreduce *how = &sum->how;
	int a = pd_allreduce_group_begin(how, group), b = pd_allreduce_group_begin(how, group + 1);
	int a_size = b - a, b_size = pd_allreduce_group_begin(how, group + 2) - b;

	for (int p = 0, end; p < how->pieces; p = end) {
		int i = pd_allreduce_owner(how, a_size, p), k = pd_allreduce_owner(how, b_size, p);
		int a_end = pd_allreduce_piece_begin(how, a_size, i + 1);
		int b_end = pd_allreduce_piece_begin(how, b_size, k + 1);
		double bytes;

		end = a_end < b_end ? a_end : b_end;
		bytes = sum->bytes * (end - p) / how->pieces;
		pass(sum, a + i, b + k, bytes);
		pass(sum, b + k, a + i, bytes * sum->narrow);
	}
}

/* Returns the part of an equal piece that the shortest one has. */
static double shortest(const struct sum *sum)
{
	size_t floats = (size_t)sum->bytes / sizeof(float), least = floats;

	for (int p = 0; p < sum->how.pieces; p++) {
		size_t here = pd_piece_begin(floats, sum->how.pieces, p + 1) -
			      pd_piece_begin(floats, sum->how.pieces, p);

		least = here < least ? here : least;
	}
	return (double)least * sizeof(float) * sum->how.pieces / sum->bytes;
}

double pd_allreduce_traffic(const struct pd_members *members, int64_t bytes, struct pd_traffic *traffic)
{
	struct sum sum = {
		members, (double)bytes, traffic,
		pd_allreduce_choose(members->topology, members->ranks, members->count, bytes),
		(double)pd_dtype_bytes(members->dtype) / sizeof(float),
	};

	if (sum.how.groups < members->count)
		exchange_all(&sum);
	for (int g = 0; g + 1 < sum.how.groups; g++)
		chain(&sum, g);
	return shortest(&sum);
}

/* Adds what the members' scripts send. */
static void follow_scripts(const struct sum *sum, const struct pd_reducer *reducer)
{
	struct pd_script script = { .floats = (size_t)sum->bytes / sizeof(float), .dtype = sum->members->dtype,
				    .coarse = true };

	for (int m = 0; m < sum->members->count; m++) {
		script.transfer_count = 0;
		reducer->write(sum->members, m, &script);
		for (size_t i = 0; i < script.transfer_count; i++)
			if (script.transfers[i].send)
				pass(sum, m, script.transfers[i].peer,
				     pd_script_part(&script, &script.transfers[i]) * sum->bytes);
	}
	pd_script_release(&script);
}

double pd_traffic_of(enum pd_reducer_kind kind, const struct pd_members *members, int64_t bytes,
		     struct pd_traffic *traffic)
{
	const struct pd_reducer *reducer = pd_reducers[kind];
	size_t cells = (size_t)members->count * (size_t)members->topology->levels;

	memset(traffic, 0, cells * sizeof(*traffic));
	if (members->count < 2 || bytes == 0)
		return 1;
	if (reducer->traffic)
		return reducer->traffic(members, bytes, traffic);
	follow_scripts(&(struct sum){ members, (double)bytes, traffic }, reducer);
	return 1;
}

/* Returns 2 (a - i) i, where i of a group's a members are among those from first to last. */
static double exchanged(const struct pd_allreduce *how, int group, int first, int last)
{
	int begin = pd_allreduce_group_begin(how, group), end = pd_allreduce_group_begin(how, group + 1);
	int inside = (last + 1 < end ? last + 1 : end) - (first > begin ? first : begin);

	return 2.0 * (end - begin - inside) * inside;
}

/*
 * The groups of the first and the last exchange with members outside; the owners at either end, at most
 * as many as a group has, pass on to the next group and back.
 */
double pd_traffic_out(const struct pd_allreduce *how, int first, int last)
{
	int a = pd_allreduce_group_of(how, first), b = pd_allreduce_group_of(how, last);
	int size = pd_allreduce_group_begin(how, a + 1) - pd_allreduce_group_begin(how, a);
	int ends = (a > 0) + (b < how->groups - 1), count = last - first + 1;
	double out = exchanged(how, a, first, last);

	if (b != a)
		out += exchanged(how, b, first, last);
	return (out + ends * (count < size ? count : size)) * how->members / size;
}

double pd_traffic_bytes(enum pd_reducer_kind kind, const struct pd_members *members, int64_t bytes)
{
	int levels = members->topology->levels;
	struct pd_traffic *traffic = pd_calloc((size_t)members->count * (size_t)levels,
					       sizeof(*traffic));
	double all = 0;

	pd_traffic_of(kind, members, bytes, traffic);
	for (int m = 0; m < members->count; m++)
		all += traffic[m * levels].sent_bytes;
	free(traffic);
	return all;
}
