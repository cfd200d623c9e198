/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the ordered exchange: its groups and pieces, and how many of each are chosen. */
#include "base/mem.h"
#include "sums/allreduce.h"
#include "sums/traffic.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Tests that every piece has one owner in each group, and every member is in one group. */
static void test_parts(void)
{
	int bad = 0;

	for (int n = 1; n < 70; n++)
		for (int groups = 1; groups <= n; groups++) {
			struct pd_allreduce how = { n, groups, 2 * n + 5 };
			int size = (n + groups - 1) / groups;

			for (int m = 0; m < n; m++) {
				int g = pd_allreduce_group_of(&how, m);

				bad += m < pd_allreduce_group_begin(&how, g) ||
				       m >= pd_allreduce_group_begin(&how, g + 1);
			}
			for (int p = 0; p < how.pieces; p++) {
				int i = pd_allreduce_owner(&how, size, p);

				bad += p < pd_allreduce_piece_begin(&how, size, i) ||
				       p >= pd_allreduce_piece_begin(&how, size, i + 1);
			}
			for (int g = 0; g < groups; g++) {
				int here = pd_allreduce_group_begin(&how, g + 1) -
					pd_allreduce_group_begin(&how, g);

				bad += here != size && here != size - 1;
			}
		}
	is_int(bad, 0, "who is in which group, who owns which piece");
}

/* Cases with the least and the greatest number of groups that may be chosen for 100 MB. */
static const struct choice {
	int first, step, n, low, high;
	const char *topology, *what;
} choices[] = {
	{ 0, 1, 16, 16, 16, "4@12GB/s,4@1.25GB/s", "four servers of four" },
	{ 0, 1, 8, 8, 8, "4@12GB/s,4@1.25GB/s", "two of them" },
	{ 2, 1, 4, 4, 4, "4@12GB/s,4@1.25GB/s", "half of two" },
	{ 0, 1, 4, 1, 1, "4@12GB/s,4@1.25GB/s", "one server" },
	{ 0, 4, 4, 1, 1, "4@12GB/s,4@1.25GB/s", "one member on each server" },
	{ 3, 1, 2, 1, 1, "4@12GB/s,4@1.25GB/s", "two members on two servers" },
	{ 15, -1, 16, 1, 1, "4@12GB/s,4@1.25GB/s", "another order than that of the servers" },
	{ 0, 1, 16, 1, 1, "16@1.25GB/s", "no servers" },
	{ 0, 1, 16, 1, 1, "4@12GB/s,4@1.25GB/s+1s", "steps that take long" },
	{ 0, 1, 32, 1, 1, "32@1GB/s", "few members" },
	{ 0, 1, 32, 32, 32, "8@12GB/s,4@1.25GB/s", "four servers of eight" },
	{ 0, 1, 64, 4, 64, "4@12GB/s,4@12GB/s,4@1.25GB/s", "three levels" },
	{ 0, 1, 96, 1, 1, "96@1GB/s", "some more members than few" },
	{ 0, 1, 300, 3, 16, "300@1GB/s", "some hundreds" },
	{ 0, 1, 8, 2, 2, "4@12GB/s+20ms,2@1GB/s", "few members, but both others far slower" },
	{ 0, 1, 1024, 8, 64, "1024@1GB/s", "a thousand" },
	{ 1023, -1, 1024, 8, 64, "1024@1GB/s", "the same in another order" },
	{ 0, 1, 16384, 128, 512, "16384@1GB/s", "sixteen thousand" },
	{ 0, 1, 1 << 20, 8192, 1 << 16, "1048576@1GB/s", "a million" },
	{ 0, 1, 512, 64, 128, "8@100GB/s,64@10GB/s", "sixty-four servers of eight" },
	{ 0, 1, 4096, 32, 64, "4096@1GB/s+5ms", "four thousand, in steps that take long" },
	{ 0, 2, 10, 10, 10, "4@12GB/s,16@1.25GB/s", "every second device" },
	{ 0, 1, 42, 7, 42, "6@12GB/s,8@1.25GB/s", "servers of six" },
	{ 0, 1, 107, 107, 107, "8@100GB/s,64@10GB/s", "the last server not full: no groups fit" },
	{ 0, 1, 12, 12, 12, "4@1GB/s,4@12GB/s", "servers with slow links inside" },
	{ 0, 1, 8, 8, 8, "4@12GB/s,4@1.25GB/s+1s", "two servers far from each other" },
};

