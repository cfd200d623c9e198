/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests what a sum is said to cost against one that is played: replicas that are ready at the same time sum
 * their gradients in virtual time, as workers do, with nobody else on the links.
 */
#include "base/mem.h"
#include "base/minmax.h"
#include "memory/buckets.h"
#include "replayed.h"
#include "sums/price.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_MEMBERS = 9, EVEN_BYTES = 2520 * 64 };      /* up to ten pieces of these are equal */

/* A sum, what is said of it, and what it took. */
struct play {
	struct pd_plan *plan;
	struct pd_sum sum;
	struct pd_trace *trace;
	int64_t all_ns, own_ns[MOST_MEMBERS];
	double sent_bytes[MOST_MEMBERS];
};

static struct pd_plan *plan_of(const char *topology, int members, int64_t bytes)
{
	json_t *ranks = json_array();
	struct pd_plan *plan;
	struct pd_error err;

	for (int m = 0; m < members; m++)
		json_array_append_new(ranks, json_integer(m));
	plan = plan_of_stages(json_pack("[{ss s[] si si si sI}]", "name", "l", "inputs", "forward_ns", 1,
					"backward_ns", 1, "activation_bytes", 0, "parameter_bytes", bytes),
			      json_pack("[{s[s] si so si sb}]", "layers", "l", "replicas", members,
					"ranks", ranks, "warmup", 0, "recompute", 0),
			      0, "1f1b", "stash", "frugal", 1);
	if (pd_topology_parse_string(topology, &plan->topology, &err) < 0)
		pd_bug("%s", err.text);
	return plan;
}

/* Plays a sum of the plan, which it keeps for the sum to borrow. */
static void play(struct pd_plan *plan, struct play *out)
{
	struct pd_replay_options with = { .microbatches = plan->stages[0].replicas };
	int64_t begin_ns = INT64_MAX;
	struct pd_error err;

	*out = (struct play){ .plan = plan, .sum = pd_plan_stage_sum(plan, 0),
			      .trace = pd_replay(plan, &with, &err) };
	if (!out->trace)
		pd_bug("%s", err.text);
	for (size_t i = 0; i < out->trace->count; i++) {
		const struct pd_record *record = &out->trace->records[i];

		if (record->op.kind != PD_OP_allreduce)
			continue;
		begin_ns = pd_min(begin_ns, record->start_ns);
		out->own_ns[record->op.rank] = record->end_ns - begin_ns;
		out->all_ns = pd_max(out->all_ns, record->end_ns - begin_ns);
		out->sent_bytes[record->op.rank] = (double)record->sent_bytes;
	}
}

static void play_free(struct play *play)
{
	pd_trace_free(play->trace);
	pd_plan_free(play->plan);
}

/* Tells whether members sent what the traffic says, and no link was busy for longer than all took. */
static bool carries(const struct play *play)
{
	const struct pd_topology *topology = play->sum.members.topology;
	int levels = topology->levels, right = 0;
	int64_t size = 1;
	double sure;
	struct pd_traffic *traffic = pd_sum_traffic(&play->sum, &sure);

	for (int m = 0; m < play->sum.members.count; m++)
		right += fabs(play->sent_bytes[m] - traffic[m * levels].sent_bytes) <= 1;
	for (int k = 0; k < levels; size *= topology->level[k++].count) {
		double out[MOST_MEMBERS] = { 0 }, in[MOST_MEMBERS] = { 0 };

		for (int m = 0; m < play->sum.members.count; m++) {
			double ns = 1e9 / (double)topology->level[k].bandwidth_bytes_per_s * sure;

			out[m / size] += traffic[m * levels + k].sent_bytes * ns;
			in[m / size] += traffic[m * levels + k].got_bytes * ns;
			right -= fmax(out[m / size], in[m / size]) > (double)play->all_ns + 1;
		}
	}
	free(traffic);
	return right == play->sum.members.count;
}

/* Tells whether no member was done before what is said to be the least. */
static bool delays(const struct play *play)
{
	struct pd_sum_delay delay[MOST_MEMBERS];
	bool right = true;

	pd_sum_delays(&play->sum, delay);
	for (int m = 0; m < play->sum.members.count; m++)
		right &= pd_max(delay[m].sends_ns, delay[m].rest_ns) <= play->own_ns[m] + 1;
	return right;
}

