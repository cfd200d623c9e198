/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests what an operation waits for (lib/engine/worker), in virtual time, on devices with memory of their own
 * where everything takes time: a copy, too, so that samples are late or arrive while their memory is
 * still in use.  An operation begins when those that it needs have ended, and those that used its memory.
 */
#include "engine/device/submit.h"
#include "small_model.h"
#include "table.h"
#include "tap.h"
#include "virtual_run.h"

#include "engine/device/sim/sim.h"
#include "schedule/buffer_counts.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#define MICROBATCHES 24

/* The distance, in its replica's microbatches, from an operation to the one that it waits for. */
enum distance { SAME, INBOXES, SLOTS, ARRIVING, LEAVING, GROUP, NEXT_GROUP };

/*
 * The rules, by which operations `then` wait for operations `first`.  With GROUP both belong to the same
 * group, with NEXT_GROUP to a group and the next one, in any stage of the rank if one is an agree.
 */
static const struct rule {
	enum pd_op_kind first, then;
	enum distance distance;
} rules[] = {
	{ PD_OP_load, PD_OP_forward, SAME },
	{ PD_OP_recv_activation, PD_OP_forward, SAME },
	{ PD_OP_forward, PD_OP_send_activation, SAME },
	{ PD_OP_forward, PD_OP_recompute, SAME },
	{ PD_OP_recompute, PD_OP_backward, SAME },
	{ PD_OP_recv_gradient, PD_OP_backward, SAME },
	{ PD_OP_recv_gradient, PD_OP_backward_input, SAME },
	{ PD_OP_backward_input, PD_OP_backward_weight, SAME },
	{ PD_OP_backward, PD_OP_send_gradient, SAME },
	{ PD_OP_backward_input, PD_OP_send_gradient, SAME },
	{ PD_OP_backward, PD_OP_allreduce, GROUP },
	{ PD_OP_backward_weight, PD_OP_allreduce, GROUP },
	{ PD_OP_backward, PD_OP_agree, GROUP },
	{ PD_OP_backward_weight, PD_OP_agree, GROUP },
	{ PD_OP_allreduce, PD_OP_agree, GROUP },
	{ PD_OP_allreduce, PD_OP_norms, GROUP },
	{ PD_OP_backward, PD_OP_step, GROUP },
	{ PD_OP_backward_weight, PD_OP_step, GROUP },
	{ PD_OP_allreduce, PD_OP_step, GROUP },
	{ PD_OP_norms, PD_OP_allreduce, NEXT_GROUP },
	{ PD_OP_agree, PD_OP_step, GROUP },
	{ PD_OP_backward, PD_OP_load, INBOXES },
	{ PD_OP_backward_weight, PD_OP_load, INBOXES },
	{ PD_OP_backward, PD_OP_recv_activation, INBOXES },
	{ PD_OP_backward_weight, PD_OP_recv_activation, INBOXES },
	{ PD_OP_forward, PD_OP_load, INBOXES },
	{ PD_OP_forward, PD_OP_recv_activation, INBOXES },
	{ PD_OP_send_activation, PD_OP_recv_activation, INBOXES },
	{ PD_OP_send_activation, PD_OP_forward, SLOTS },
	{ PD_OP_backward, PD_OP_recv_gradient, ARRIVING },
	{ PD_OP_backward_input, PD_OP_recv_gradient, ARRIVING },
	{ PD_OP_send_gradient, PD_OP_backward, LEAVING },
	{ PD_OP_send_gradient, PD_OP_backward_input, LEAVING },
};

#define RULES (sizeof(rules) / sizeof(*rules))

/* The numbers of pairs of operations to which each rule applied, in all plans. */
static int held[RULES];
static int64_t copy_ns;

/* The numbers for which a sum of two sources takes 1 ns. */
#define SUMMED_PER_NS 50

static int take(struct pd_stream *stream, int64_t ns, struct pd_event *ev)
{
	const struct pd_work sum = {
		.kind = PD_WORK_SUM, .ev = ev, .sum = { .n = 2, .count = (size_t)(ns * SUMMED_PER_NS) },
	};

	return pd_device_sim.stream.submit(stream, &sum, 1);
}