static void test_choice(void)
{
	for (size_t i = 0; i < PD_COUNT(choices); i++) {
		const struct choice *at = &choices[i];
		int *ranks = pd_calloc((size_t)at->n, sizeof(*ranks)), size;
		struct pd_allreduce how;
		struct pd_topology t;
		struct pd_error err;

		for (int r = 0; r < at->n; r++)
			ranks[r] = at->first + r * at->step;
		if (pd_topology_read(at->topology, &t, &err) < 0)
			pd_bug("%s", err.text);
		how = pd_allreduce_choose(&t, ranks, at->n, 100000000);
		size = (how.members + how.groups - 1) / how.groups;
		if (!ok(how.groups >= at->low && how.groups <= at->high && how.pieces >= size &&
			(at->n <= PD_ALLREDUCE_FEW || how.groups == 1 ||
			 size + how.pieces / size <= 129),
			"%s: groups of %d", at->what, size))
			diag("%d groups, %d pieces", how.groups, how.pieces);
		free(ranks);
	}
}

/* Tests that the formula for lines gives what the members of a component send, each added up. */
static void test_line(void)
{
	static const char *const topologies[] = {
		"4@12GB/s,4@1.25GB/s", "16@30GB/s,8@10GB/s,4@1GB/s", "200@1GB/s", "8@1GB/s+5ms,24@1GB/s",
	};
	int same = 0, all = 0, grouped = 0;

	for (size_t i = 0; i < PD_COUNT(topologies); i++) {
		struct pd_topology t;
		struct pd_error err;
		int ranks[512];

		pd_topology_read(topologies[i], &t, &err);
		for (int n = 2; n <= (int)t.devices; n++) {
			int begin = (7 * n) % ((int)t.devices - n + 1), end;
			struct pd_members members = { &t, ranks, n, PD_F32 };
			struct pd_allreduce how;
			struct pd_traffic *traffic = pd_calloc((size_t)(n * t.levels), sizeof(*traffic));
			int64_t size = 1;

			for (int r = 0; r < n; r++)
				ranks[r] = begin + r;
			how = pd_allreduce_choose(&t, ranks, n, n * INT64_C(1000000));
			pd_traffic_of(PD_REDUCER_dense, &members, n * INT64_C(1000000), traffic);
			grouped += how.groups > 1 && how.groups < n;
			for (int k = 0; k < t.levels && n % how.groups == 0; size *= t.level[k++].count)
				for (int first = 0; first < n; first = end) {
					double sent = 0, out;

					for (end = first; end < n && ranks[end] / size == ranks[first] / size;)
						sent += traffic[end++ * t.levels + k].sent_bytes;
					out = pd_traffic_out(&how, first, end - 1);
					same += fabs(out - sent / 1e6) <= 1e-9 * sent;
					all++;
				}
			free(traffic);
		}
	}
	ok(grouped > 100 && same > 0.999 * all,
	   "what a component on a line sends is what its members do: %d of %d the same", same, all);
}

/* Tests that short messages, which take as long as their steps, have as few steps in a row as possible. */
static void test_short(void)
{
	static const struct { const char *topology; int n, bytes, most, pieces; } all[] = {
		{ "4096@1GB/s+5us", 4096, 64, 128, 1 },         /* pieces: pieces of each owner */
		{ "8@12GB/s,16@1.25GB/s", 94, 1000, 6, 1 },
		{ "6@12GB/s+5us,30@1.25GB/s+20us", 55, 100000, 14, 19 },
	};

	for (size_t i = 0; i < PD_COUNT(all); i++) {
		struct pd_allreduce how;
		struct pd_topology t;
		struct pd_error err;
		int size, ranks[4096];

		for (int r = 0; r < all[i].n; r++)
			ranks[r] = r;
		pd_topology_read(all[i].topology, &t, &err);
		how = pd_allreduce_choose(&t, ranks, all[i].n, all[i].bytes);
		size = (how.members + how.groups - 1) / how.groups;
		if (!ok(how.groups <= all[i].most && how.pieces == all[i].pieces * size,
			"%d bytes among %d: groups of %d", all[i].bytes, all[i].n, size))
			diag("%d groups, %d pieces", how.groups, how.pieces);
	}
}

int main(void)
{
	test_parts();
	test_choice();
	test_short();
	test_line();
	return done_testing();
}
