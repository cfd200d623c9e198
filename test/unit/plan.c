/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "memory/again.h"
#include "plan/plan.h"
#include "plan/prediction.h"

#include "document.h"
#include "small_profile.h"
#include "tap.h"

static struct pd_plan *parse_value(json_t *value, struct pd_error *err)
{
	struct pd_place root = pd_place_root("doc", value);

	return pd_plan_parse_at(&root, err);
}

/* Returns a plan of four layers in a chain on four devices. */
static struct pd_plan *small_plan(int stages, const int *layers, const int *replicas,
				  struct pd_error *err)
{
	struct pd_topology topology;

	pd_topology_parse_string("4@1GB/s", &topology, NULL);
	return pd_plan_new(small_profile("a<x b<a c<b d<c"), &topology, stages, layers, replicas,
			   err);
}

static void test_new(void)
{
	struct pd_plan *plan = small_plan(3, (int[]){ 1, 2, 1 }, (int[]){ 2, 1, 1 }, NULL);
	int replica = -1;

	if (!ok(plan, "a plan is made"))
		return;
	is_int(plan->rank_count, 4, "ranks");
	ok(plan->stages[0].ranks[1] == 1 && plan->stages[1].ranks[0] == 2, "given out in order");
	is_int(plan->stages[1].first_layer, 1, "first layer");
	is_int(plan->stages[0].warmup, 1, "warm-up: ceil(4 / 2) - 1");
	is_int(plan->stages[1].warmup, 1, "warm-up: ceil(2 / 1) - 1");
	is_int(plan->stages[2].warmup, 0, "warm-up of the last");
	is_int(pd_plan_stage_of_layer(plan, 0), 0, "stage of layer 0");
	is_int(pd_plan_stage_of_layer(plan, 2), 1, "stage of layer 2");
	is_int(pd_plan_stage_of_layer(plan, 3), 2, "stage of layer 3");
	ok(pd_plan_stage_of_rank(plan, 1, &replica) == 0 && replica == 1, "stage of rank 1");
	ok(pd_plan_stage_of_rank(plan, 3, &replica) == 2 && replica == 0, "stage of rank 3");
	is_int(pd_plan_stage_of_rank(plan, 4, NULL), -1, "no stage of rank 4");
	plan->stages[0].ranks[0] = 3;
	plan->stages[0].ranks[1] = 0;
	plan->stages[2].ranks[0] = 1;
	ok(pd_plan_stage_of_rank(plan, 0, &replica) == 0 && replica == 1 &&
	   pd_plan_stage_of_rank(plan, 1, NULL) == 2, "in any order");
	pd_plan_free(plan);

	/* The warm-ups of 2-3-2 by SOSP 2019 are ceil(7/2) - 1, ceil(5/3) - 1 and ceil(2/2) - 1. */
	{
		struct pd_topology topology;

		pd_topology_parse_string("8@1GB/s", &topology, NULL);
		plan = pd_plan_new(small_profile("a<x b<a c<b"), &topology, 3, (int[]){ 1, 1, 1 },
				   (int[]){ 2, 3, 2 }, NULL);
		ok(plan->stages[0].warmup == 3 && plan->stages[1].warmup == 1 &&
		   plan->stages[2].warmup == 0, "warm-ups are rounded up");
		pd_plan_free(plan);
	}
}

static void test_new_errors(void)
{
	static const struct {
		int stages, layers[3], replicas[3];
		const char *message;
	} cases[] = {
		{ 2, { 1, 2 }, { 1, 1 }, "the stages have 3 layers, the profile has 4" },
		{ 2, { 3, 2 }, { 1, 1 }, "the stages have 5 layers, the profile has 4" },
		{ 2, { 4, 0 }, { 1, 1 }, "stage 1 has 0 layers and 1 replicas" },
		{ 2, { 2, 2 }, { 1, 0 }, "stage 1 has 2 layers and 0 replicas" },
		{ 2, { 2, 2 }, { 4, 1 }, "the stages have 5 ranks, the topology has 4" },
		{ 2, { 2, 2 }, { INT32_MAX, INT32_MAX }, "ranks, the topology has 4" },
		{ 0, { 0 }, { 0 }, "0 stages: expected 1 to 4" },
		{ 5, { 0 }, { 0 }, "5 stages: expected 1 to 4" },
	};

	for (size_t i = 0; i < PD_COUNT(cases); i++) {
		struct pd_error err = { .text = "it was made" };
		struct pd_plan *plan = small_plan(cases[i].stages, cases[i].layers,
						  cases[i].replicas,
						  &err);

		if (!ok(!plan && strstr(err.text, cases[i].message), "refused: %s",
			cases[i].message))
			diag("%s", err.text);
		pd_plan_free(plan);
	}
}

