/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests what a worker gives to a device at once (lib/engine/worker/batch.c), in virtual time.  A device that
 * counts its works, and then does what the one below it does, has the same operations at the same times.
 * In a stage that sends nothing on, every forward, and every update that can be, comes with a backward.
 */
#include "table.h"
#include "tap.h"
#include "virtual_run.h"

#include "engine/device/sim/sim.h"
#include "run/device/cuda/graph_cache.h"

#include <stdlib.h>
#include <string.h>

#define MICROBATCHES 40
#define LAYERS 4
#define BATCH 8                         /* the batch size of small_profile() */

/* The calls that the device of one run got. */
static struct {
	int iterations, with_update;
	int forwards[MICROBATCHES][LAYERS];     /* by microbatch and first layer */
} now;
static struct pd_device_ops watched;
static const struct pd_phase phase = { .last = MICROBATCHES };

static int submit(struct pd_stream *stream, const struct pd_work *works, int n)
{
	for (int i = 0, joint; i < n; i += joint) {
		joint = pd_graph_joint(&works[i], n - i);
		now.iterations += joint > 1;
		now.with_update += joint > 2;
	}
	for (int i = 0; i < n; i++)
		if (works[i].kind == PD_WORK_FORWARD)
			now.forwards[works[i].pass.first_sample / BATCH][works[i].from] += !works[i].pass.again;
	return pd_device_sim.stream.submit(stream, works, n);
}

static struct virtual_run run_watched(const struct pd_plan *plan)
{
	memset(&now, 0, sizeof(now));
	return virtual_run(plan, &(struct virtual_hooks){ .device = &watched }, NULL, &phase);
}

static bool same(const struct virtual_run *a, const struct virtual_run *b)
{
	if (a->count != b->count)
		return false;
	for (size_t i = 0; i < a->count; i++) {
		const struct pd_record *x = &a->records[i], *y = &b->records[i];

		if (x->op.kind != y->op.kind || x->op.rank != y->op.rank ||
		    x->op.microbatch != y->op.microbatch || x->start_ns != y->start_ns ||
		    x->end_ns != y->end_ns)
			return false;
	}
	return true;
}

static bool each_once(const struct pd_plan *plan)
{
	for (int m = 0; m < MICROBATCHES; m++)
		for (int s = 0; s < plan->stage_count; s++)
			if (now.forwards[m][plan->stages[s].first_layer] != 1)
				return false;
	return true;
}

/* Tests a plan, whose run must have at least so many iterations, and so many of them with an update. */
static void test_plan(const char *what, struct pd_plan *plan, int iterations, int with_update)
{
	struct virtual_run plain = virtual_run(plan, &(struct virtual_hooks){ NULL }, NULL, &phase);
	struct virtual_run one = run_watched(plan);

	ok(same(&plain, &one), "%s: %zu operations at the same times", what, plain.count);
	ok(each_once(plan), "%s: each forward once", what);
	ok(now.iterations >= iterations && now.with_update >= with_update,
	   "%s: %d iterations of %d, with an update %d", what, now.iterations, MICROBATCHES,
	   now.with_update);
	free(plain.records);
	free(one.records);
	pd_plan_free(plan);
}

static struct pd_plan *four_layers(int stages, const int *layers, const int *replicas)
{
	struct pd_plan *plan = plan_of("a<x b<a c<b d<c", stages, layers, replicas);

	plan->topology.level[0].bandwidth_bytes_per_s = INT64_C(10000000000);
	plan->topology.level[0].latency_ns = 5;
	return plan;
}

/* Tests that updates which take time do not wait for the next forward's inputs, however late these come. */
static void test_late_inputs(const char *what, int first, enum pd_weight_kind weights,
			     int64_t microbatches)
{
	const int layers[] = { first, LAYERS - first }, one[] = { 1, 1 };

	for (int64_t latency_ns = 1; latency_ns < 1000; latency_ns = 3 * latency_ns + 10) {
		struct pd_plan *plan = four_layers(2, layers, one);

		use(plan, PD_SCHEDULE_1F1B, weights, microbatches);
		plan->topology.level[0].latency_ns = latency_ns;
		for (int l = 0; l < LAYERS; l++)
			plan->profile->layers[l].update_ns = 50;
		test_plan(what, plan, 0, 0);
	}
}

int main(void)
{
	const int whole[] = { 4 }, half[] = { 2, 2 }, one[] = { 1, 1 }, two[] = { 2 };
	struct pd_plan *plan;
	struct virtual_run none;

	watched = pd_device_sim;
	watched.stream.submit = submit;
	watched.joins = true;
	test_plan("one stage", four_layers(1, whole, one), MICROBATCHES - 2, MICROBATCHES - 3);
	/* Without a load of its own the last stage issues its updates long before the forward. */
	test_plan("two stages", four_layers(2, half, one), MICROBATCHES - 3, 0);
	test_plan("two replicas", four_layers(1, whole, two), MICROBATCHES - 4, MICROBATCHES - 6);
	plan = four_layers(2, half, one);
	plan->weights = PD_WEIGHTS_FLUSH;
	plan->microbatches = 4;
	test_plan("flush, four microbatches", plan, MICROBATCHES / 2, 0);
	/* With GPipe the backward behind a forward is one of another microbatch. */
	plan = four_layers(1, whole, one);
	plan->weights = PD_WEIGHTS_FLUSH;
	plan->schedule = PD_SCHEDULE_GPIPE;
	plan->microbatches = 4;
	test_plan("gpipe", plan, 0, 0);
	/* With an agree the update computes the scale that is copied before the backward. */
	plan = four_layers(1, whole, one);
	plan->agree = true;
	plan->weights = PD_WEIGHTS_FLUSH;
	none = run_watched(plan);
	is_int(now.with_update, 0, "agreed on: no update with a forward");
	free(none.records);
	test_plan("agreed on", plan, MICROBATCHES - 2, 0);
	plan = four_layers(2, half, one);
	for (int s = 0; s < 2; s++)
		plan->stages[s].recompute = true;
	test_plan("recomputation", plan, 0, 0);
	test_late_inputs("late inputs", 3, PD_WEIGHTS_STASH, 1);
	test_late_inputs("late inputs, 2bw", 2, PD_WEIGHTS_2BW, 4);
	test_late_inputs("late inputs, flush", 3, PD_WEIGHTS_FLUSH, 4);
	return done_testing();
}
