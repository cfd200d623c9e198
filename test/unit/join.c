/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a worker gives to a device at once (lib/worker/join.c), in virtual time.  A device that
 * counts how it is asked, and then does what the one below it does, has the same operations at the
 * same times; and of a stage that sends nothing on every forward, and every update that can be,
 * comes with a backward.
 */
#include "small_profile.h"
#include "tap.h"

#include "base/mem.h"
#include "device/sim/sim.h"
#include "schedule/schedule.h"
#include "transport/sim/sim.h"
#include "worker/worker.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MICROBATCHES 40
#define MOST 4096
#define RANKS 4
#define LAYERS 4
#define BATCH 8                         /* of small_profile */

/* Of one run. */
struct run {
	struct pd_record records[MOST];
	int count;
	int updates, iterations, with_update;
	int forwards[MICROBATCHES][LAYERS];     /* by microbatch and first layer */
};

static struct run *now;
static struct pd_device_ops watched;

static int count_forward(struct pd_stream *stream, struct pd_net *net, const struct pd_pass *pass,
			 int from, int count, struct pd_event *ev)
{
	now->forwards[pass->first_sample / BATCH][from] += !pass->again;
	return pd_device_sim.net.forward(stream, net, pass, from, count, ev);
}

static int count_update(struct pd_stream *stream, struct pd_net *net,
			const struct pd_update *update, int from, int count, struct pd_event *ev)
{
	now->updates++;
	return pd_device_sim.net.update(stream, net, update, from, count, ev);
}

static int iterate(struct pd_stream *stream, struct pd_net *net, const struct pd_iteration *it,
		   int from, int count)
{
	now->iterations++;
	now->forwards[it->pass->first_sample / BATCH][from]++;
	now->with_update += it->update != NULL;
	if (it->update && pd_device_sim.net.update(stream, net, it->update, from, count,
						   it->updated) != 0)
		return -1;
	if (pd_device_sim.net.forward(stream, net, it->pass, from, count, it->forwarded) != 0)
		return -1;
	return pd_device_sim.net.backward(stream, net, it->pass, from, count, it->ended);
}

static void note(void *context, const struct pd_record *record)
{
	struct run *run = context;

	if (run->count < MOST)
		run->records[run->count++] = *record;
}

static void drive(struct pd_sim *sim, struct pd_worker **workers, int ranks)
{
	bool done[RANKS] = { false };
	struct pd_error err;
	int live = ranks;

	do {
		for (int r = 0; r < ranks; r++) {
			enum pd_worker_state state;

			do
				state = pd_worker_step(workers[r], &err);
			while (state == PD_WORKER_BUSY);
			if (state == PD_WORKER_FAILED)
				pd_bug("%s", err.text);
			live -= state == PD_WORKER_DONE && !done[r];
			done[r] = done[r] || state == PD_WORKER_DONE;
		}
	} while (live > 0 && pd_sim_advance(sim));
	if (live > 0)
		pd_bug("it stalls");
}

static struct run *run_plan(const struct pd_plan *plan, bool watch)
{
	const struct pd_phase phase = { .last = MICROBATCHES };
	struct pd_worker *workers[RANKS];
	struct pd_error err;
	struct pd_schedule *schedule = pd_schedule_new(plan, &err);
	struct pd_sim *sim = pd_sim_new(plan, schedule->wiring);
	struct pd_sim_fabric *fabric = pd_sim_fabric_new(sim, &plan->topology);
	struct run *run = pd_zalloc(sizeof(*run));

	now = run;
	for (int r = 0; r < plan->rank_count; r++) {
		int stages[schedule->chunks];
		struct pd_worker_stage nets[schedule->chunks];
		struct pd_worker_config config = {
			.schedule = schedule, .rank = r, .device = pd_sim_device(sim, r),
			.stages = nets, .transport = pd_sim_transport(fabric, r),
			.batch_size = plan->profile->batch_size, .optimizer = { .momentum = 1 },
			.retired = note, .context = run,
		};

		if (watch)
			config.device->ops = &watched;
		pd_schedule_stages(schedule, r, stages);
		for (int i = 0; i < schedule->chunks; i++)
			nets[i] = (struct pd_worker_stage){ .net = pd_sim_net(sim, stages[i]) };
		workers[r] = pd_worker_new(&config, &err);
		if (!workers[r])
			pd_bug("%s", err.text);
		pd_worker_begin(workers[r], &phase, 0);
	}
	drive(sim, workers, plan->rank_count);
	for (int r = 0; r < plan->rank_count; r++)
		pd_worker_free(workers[r]);
	pd_sim_fabric_free(fabric);
	pd_sim_free(sim);
	pd_schedule_free(schedule);
	return run;
}