/* Tells whether it took what as many take at least, wherever they are. */
static bool takes_least(const struct play *play)
{
	const struct pd_members *members = &play->sum.members;
	double bytes = (double)play->sum.bytes, took_ns = (double)play->all_ns + 1;
	struct pd_sum_least least;
	bool right;

	pd_sum_least_init(&least, members->topology, members->dtype, members->direct_bytes_per_s);
	right = fmax(least.own_sum[members->count], least.own_link[members->count]) * bytes <= took_ns &&
		(play->sum.kind != PD_REDUCER_dense ||
		 fmax(least.own_outer[members->count], least.outer_link[members->count]) * bytes <= took_ns);
	pd_sum_least_release(&least);
	return right;
}

/*
 * Tells whether it took what is said that it takes alone: the same on links of one kind without latency.  With
 * it, members that send each other several pieces need not wait for each, and rounds that begin early overlap.
 * On several levels a step between members that are near each other is quicker than one over the slowest
 * link, but links that many share may have more than one at a time.
 */
static bool takes_alone(const struct play *play)
{
	const struct pd_topology *topology = play->sum.members.topology;
	int64_t ns = pd_sum_alone_ns(&play->sum);
	bool steps = play->sum.kind == PD_REDUCER_ring || play->sum.kind == PD_REDUCER_hierarchical;

	if (topology->levels == 1 && (topology->level[0].latency_ns == 0 || steps))
		return llabs(ns - play->all_ns) <= 1;
	return topology->levels > 1 && !steps ? ns >= play->all_ns / 3 : ns + 1 >= play->all_ns;
}

/* Tests sums by messages of one length: 2 to 9 members, of f32 and of 16 bits. */
static void test_messages(const char *topology, enum pd_reducer_kind kind, int64_t bytes)
{
	int bad[4] = { 0 };

	for (int i = 0; i < 2 * (MOST_MEMBERS - 1); i++) {
		struct pd_plan *plan = plan_of(topology, 2 + i / 2, bytes);
		struct play one;

		plan->reducer = kind;
		plan->gradient_dtype = i % 2 ? PD_BF16 : PD_F32;
		play(plan, &one);
		bad[0] += !takes_alone(&one);
		bad[1] += !carries(&one);
		bad[2] += !delays(&one);
		bad[3] += !takes_least(&one);
		play_free(&one);
	}
	ok(bad[0] + bad[1] + bad[2] + bad[3] == 0, "%s, %s, %lld bytes: times, loads, delays and bounds are those of "
	   "sums that are played (%d, %d, %d and %d are not)", topology, pd_reducer_kind_name[kind],
	   (long long)bytes, bad[0], bad[1], bad[2], bad[3]);
}

/* Tests sums in each other's memory, and by which reducers they are not. */
static void test_memory(void)
{
	for (int kind = 0; kind < PD_REDUCER_KINDS; kind++) {
		struct pd_plan *plan;
		struct play one;
		bool dense = kind == PD_REDUCER_dense;

		if (pd_reducers[kind]->of_transport)
			continue;
		plan = plan_of("9@1GB/s+7us", 4, EVEN_BYTES * 8);
		plan->reducer = (enum pd_reducer_kind)kind;
		plan->topology.level[0].shared_memory = true;
		plan->profile->in_step.sum_bytes_per_s = INT64_C(4000000000);
		play(plan, &one);
		is_int(pd_sum_memory_ns(&one.sum), dense ? EVEN_BYTES * 2 : -1, "%s: %s", pd_reducer_kind_name[kind],
		       dense ? "in each other's memory" : "by messages");
		ok(pd_sum_alone_ns(&one.sum) == one.all_ns && delays(&one) && takes_least(&one),
		   "%s on a host: the time, delays and bounds of one that is played", pd_reducer_kind_name[kind]);
		play_free(&one);
	}
}

int main(void)
{
	static const char *const topologies[] = { "9@1GB/s", "9@1GB/s+7us", "3@10GB/s+1us,3@1GB/s+5us",
						  "4@1GB/s,3@500MB/s" };

	for (size_t t = 0; t < PD_COUNT(topologies); t++)
		for (int kind = 0; kind < PD_REDUCER_KINDS; kind++)
			for (int many = 1; many < 401 && !pd_reducers[kind]->of_transport; many += 399)
				test_messages(topologies[t], (enum pd_reducer_kind)kind, EVEN_BYTES * (int64_t)many);
	test_memory();
	return done_testing();
}
