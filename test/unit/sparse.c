/* SPDX-License-Identifier: Apache-2.0 */
/* Tests chunks of sparse sums: how many there are and are sent, their buckets, and the room they take. */
#include "plan/sparse.h"
#include "tap.h"

#include <stdlib.h>

static int ranks[] = { 0, 1, 2, 3 };
static struct pd_stage stage = { .replicas = 4, .ranks = ranks };
static struct pd_profile profile;
static struct pd_plan plan = { .profile = &profile, .stage_count = 1, .stages = &stage, .chunk = PD_CHUNK_USUAL,
			       .topology = { .levels = 1, .devices = 4,
					     .level[0] = { .count = 4,
							   .bandwidth_bytes_per_s = 1000000000 } } };

static void test_counts(void)
{
	ok(pd_plan_chunks(&plan, 25500000) == 797, "25.5M gradients are 797 chunks, as published");
	ok(pd_plan_chunks(&plan, 60880000) == 1903, "60.88M are 1,903");
	plan.sparsity = 0.85;
	ok(pd_plan_chunks_sent(&plan, 1903, 0) == 286 && pd_plan_chunks_sent(&plan, 100, 0) == 15 &&
	   pd_plan_chunks_sent(&plan, 20, 0) == 3, "15 percent of them travel, rounded up");
	ok(pd_plan_chunks_sent(&plan, 1, 0) == 1 && pd_plan_chunks_sent(&plan, 0, 0) == 0,
	   "at least one, if there is one");
	plan.sparsity_warmup = 10;
	ok(pd_plan_chunks_sent(&plan, 100, 0) == 100 && pd_plan_chunks_sent(&plan, 100, 5) == 58 &&
	   pd_plan_chunks_sent(&plan, 100, 9) == 24 && pd_plan_chunks_sent(&plan, 100, 10) == 15 &&
	   pd_plan_chunks_sent(&plan, 100, INT64_MAX) == 15, "the warm-up is linear");
}

/* Tests that buckets of any lengths share all chunks among them, in order. */
static void test_buckets(int64_t chunk, int64_t floats, int64_t step)
{
	int64_t next = 0, begin = 0, sent = 0;
	bool good = true;

	plan.chunk = chunk;
	for (int64_t i = 0; begin < floats; i++) {
		int64_t end = begin + 1 + i * step % 997;
		struct pd_chunk_range range;

		end = end < floats ? end : floats;
		range = pd_plan_chunks_of(&plan, begin, end, floats);
		for (int64_t c = range.first; c < range.first + range.count; c++)
			good &= (c + 1) * chunk <= end || end == floats;
		good &= range.first == next;
		next += range.count;
		sent += pd_plan_floats_sent(&plan, &range, floats, 0);
		begin = end;
	}
	ok(good && next == pd_plan_chunks(&plan, floats) && sent == floats,
	   "buckets share %lld chunks of %lld; all of them are all gradients", (long long)next,
	   (long long)chunk);
}

/* Tests that there is room for the chunks that are sent in every minibatch of the warm-up. */
static void test_room(enum pd_reducer_kind kind)
{
	struct pd_members members = pd_plan_members(&plan, 0);
	struct pd_chunk_range range = { 2, 41 };
	int64_t floats = 43 * 100 - 7, packed, staging;
	bool good = true;

	plan.chunk = 100;
	plan.reducer = kind;
	pd_plan_sparse_room(&plan, 0, &range, floats, &packed, &staging);
	for (int64_t m = 0; m < 12; m++) {
		int64_t each = pd_plan_floats_sent(&plan, &range, floats, m);

		good &= each <= packed &&
			pd_reducers[kind]->staging_bytes(&members, 4 * each) <=
			4 * staging;
	}
	ok(good && packed == floats - 200, "%s has room in the whole warm-up",
	   pd_reducer_kind_name[kind]);
}

int main(void)
{
	test_counts();
	test_buckets(1, 5000, 7);
	test_buckets(64, 5000, 7);
	test_buckets(777, 12345, 311);
	test_buckets(32000, 12345, 311);
	for (int kind = 0; kind < PD_REDUCER_KINDS; kind++)
		test_room((enum pd_reducer_kind)kind);
	ok(pd_plan_sum_bytes(&plan, 0, 0, 4 * 4300, 4 * 4300) == 4 * 700, "bytes behind the warm-up");
	stage.replicas = 1;
	ok(!pd_plan_is_sparse(&plan, 0) && pd_plan_sum_bytes(&plan, 0, 0, 16, 16) == 16 &&
	   pd_plan_chunk_table_bytes(&plan, 0, 4300) == 0, "a stage of one replica has no chunks");
	return done_testing();
}
