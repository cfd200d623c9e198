/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which placements of a plan on a machine count as one. */
#include "planner/search/placement.h"

#include "tap.h"

#include <string.h>

#define RANKS 4

/* A plan of four stages on two hosts of two devices each. */
struct placed {
	struct pd_plan plan;
	struct pd_stage stages[RANKS];
	int ranks[RANKS];
};

static void set_up(struct placed *placed)
{
	*placed = (struct placed){ .plan = { .stages = placed->stages, .stage_count = RANKS,
					     .rank_count = RANKS } };
	ok(pd_topology_read("2@10GB/s,2@1GB/s", &placed->plan.topology, NULL) == 0, "two hosts");
	for (int s = 0; s < RANKS; s++)
		placed->stages[s] = (struct pd_stage){ .first_layer = s, .layer_count = 1, .replicas = 1,
						       .ranks = &placed->ranks[s] };
}

static bool add(struct pd_placements *seen, struct placed *placed, int a, int b, int c, int d)
{
	memcpy(placed->ranks, (int[RANKS]){ a, b, c, d }, sizeof(placed->ranks));
	return pd_placements_add(seen, &placed->plan);
}

static void test_equal_components(void)
{
	struct pd_placements seen = { 0 };
	struct placed placed;

	set_up(&placed);
	ok(add(&seen, &placed, 0, 1, 2, 3), "the first placement is new");
	ok(!add(&seen, &placed, 0, 1, 2, 3), "it is not new again");
	ok(!add(&seen, &placed, 1, 0, 2, 3), "nor with the devices of a host exchanged");
	ok(!add(&seen, &placed, 2, 3, 1, 0), "nor with the hosts exchanged");
	ok(add(&seen, &placed, 0, 2, 1, 3), "with every second stage on each host it is new");
	ok(!add(&seen, &placed, 3, 1, 2, 0), "but once");
	ok(add(&seen, &placed, 0, 2, 3, 1), "and so it is with the ends on one host");
	is_int((int64_t)seen.count, 3, "these are all");
	pd_placements_release(&seen);
	is_int((int64_t)seen.count, 0, "released, there are none");
}

static void test_shared_processors(void)
{
	struct pd_placements seen = { 0 };
	struct placed placed;

	set_up(&placed);
	placed.plan.topology.processors = 2;
	ok(add(&seen, &placed, 0, 1, 2, 3), "on shared processors the first is new");
	ok(add(&seen, &placed, 1, 0, 2, 3), "and each other, since a rank's number tells its processor");
	ok(!add(&seen, &placed, 1, 0, 2, 3), "but once");
	pd_placements_release(&seen);
}

static void count(void *context, struct pd_plan *plan)
{
	(void)plan;
	++*(int *)context;
}

/* Four stages on two hosts of two can share a host in three ways. */
static void test_each(void)
{
	struct placed placed;
	int found = 0;

	set_up(&placed);
	ok(pd_placement_each(&placed.plan, count, &found), "every order is tried");
	is_int(found, 3, "each that differs is found once");
}

int main(void)
{
	test_equal_components();
	test_shared_processors();
	test_each();
	return done_testing();
}