/* Of a stage that recomputes, the layers that are kept take no time again. */
static void test_again(void)
{
	struct pd_plan *plan = small_plan(2, (int[]){ 3, 1 }, (int[]){ 3, 1 }, NULL);
	const struct pd_profile_layer *layers = plan->profile->layers;

	ok(pd_plan_again_ns(plan, 0) == 0, "a stage that does not recompute");
	plan->stages[0].recompute = true;
	ok(pd_plan_again_ns(plan, 0) == plan->stages[0].forward_ns, "all of a stage again");
	plan->segment = pd_calloc(4, sizeof(*plan->segment));
	plan->segment[1] = -1;
	ok(layers[1].forward_ns > 0 && pd_plan_again_ns(plan, 0) == layers[0].forward_ns + layers[2].forward_ns,
	   "all but a layer that is kept");
	pd_plan_free(plan);
}

static void test_round_trip(void)
{
	struct pd_plan *plan = small_plan(2, (int[]){ 3, 1 }, (int[]){ 3, 1 }, NULL), *again;
	struct pd_error err = { 0 };
	json_t *one, *two;

	plan->schedule = PD_SCHEDULE_GPIPE;
	plan->weights = PD_WEIGHTS_2BW;
	plan->microbatches = 4;
	plan->stages[0].recompute = true;
	plan->stages[0].forward_ns = 1;
	plan->stages[0].backward_ns = 2;
	plan->stages[0].allreduce_ns = 3;
	plan->stages[0].memory_bytes = 4;
	plan->stages[0].ranks[0] = 3;
	plan->stages[1].ranks[0] = 0;
	plan->predicted = (struct pd_prediction){
		.period_ns = 5, .memory_bytes = 6, .lower_bound_ns = 7,
		.period_from = PD_PERIOD_REPLAY, .data_parallel_from = PD_PERIOD_ESTIMATE,
		.samples_per_s = 8.25, .speedup_over_data_parallel = 9.5, .gap = 0.5,
		.data_parallel_period_ns = 10, .data_parallel_memory_bytes = 11 };
	plan->predicted.sent_bytes_per_sample = 12.5;
	plan->predicted.alternative_count = 1;
	plan->predicted.alternatives = pd_calloc(1, sizeof(struct pd_alternative));
	plan->predicted.alternatives[0] = (struct pd_alternative){
		PD_ALTERNATIVE_GPIPE, PD_SCHEDULE_GPIPE, PD_WEIGHTS_FLUSH, 8, 2,
		pd_plan_stages_text(plan), pd_strdup("0"), 13, 14, PD_PERIOD_REPLAY, 15.5, true };
	one = pd_plan_json(plan);
	again = parse_value(one, &err);
	if (!ok(again, "what was written is read"))
		diag("%s", err.text);
	two = pd_plan_json(again);
	ok(json_equal(one, two), "and written the same");
	ok(again->schedule == PD_SCHEDULE_GPIPE && again->weights == PD_WEIGHTS_2BW &&
	   again->microbatches == 4 && again->rank_count == 4, "the options");
	ok(again->stages[0].recompute && again->stages[0].forward_ns == 1 &&
	   again->stages[0].backward_ns == 2 && again->stages[0].allreduce_ns == 3 &&
	   again->stages[0].memory_bytes == 4 && again->stages[1].first_layer == 3, "the stages");
	ok(again->predicted.period_ns == 5 && again->predicted.memory_bytes == 6 &&
	   again->predicted.lower_bound_ns == 7 && again->predicted.samples_per_s == 8.25 &&
	   again->predicted.period_from == PD_PERIOD_REPLAY &&
	   again->predicted.data_parallel_from == PD_PERIOD_ESTIMATE &&
	   again->predicted.gap == 0.5 && again->predicted.speedup_over_data_parallel == 9.5 &&
	   again->predicted.data_parallel_period_ns == 10 &&
	   again->predicted.data_parallel_memory_bytes == 11 &&
	   again->predicted.sent_bytes_per_sample == 12.5, "the predictions");
	ok(again->predicted.alternative_count == 1 &&
	   again->predicted.alternatives[0].kind == PD_ALTERNATIVE_GPIPE &&
	   again->predicted.alternatives[0].microbatches == 8 &&
	   again->predicted.alternatives[0].ranks == 2 &&
	   strcmp(again->predicted.alternatives[0].stages, "3x3,1x1") == 0 &&
	   again->predicted.alternatives[0].period_ns == 13 &&
	   again->predicted.alternatives[0].memory_bytes == 14 &&
	   again->predicted.alternatives[0].sent_bytes_per_sample == 15.5 &&
	   again->predicted.alternatives[0].fits, "the alternatives");
	json_decref(one);
	json_decref(two);
	pd_plan_free(plan);
	pd_plan_free(again);
}