/* Takes a time for what takes none in a profile. */
static int submit(struct pd_stream *stream, const struct pd_work *works, int n)
{
	switch (works->kind) {
	case PD_WORK_COPY:
		return take(stream, copy_ns, works->ev);
	case PD_WORK_SQUARES:
		return take(stream, 50, works->ev);
	case PD_WORK_UNITE:
		return take(stream, 20, works->ev);
	default:
		return pd_device_sim.stream.submit(stream, works, n);
	}
}

static bool in_group(const struct pd_schedule *schedule, const struct pd_op *a,
		     const struct pd_op *b, int64_t later)
{
	int64_t group = schedule->group[b->stage];

	return (a->stage == b->stage || a->kind == PD_OP_agree || b->kind == PD_OP_agree) &&
	       a->microbatch / group + later == b->microbatch / group &&
	       (b->kind != PD_OP_allreduce || later > 0 || a->bucket <= b->bucket);
}

/* Tells whether the rule applies to these two operations of the kinds that it names. */
static bool about(const struct pd_schedule *schedule, const struct rule *rule, const struct pd_op *a,
		  const struct pd_op *b)
{
	struct pd_buffer_counts counts;
	int64_t far[GROUP] = { 0 };

	if (a->rank != b->rank)
		return false;
	if (rule->distance >= GROUP)
		return in_group(schedule, a, b, rule->distance - GROUP);
	if (a->stage != b->stage)
		return false;
	pd_buffer_counts_of_stage(schedule, a->stage, &counts);
	far[INBOXES] = pd_schedule_inboxes(schedule, a->stage, a->evaluate);
	far[SLOTS] = counts.outboxes > 0 ? counts.outboxes
					 : pd_schedule_slots(schedule, a->stage, a->evaluate);
	far[ARRIVING] = counts.arriving;
	far[LEAVING] = counts.leaving;
	return b->microbatch - a->microbatch ==
	       far[rule->distance] * schedule->plan->stages[a->stage].replicas;
}

/* Returns how often an operation began before one that it waits for by the rule had ended. */
static int early(const struct pd_schedule *schedule, const struct rule *rule,
		 const struct virtual_run *run)
{
	int wrong = 0;

	for (const struct pd_record *a = run->records; a < run->records + run->count; a++)
		for (const struct pd_record *b = run->records; b < run->records + run->count; b++) {
			if (a->op.kind != rule->first || b->op.kind != rule->then ||
			    !about(schedule, rule, &a->op, &b->op))
				continue;
			held[rule - rules]++;
			if (a->end_ns > b->start_ns && wrong++ == 0)
				diag("stage %d: %s of %d begins at %d, %s of %d ends at %d",
				     (int)b->op.stage, pd_op_kind_name[b->op.kind],
				     (int)b->op.microbatch, (int)b->start_ns,
				     pd_op_kind_name[a->op.kind], (int)a->op.microbatch,
				     (int)a->end_ns);
		}
	return wrong;
}

/* Returns how often an operation of several ranks ended at one of them before it had begun at another. */
static int ends_early(const struct pd_schedule *schedule, enum pd_op_kind kind,
		      const struct virtual_run *run)
{
	int wrong = 0;

	for (const struct pd_record *a = run->records; a < run->records + run->count; a++)
		for (const struct pd_record *b = run->records; b < run->records + run->count; b++)
			wrong += a->op.kind == kind && b->op.kind == kind &&
				 (kind == PD_OP_agree || a->op.stage == b->op.stage) &&
				 a->op.microbatch == b->op.microbatch && a->op.bucket == b->op.bucket &&
				 a->end_ns < b->start_ns;
	return wrong;
}

static void test_phase(const char *what, const struct pd_schedule *schedule,
		       const struct pd_device_ops *ops, bool evaluate)
{
	const struct pd_phase phase = { .last = MICROBATCHES, .evaluate = evaluate };
	const struct virtual_hooks hooks = { .device = ops };

	for (copy_ns = 1; copy_ns < 10000; copy_ns *= 20) {
		struct virtual_run run = virtual_run(schedule->plan, &hooks, NULL, &phase);
		int wrong = ends_early(schedule, PD_OP_allreduce, &run) +
			    ends_early(schedule, PD_OP_norms, &run) +
			    ends_early(schedule, PD_OP_agree, &run);

		for (const struct rule *rule = rules; rule < rules + RULES; rule++)
			wrong += early(schedule, rule, &run);
		is_int(wrong, 0, "%s, %s, copies of %d ns: none of %zu operations begins early", what,
		       evaluate ? "evaluation" : "training", (int)copy_ns, run.count);
		free(run.records);
	}
}