static bool same(const struct run *a, const struct run *b)
{
	if (a->count != b->count || a->count == MOST)
		return false;
	for (int i = 0; i < a->count; i++) {
		const struct pd_record *x = &a->records[i], *y = &b->records[i];

		if (x->op.kind != y->op.kind || x->op.rank != y->op.rank ||
		    x->op.microbatch != y->op.microbatch || x->start_ns != y->start_ns ||
		    x->end_ns != y->end_ns)
			return false;
	}
	return true;
}

static bool each_once(const struct run *run, const struct pd_plan *plan)
{
	for (int m = 0; m < MICROBATCHES; m++)
		for (int s = 0; s < plan->stage_count; s++)
			if (run->forwards[m][plan->stages[s].first_layer] != 1)
				return false;
	return true;
}

/* iterations, with_update: of the last stage's, at least. */
static void test_plan(const char *what, struct pd_plan *plan, int iterations, int with_update)
{
	struct run *plain = run_plan(plan, false), *one = run_plan(plan, true);

	ok(same(plain, one), "%s: %d operations at the same times", what, plain->count);
	ok(each_once(one, plan), "%s: each forward once", what);
	ok(one->iterations >= iterations && one->with_update >= with_update,
	   "%s: %d iterations of %d, with an update %d", what, one->iterations, MICROBATCHES,
	   one->with_update);
	free(plain);
	free(one);
	pd_plan_free(plan);
}

static struct pd_plan *plan_of(int stages, const int *layers, const int *replicas)
{
	struct pd_topology topology = {
		.levels = 1, .devices = RANKS,
		.level[0] = { .count = RANKS, .bandwidth_bytes_per_s = INT64_C(10000000000),
			      .latency_ns = 5 },
	};
	struct pd_error err;
	struct pd_plan *plan = pd_plan_new(small_profile("a<x b<a c<b d<c"), &topology, stages,
					   layers, replicas, &err);

	if (!plan)
		pd_bug("%s", err.text);
	return plan;
}

int main(void)
{
	const int whole[] = { 4 }, half[] = { 2, 2 }, one[] = { 1, 1 }, two[] = { 2 };
	struct pd_plan *plan;
	struct run *none;

	watched = pd_device_sim;
	watched.net.forward = count_forward;
	watched.net.update = count_update;
	watched.net.iterate = iterate;
	test_plan("one stage", plan_of(1, whole, one), MICROBATCHES - 2, MICROBATCHES - 3);
	/* without a load of its own the last stage's updates are issued long before the forward */
	test_plan("two stages", plan_of(2, half, one), MICROBATCHES - 3, 0);
	test_plan("two replicas", plan_of(1, whole, two), MICROBATCHES - 4, MICROBATCHES - 6);
	plan = plan_of(2, half, one);
	plan->weights = PD_WEIGHTS_FLUSH;
	plan->microbatches = 4;
	test_plan("flush, four microbatches", plan, MICROBATCHES / 2, 0);
	/* a forward, and the backward of another microbatch behind it */
	plan = plan_of(1, whole, one);
	plan->weights = PD_WEIGHTS_FLUSH;
	plan->schedule = PD_SCHEDULE_GPIPE;
	plan->microbatches = 4;
	test_plan("gpipe", plan, 0, 0);
	/* its update makes what is copied before the backward */
	plan = plan_of(1, whole, one);
	plan->agree = true;
	plan->weights = PD_WEIGHTS_FLUSH;
	none = run_plan(plan, true);
	is_int(none->with_update, 0, "agreed on: no update with a forward");
	free(none);
	test_plan("agreed on", plan, MICROBATCHES - 2, 0);
	plan = plan_of(2, half, one);
	for (int s = 0; s < 2; s++)
		plan->stages[s].recompute = true;
	test_plan("recomputation", plan, 0, 0);
	return done_testing();
}