/* Tests a plan without the keys that can be worked out. */
static void test_absent(void)
{
	struct pd_plan *plan = small_plan(2, (int[]){ 3, 1 }, (int[]){ 3, 1 }, NULL), *again;
	json_t *value = pd_plan_json(plan), *stage;
	size_t s;

	json_object_del(value, "predicted");
	json_object_del(value, "microbatches");
	json_array_foreach(json_object_get(value, "stages"), s, stage) {
		json_object_del(stage, "predicted");
		json_object_del(stage, "warmup");
		json_object_del(stage, "recompute");
	}
	again = parse_value(value, NULL);
	ok(again && again->microbatches == 1 && again->stages[0].warmup == plan->stages[0].warmup &&
	   !again->stages[0].recompute && again->predicted.period_ns == 0, "absent keys");
	json_decref(value);
	pd_plan_free(plan);
	pd_plan_free(again);
}

/* Tests documents in which the value of `key` is replaced by `json`, and the error that this causes. */
static void test_errors(void)
{
	static const struct {
		const char *key, *json, *message;
	} cases[] = {
		{ "schedule", "'zigzag'", "schedule: expected one of \"1f1b\", \"gpipe\", "
		 "\"interleaved\", "
		  "\"zb-h1\", \"zb-h2\", \"zb-v\", \"v-half\", \"v-min\", \"dualpipe-v\", \"nf1b\", \"none\", \"ordered\", found \"zigzag\"" },
		{ "weights", "7", "weights: expected one of \"stash\", \"vertical-sync\"" },
		{ "microbatches", "0", "microbatches: expected a whole number from 1" },
		{ "stages", "[]", "stages: expected 1 to 4 stages" },
		{ "profile", "{}", "profile.format: expected \"pd-profile\"" },
		{ "topology", "{}", "topology.format: expected \"pd-topology\"" },
		{ "predicted", "{'gap': 2}", "predicted.gap: expected a number" },
		{ "predicted", "{'data_parallel': {'x': 1}}", "predicted.data_parallel: unknown "
		 "key" },
		{ "colour", "1", "unknown key \"colour\"" },
#define STAGES(text) "stages", "[" text "]"
#define ONE(layers, ranks) "{'layers': [" layers "], 'replicas': 1, 'ranks': [" ranks "]}"
		{ STAGES(ONE("'a', 'b', 'c'", "0")), "layer \"d\" is in no stage" },
		{ STAGES(ONE("'a', 'c', 'b', 'd'", "0")),
		  "stages[0].layers[1]: expected layer \"b\", which \"c\" needs, before it" },
		{ STAGES(ONE("'b', 'c', 'd'", "0") "," ONE("'a'", "1")),
		  "stages[0].layers[0]: expected layer \"a\", which \"b\" needs, before it" },
		{ STAGES(ONE("'a', 'b', 'c', 'd'", "0") "," ONE("'a'", "1")),
		  "stages[1].layers[0]: layer \"a\" is there twice" },
		{ STAGES(ONE("'a', 'z'", "0")), "stages[0].layers[1]: the profile has no layer "
		 "\"z\"" },
		{ STAGES(ONE("", "0")), "stages[0].layers: expected at least one layer" },
		{ STAGES(ONE("'a', 'b', 'c', 'd'", "1")), "stages[0].ranks[0]: expected each rank "
		 "from 0 to 0" },
		{ STAGES(ONE("'a', 'b'", "0") "," ONE("'c', 'd'", "0")),
		  "stages[1].ranks[0]: expected each rank from 0 to 1 once, found 0" },
		{ STAGES(ONE("'a', 'b', 'c', 'd'", "4")), "ranks[0]: expected a whole number from "
		 "0 to 3" },
		{ STAGES(ONE("'a', 'b', 'c', 'd'", "0, 1")), "ranks: expected as many ranks as "
		 "replicas, 1" },
		{ STAGES("{'layers': ['a', 'b', 'c', 'd'], 'replicas': 5, 'ranks': [0]}"),
		  "replicas: expected a whole number from 1 to 4, found 5" },
		{ STAGES("{'layers': ['a', 'b'], 'replicas': 4, 'ranks': [0, 1, 2, 3]},"
			 "{'layers': ['c', 'd'], 'replicas': 1, 'ranks': [0]}"),
		  "stages: the stages have 5 ranks, the topology has 4 devices" },
		{ STAGES("{'layers': ['a', 'b', 'c', 'd'], 'replicas': 1, 'ranks': [0], 'warmup': "
			 "-1}"),
		  "warmup: expected a whole number from 0" },
		{ STAGES("{'layers': ['a', 'b', 'c', 'd'], 'replicas': 1, 'ranks': [0], "
			 "'recompute': 1}"),
		  "recompute: expected true, false, an array of layers or one of such arrays, found 1" },
	};
	struct pd_plan *plan = small_plan(2, (int[]){ 3, 1 }, (int[]){ 3, 1 }, NULL);

	for (size_t i = 0; i < PD_COUNT(cases); i++) {
		struct pd_error err = { .text = "it was read" };
		char *wrapped = pd_format("[%s]", cases[i].json);
		json_t *value = pd_plan_json(plan), *part = document_parse(wrapped, NULL);
		struct pd_plan *read;

		json_object_set(value, cases[i].key, json_array_get(part, 0));
		read = parse_value(value, &err);
		if (!ok(!read && err.status == PD_EXIT_USAGE && strstr(err.text, cases[i].message),
			"refused: %s", cases[i].message))
			diag("%s", err.text);
		pd_plan_free(read);
		json_decref(part);
		json_decref(value);
		free(wrapped);
	}
	pd_plan_free(plan);
}