/* Tests a plan, and frees it. */
static void test_plan(const char *what, struct pd_plan *plan)
{
	struct pd_device_ops late = pd_device_sim;
	struct pd_schedule *schedule = pd_schedule_new(plan, NULL);

	late.separate_memory = true;
	late.stream.submit = submit;
	plan->profile->sum_bytes_per_s = INT64_C(4000000000) * SUMMED_PER_NS;
	test_phase(what, schedule, &late, false);
	test_phase(what, schedule, &late, true);
	pd_schedule_free(schedule);
	pd_plan_free(plan);
}

static struct pd_plan *with(struct pd_plan *plan, enum pd_schedule_kind schedule,
			    enum pd_weight_kind weights, int64_t microbatches, unsigned recompute)
{
	use(plan, schedule, weights, microbatches);
	recompute_in(plan, recompute);
	return plan;
}

static struct pd_plan *agreeing(struct pd_plan *plan)
{
	plan->agree = true;
	return plan;
}

static struct pd_plan *in_buckets(struct pd_plan *plan)
{
	plan->bucket_bytes = 3000;
	return plan;
}

static struct pd_plan *sparse(struct pd_plan *plan)
{
	plan->chunk = 100;
	plan->sparsity = 0.85;
	return plan;
}

/* Returns a plan of shorter links, so that computation and copies take about as long as transfers. */
static struct pd_plan *made(const char *graph, int number, int positions)
{
	struct pd_plan *plan = make_plan(graph, &plans[number], positions);

	plan->topology.level[0].latency_ns = 60;
	return plan;
}

/* ---- evaluation ---- */

/* Makes all layers take the same time in forward, and transfers no time. */
static void even(struct pd_plan *plan)
{
	for (int l = 0; l < plan->profile->layer_count; l++) {
		plan->profile->layers[l].forward_ns = 1000;
		plan->profile->layers[l].activation_bytes = 0;
	}
	plan->topology.level[0].latency_ns = 0;
}

/* Tests that all stages evaluate at once, with skips or several stages per rank, too. */
static void test_evaluation(const char *what, struct pd_plan *plan)
{
	const struct pd_phase phase = { .last = 100, .evaluate = true };
	struct virtual_run run;
	int64_t end_ns = 0, forward_ns = 0, pipeline_ns = 0;

	even(plan);
	run = virtual_run(plan, &(struct virtual_hooks){ 0 }, NULL, &phase);
	for (const struct pd_record *a = run.records; a < run.records + run.count; a++) {
		end_ns = a->end_ns > end_ns ? a->end_ns : end_ns;
		if (a->op.kind != PD_OP_forward)
			continue;
		forward_ns += a->op.rank == 0 ? a->end_ns - a->start_ns : 0;
		pipeline_ns += a->op.microbatch == 0 ? a->end_ns - a->start_ns : 0;
	}
	if (!ok(end_ns <= forward_ns + pipeline_ns, "%s: all stages evaluate at once", what))
		diag("it takes %d ns, and a rank computes for %d", (int)end_ns, (int)forward_ns);
	free(run.records);
	pd_plan_free(plan);
}

static void test_evaluations(void)
{
	static const char *const skip = "a<x b<a c<b d<c e<d f<e g<f h<ga";
	static const char *const nested = "a<x b<a c<b d<c e<d f<ec g<fb h<ga";
	static const char *const from_second = "a<x b<a c<b d<c e<d f<e g<f h<gb";
	static const struct table_plan pairs = { "pairs", 8, { 1, 1, 1, 1, 1, 1, 1, 1 },
						 { 2, 2, 2, 2, 2, 2, 2, 2 } };

	test_evaluation("a chain", make_plan(chain, &plans[4], 8));
	test_evaluation("a skip", make_plan(skip, &plans[4], 8));
	test_evaluation("nested skips", make_plan(nested, &plans[4], 8));
	test_evaluation("gpipe", with(make_plan(from_second, &plans[4], 8), PD_SCHEDULE_GPIPE,
				      PD_WEIGHTS_FLUSH, 16, 0));
	test_evaluation("replicas", make_plan(skip, &pairs, 8));
	test_evaluation("two stages on a rank", with(make_plan(chain, &plans[4], 4),
						     PD_SCHEDULE_INTERLEAVED, PD_WEIGHTS_FLUSH, 8, 0));
	test_evaluation("skips, two stages on a rank",
			with(make_plan(nested, &plans[4], 4), PD_SCHEDULE_INTERLEAVED,
			     PD_WEIGHTS_FLUSH, 8, 0));
}