#define COST "'forward_ns': 0, 'backward_ns': 0, 'activation_bytes': 0, 'parameter_bytes': 0"

static void test_shares(void)
{
	static const char text[] = "{'format': 'pd-profile', 'version': 1, 'name': 'p', 'model': "
		"{'format': 'pd-model', 'version': 1, 'name': 'm', 'inputs': [{'name': 'x', "
		"'dtype': 'f32', 'shape': [4]}], 'layers': ["
		"{'name': 'a', 'kind': 'linear', 'inputs': ['x'], 'out_features': 4},"
		"{'name': 'b', 'kind': 'relu', 'inputs': ['a']},"
		"{'name': 'c', 'kind': 'linear', 'inputs': ['b'], 'out_features': 4, 'shares': "
		"'a'}]},'batch_size': 1, 'device': {'kind': 'cpu'}, 'layers': ["
		"{'name': 'a', 'inputs': ['x'], " COST "}, {'name': 'b', 'inputs': ['a'], "
		"" COST "},"
		"{'name': 'c', 'inputs': ['b'], " COST "}]}";

	for (int cut = 1; cut <= 2; cut++) {
		struct pd_error err = { .text = "it was made" };
		json_t *value = document_parse(text, NULL);
		struct pd_place root = pd_place_root("doc", value);
		struct pd_profile *profile = pd_profile_parse_at(&root, NULL);
		struct pd_topology topology;
		struct pd_plan *plan;

		pd_topology_parse_string("4@1GB/s", &topology, NULL);
		plan = pd_plan_new(profile, &topology, cut == 1 ? 1 : 2,
				   cut == 1 ? (int[]){ 3 } : (int[]){ 2, 1 }, (int[]){ 1, 1 },
				   &err);
		if (cut == 1) {
			ok(pd_plan_check_shares(plan, "", &err) == 0,
			   "layers that share parameters in one stage");
		} else {
			ok(pd_plan_check_shares(plan, "", &err) < 0 &&
			   strstr(err.text, "layers \"c\" and \"a\" share parameters"),
			   "not in two");
			plan->weights = PD_WEIGHTS_FLUSH;
			ok(pd_plan_check_shares(plan, "", &err) == 0, "but with flush");
		}
		pd_plan_free(plan);
		json_decref(value);
	}
}

int main(void)
{
	test_new();
	test_new_errors();
	test_again();
	test_round_trip();
	test_absent();
	test_errors();
	test_shares();
	return done_testing();
}