/* ---- samples that are late ---- */

/* Returns the mean time between the updates of stage 0 in the middle half of a training. */
static int period_of(const struct pd_plan *plan, const struct pd_device_ops *ops, int microbatches)
{
	const struct pd_phase phase = { .last = microbatches };
	struct virtual_run run = virtual_run(plan, &(struct virtual_hooks){ .device = ops }, NULL, &phase);
	int64_t end_ns[2] = { 0 };

	for (const struct pd_record *a = run.records; a < run.records + run.count; a++)
		for (int half = 0; half < 2; half++)
			if (a->op.kind == PD_OP_step && a->op.stage == 0 &&
			    a->op.microbatch == (2 * half + 1) * microbatches / 4)
				end_ns[half] = a->end_ns;
	free(run.records);
	return (int)(end_ns[1] - end_ns[0]) / (microbatches / 2);
}

/* Tests that waiting until a load has retired costs no time: a pipeline is as fast as its samples come. */
static void test_late_samples(void)
{
	struct pd_device_ops late = pd_device_sim;
	struct pd_plan *plan = make_plan(chain, &plans[4], 8);

	even(plan);
	plan->profile->sum_bytes_per_s = INT64_C(4000000000) * SUMMED_PER_NS;
	late.separate_memory = true;
	late.stream.submit = submit;
	for (copy_ns = 2000; copy_ns <= 8000; copy_ns *= 2)
		is_int(period_of(plan, &late, 200), (int)copy_ns, "samples every %d ns, and nothing beside",
		       (int)copy_ns);
	pd_plan_free(plan);
}

/* ---- activations that are late ---- */

/* Returns how many updates of the last stage, of one rank, do not begin when their gradients are made. */
static int late_updates(const struct pd_plan *plan)
{
	const struct pd_phase phase = { .last = MICROBATCHES };
	struct virtual_run run = virtual_run(plan, &(struct virtual_hooks){ 0 }, NULL, &phase);
	int64_t made_ns = 0, updates = 0;
	int late = 0;

	for (const struct pd_record *a = run.records; a < run.records + run.count; a++) {
		if (a->op.stage != plan->stage_count - 1)
			continue;
		if (a->op.kind == PD_OP_backward)
			made_ns = a->end_ns;
		if (a->op.kind != PD_OP_step)
			continue;
		updates++;
		if (a->start_ns != made_ns && late++ == 0)
			diag("the update after %d begins at %d instead of %d", (int)a->op.microbatch,
			     (int)a->start_ns, (int)made_ns);
	}
	free(run.records);
	return updates == MICROBATCHES / plan->microbatches ? late : -1;
}

/*
 * Tests that an update does not wait for activations of later microbatches.  The replicas of the
 * first stage send theirs at once, and then compute for long.
 */
static void test_late_activations(void)
{
	const int layers[] = { 3, 1 };

	for (int replicas = 1; replicas <= 4; replicas++) {
		struct pd_plan *plan = plan_of("a<x b<a c<b d<c", 2, layers, (int[]){ replicas, 1 });

		even(plan);
		plan->topology.level[0].latency_ns = 60;
		for (int l = 0; l < 4; l++)
			plan->profile->layers[l].update_ns = 500;
		is_int(late_updates(plan), 0, "%d replicas before: no update is late", replicas);
		use(plan, PD_SCHEDULE_1F1B, PD_WEIGHTS_2BW, 12);
		is_int(late_updates(plan), 0, "%d replicas before, 2bw: no update is late", replicas);
		pd_plan_free(plan);
	}
}

/* ---- a loader, whose thread is real ---- */

static struct pd_gate gate;
static struct pd_stream *newest;        /* the stream of loads, which a worker opens last */
static atomic_int samples_read;
static int loads, hasty;

static void read_slowly(const struct pd_dataset *set, int input, int64_t sample, void *out)
{
	usleep(20000);
	samples_read++;
}

static struct pd_stream *open_stream(struct pd_device *device, struct pd_error *err)
{
	return newest = pd_device_sim.stream.open(device, err);
}

/* Loads wait for the loader alone as long as every microbatch has a new inbox. */
static int submit_load(struct pd_stream *stream, const struct pd_work *works, int n)
{
	if (works->kind == PD_WORK_WAIT && stream == newest) {
		pd_event_wait(works->awaited, &gate);
		return 0;
	}
	if (works->kind != PD_WORK_COPY)
		return pd_device_sim.stream.submit(stream, works, n);
	loads++;
	hasty += samples_read < loads;
	return take(stream, 1, works->ev);
}

static void test_loader(void)
{
	const struct pd_data_format format = { .read = read_slowly };
	const struct pd_dataset set = { .format = &format, .samples = 8 };
	const int image = 0;
	struct pd_device_ops ops = pd_device_sim;
	struct small_model store;
	struct pd_loader_config config = {
		.model = small_model(&store, 1, 2, 2, 2), .train = &set, .batch_size = 1,
		.input_count = 1, .inputs = &image, .ahead = 2, .gate = &gate,
	};
	struct pd_plan *plan = make_plan(chain, &plans[0], 1);
	struct pd_loader *loader;

	ops.separate_memory = true;
	ops.stream.open = open_stream;
	ops.stream.submit = submit_load;
	pd_gate_init(&gate, NULL);
	loader = pd_loader_open(&config, NULL);
	free(virtual_run(plan, &(struct virtual_hooks){ .device = &ops }, loader,
			 &(struct pd_phase){ .last = 2 }).records);
	is_int(loads, 2, "two microbatches are loaded");
	is_int(hasty, 0, "none before its samples are read");
	pd_loader_close(loader);
	pd_gate_release(&gate);
	pd_plan_free(plan);
}

int main(void)
{
	const enum pd_schedule_kind plain = PD_SCHEDULE_1F1B;

	test_plan("one stage", made(chain, 0, 1));
	test_plan("four replicas", made(chain, 1, 1));
	test_plan("four stages", made(chain, 3, 4));
	test_plan("skips", made(skips, 3, 4));
	test_plan("3-2-1", made(skips, 11, 3));
	test_plan("recomputes", with(made(skips, 3, 4), plain, PD_WEIGHTS_STASH, 1, 15));
	test_plan("2bw", with(made(chain, 7, 2), plain, PD_WEIGHTS_2BW, 4, 0));
	test_plan("2bw, agreed on", agreeing(with(made(chain, 7, 2), plain, PD_WEIGHTS_2BW, 4, 0)));
	test_plan("flush, agreed on", agreeing(with(made(skips, 11, 3), plain, PD_WEIGHTS_FLUSH, 6,
						    0)));
	test_plan("gpipe", with(made(chain, 3, 4), PD_SCHEDULE_GPIPE, PD_WEIGHTS_FLUSH, 4, 0));
	test_plan("zb-h1", with(made(skips, 3, 4), PD_SCHEDULE_ZB_H1, PD_WEIGHTS_FLUSH, 8, 0));
	test_plan("interleaved", with(made(skips, 3, 2), PD_SCHEDULE_INTERLEAVED, PD_WEIGHTS_FLUSH,
				      8, 0));
	test_plan("buckets", in_buckets(with(made(chain, 7, 2), plain, PD_WEIGHTS_FLUSH, 4, 0)));
	/* These are stages on the same ranks, with four buckets and with two. */
	test_plan("interleaved, buckets", in_buckets(with(made(chain, 17, 1), PD_SCHEDULE_INTERLEAVED,
							  PD_WEIGHTS_FLUSH, 2, 0)));
	test_plan("sparse sums", sparse(in_buckets(made(chain, 7, 2))));
	test_plan("zb-h1, agreed on", agreeing(with(made(chain, 7, 2), PD_SCHEDULE_ZB_H1,
						    PD_WEIGHTS_FLUSH, 4, 0)));
	test_evaluations();
	test_late_samples();
	test_late_activations();
	test_loader();
	for (size_t r = 0; r < RULES; r++)
		ok(held[r] > 0, "%s waits for %s %d times", pd_op_kind_name[rules[r].then],
		   pd_op_kind_name[rules[r].first], held[r]);
	return done_testing();
}
