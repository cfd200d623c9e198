/* SPDX-License-Identifier: Apache-2.0 */
/* Tests plans that the workers run in virtual time. */
#include "base/json.h"
#include "base/mem.h"
#include "predict/replay.h"
#include "replayed.h"
#include "schedule/cursor.h"
#include "tap.h"
#include "trace/report.h"

#include <inttypes.h>
#include <stdlib.h>

#define MOST 6

struct shape {                          /* a chain of one layer per stage */
	int stages;
	int replicas[MOST], warmup[MOST];       /* warmup[0] -1: the default ones */
	int64_t forward[MOST], backward[MOST];
	int64_t activation_bytes, parameter_bytes, latency_ns;
	const char *schedule;                   /* NULL: 1f1b with stash */
	int microbatches;                       /* with flush; 0: 1 */
	int64_t input[MOST], weight[MOST];      /* both 0: the profile does not split backward */
};

static json_t *layers_of(const struct shape *shape)
{
	json_t *layers = json_array();

	for (int s = 0; s < shape->stages; s++) {
		char name[16], before[16];
		json_t *layer;

		snprintf(name, sizeof(name), "l%d", s);
		snprintf(before, sizeof(before), "l%d", s - 1);
		layer = json_pack("{ss s[] sI sI sI sI}", "name", name, "inputs",
				  "forward_ns", shape->forward[s],
				  "backward_ns", shape->backward[s],
				  "activation_bytes", shape->activation_bytes,
				  "parameter_bytes", shape->parameter_bytes);
		if (shape->input[s] || shape->weight[s]) {
			json_object_set_new(layer, "backward_input_ns",
					    json_integer(shape->input[s]));
			json_object_set_new(layer, "backward_weight_ns",
					    json_integer(shape->weight[s]));
		}
		if (s > 0)
			json_array_append_new(json_object_get(layer, "inputs"),
					      json_string(before));
		json_array_append_new(layers, layer);
	}
	return layers;
}

static json_t *stages_of(const struct shape *shape)
{
	json_t *stages = json_array();
	int rank = 0;

	for (int s = 0; s < shape->stages; s++) {
		json_t *ranks = json_array();
		int left = 0, warmup = shape->warmup[s];
		char name[16];

		for (int t = s; t < shape->stages; t++)
			left += shape->replicas[t];
		if (shape->warmup[0] < 0)
			warmup = (left + shape->replicas[s] - 1) / shape->replicas[s] - 1;
		for (int i = 0; i < shape->replicas[s]; i++)
			json_array_append_new(ranks, json_integer(rank++));
		snprintf(name, sizeof(name), "l%d", s);
		json_array_append_new(stages, json_pack("{s[s] si so si sb}", "layers", name,
							"replicas", shape->replicas[s], "ranks",
							ranks, "warmup", warmup, "recompute", 0));
	}
	return stages;
}

static struct pd_plan *plan_of(const struct shape *shape)
{
	return plan_of_stages(layers_of(shape), stages_of(shape), shape->latency_ns,
			      shape->schedule ? shape->schedule : "1f1b",
			      shape->schedule ? "flush" : "stash", "frugal",
			      shape->microbatches ? shape->microbatches : 1);
}

static struct pd_trace *replayed(const struct shape *shape, int64_t microbatches)
{
	return replayed_plan(plan_of(shape), microbatches);
}

static uint32_t next_random(void)
{
	static uint32_t state = 7;

	state = state * 1664525 + 1013904223;
	return state >> 16;
}

static void make_random(struct shape *shape)
{
	*shape = (struct shape){ .stages = 2 + (int)(next_random() % (MOST - 1)) };
	for (int s = shape->stages - 1; s >= 0; s--) {
		shape->replicas[s] = 1;
		shape->forward[s] = 1 + next_random() % 50;
		shape->backward[s] = 1 + next_random() % 50;
		if (s < shape->stages - 1)
			shape->warmup[s] = shape->warmup[s + 1] + (int)(next_random() % 3);
	}
}

/*
 * Computes the steady period of a straight pipeline whose transfers take c and wait for nothing, as
 * a fraction: the largest of (sum t + 2 sum c) / (w_s - w_e + 1) over all windows of stages.
 * Each is a cycle of the graph of all dependencies: up from s to e, down again, and back to the
 * forward that waits for its turn w_s + 1 backwards later.
 */
static void closed_form(const struct shape *shape, int64_t c, int64_t *over_p, int64_t *under_p)
{
	*over_p = 0;
	*under_p = 1;
	for (int s = 0; s < shape->stages; s++) {
		int64_t sum = 0;

		for (int e = s; e < shape->stages; e++) {
			int64_t under = shape->warmup[s] - shape->warmup[e] + 1, over;

			sum += shape->forward[e] + shape->backward[e];
			over = sum + 2 * c * (e - s);
			if (over * *under_p > *over_p * under) {
				*over_p = over;
				*under_p = under;
			}
		}
	}
}

static void test_closed_form(void)
{
	const struct shape four = { .stages = 4, .replicas = { 1, 1, 1, 1 },
				    .warmup = { 3, 2, 1, 0 }, .forward = { 1, 1, 1, 1 },
				    .backward = { 2, 2, 2, 2 } };
	struct pd_trace *trace = replayed(&four, 0);
	int exact = 0, periodic = 0, above = 0;
	const int cases = 40;

	ok(pd_replay_period_ns(trace) == 3, "four equal stages: a minibatch every F + B");
	pd_trace_free(trace);
	for (int i = 0; i < cases; i++) {
		struct pd_steady steady = { 0 };
		struct shape shape;
		int64_t over, under;

		make_random(&shape);
		trace = replayed(&shape, 300);
		closed_form(&shape, 0, &over, &under);
		pd_trace_steady(trace, &steady);
		periodic += steady.cycle > 0;
		exact += (steady.end_ns - steady.begin_ns) * under
			 == over * (steady.last - steady.first);
		pd_trace_free(trace);

		shape.activation_bytes = next_random() % 20;
		shape.latency_ns = next_random() % 20;
		trace = replayed(&shape, 300);
		closed_form(&shape, shape.activation_bytes + shape.latency_ns, &over, &under);
		above += pd_replay_period_ns(trace) * (double)under >= (double)over - 1e-6;
		pd_trace_free(trace);
	}
	is_int(periodic, cases, "random pipelines become periodic");
	is_int(exact, cases, "with the period of the closed form, exactly");
	is_int(above, cases, "and with transfers that take time, not a shorter one");
}

static void test_replicas(void)
{
	static const struct {
		struct shape shape;
		double period;
		const char *what;
	} cases[] = {
		{ { .stages = 2, .replicas = { 2, 1 }, .warmup = { -1 }, .forward = { 4, 2 },
		    .backward = { 8, 4 } }, 6, "2-1, balanced" },
		{ { .stages = 2, .replicas = { 2, 1 }, .warmup = { -1 }, .forward = { 1, 2 },
		    .backward = { 1, 4 } }, 6, "2-1, the second stage is slower" },
		{ { .stages = 2, .replicas = { 1, 2 }, .warmup = { -1 }, .forward = { 2, 1 },
		    .backward = { 4, 1 } }, 6, "1-2, the first stage is slower" },
		{ { .stages = 2, .replicas = { 1, 2 }, .warmup = { 3, 0 }, .forward = { 2, 4 },
		    .backward = { 4, 8 } }, 6, "1-2, balanced, a deeper warm-up" },
		{ { .stages = 3, .replicas = { 3, 2, 1 }, .warmup = { -1 }, .forward = { 1, 1, 2 },
		    .backward = { 2, 2, 4 } }, 6, "3-2-1, the last stage is slower" },
		{ { .stages = 1, .replicas = { 4 }, .warmup = { -1 }, .forward = { 4 },
		    .backward = { 8 }, .parameter_bytes = 256 }, 3 + 96, "data parallelism" },
	};

	for (size_t i = 0; i < PD_COUNT(cases); i++) {
		struct pd_trace *trace = replayed(&cases[i].shape, 0);
		double period = pd_replay_period_ns(trace);

		ok(period == cases[i].period, "replicas: %s", cases[i].what);
		if (period != cases[i].period)
			diag("%.3f ns, expected %.3f", period, cases[i].period);
		pd_trace_free(trace);
	}
}

/* A comparison of each rank's records with its list, in order. */
struct check {
	struct pd_cursor *cursors;
	int64_t count, wrong;
};

static void compare(void *context, const struct pd_record *record)
{
	struct check *check = context;
	struct pd_op op = { .kind = PD_OP_KINDS };

	check->count++;
	if (!pd_cursor_next(&check->cursors[record->op.rank], &op)
	    || op.kind != record->op.kind || op.microbatch != record->op.microbatch
	    || op.version != record->op.version || op.seq != record->op.seq
	    || op.peer != record->op.peer || op.stage != record->op.stage)
		check->wrong++;
}

static void check_order(const struct shape *shape, int64_t microbatches)
{
	const struct pd_phase phase = { .first = 0, .last = microbatches };
	struct pd_plan *plan = plan_of(shape);
	struct pd_error err;
	struct pd_schedule *schedule = pd_schedule_new(plan, &err);
	struct check check = {
		.cursors = pd_calloc((size_t)plan->rank_count, sizeof(struct pd_cursor)) };
	struct pd_replay_options with = { .microbatches = microbatches, .retired = compare,
					  .context = &check };
	struct pd_op op;
	int64_t left = 0;

	for (int r = 0; r < plan->rank_count; r++)
		pd_cursor_init(&check.cursors[r], schedule, r, &phase, 0);
	is_int(pd_replay_run(plan, &with, &err), 0, "%" PRId64 " microbatches on %d ranks",
	       microbatches, plan->rank_count);
	is_int(check.wrong, 0, "every rank follows its list");
	for (int r = 0; r < plan->rank_count; r++) {
		while (pd_cursor_next(&check.cursors[r], &op))
			left++;
		pd_cursor_release(&check.cursors[r]);
	}
	is_int(left, 0, "to its end");
	ok(check.count > microbatches * shape->stages * 2, "%" PRId64 " operations", check.count);
	free(check.cursors);
	pd_schedule_free(schedule);
	pd_plan_free(plan);
}

/* Tests groups that do not fill up, and so many ranks that memory is allocated ahead. */
static void test_order(void)
{
	struct shape shape = { .stages = 3, .replicas = { 3, 2, 1 }, .warmup = { -1 },
			       .forward = { 5, 2, 1 }, .backward = { 9, 4, 3 },
			       .activation_bytes = 7, .parameter_bytes = 100, .latency_ns = 2 };

	check_order(&shape, 50);
	shape.replicas[0] = 700;
	shape.replicas[1] = 350;
	shape.parameter_bytes = 0;
	check_order(&shape, 2000);
}

/* Tests that dependencies hold, transfers take their time, and work and waits add up to the window. */
static void test_times(void)
{
	const struct shape shape = { .stages = 3, .replicas = { 2, 1, 1 }, .warmup = { -1 },
				     .forward = { 50, 20, 30 }, .backward = { 90, 40, 60 },
				     .activation_bytes = 15, .parameter_bytes = 64,
				     .latency_ns = 4 };
	struct pd_trace *trace = replayed(&shape, 40);
	struct pd_timeline *timeline = pd_timeline_new(trace);
	struct pd_report *report = pd_report_new(timeline);
	int64_t forward_end[3][40], backward_end[3][40], wrong = 0, uneven = 0, long_enough = 0;

	for (size_t i = 0; i < trace->count; i++) {
		const struct pd_record *r = &trace->records[i];

		if (r->op.kind == PD_OP_forward)
			forward_end[r->op.stage][r->op.microbatch] = r->end_ns;
		if (r->op.kind == PD_OP_backward)
			backward_end[r->op.stage][r->op.microbatch] = r->end_ns;
		if (r->op.kind == PD_OP_recv_activation || r->op.kind == PD_OP_recv_gradient)
			long_enough += r->end_ns - r->start_ns == 15 + 4;
	}
	for (size_t i = 0; i < trace->count; i++) {
		const struct pd_record *r = &trace->records[i];
		int s = r->op.stage;

		if (r->op.kind == PD_OP_forward && s > 0)
			wrong += r->start_ns < forward_end[s - 1][r->op.microbatch] + 19;
		if (r->op.kind == PD_OP_backward && s < 2)
			wrong += r->start_ns < backward_end[s + 1][r->op.microbatch] + 19;
		if (r->op.kind == PD_OP_backward)
			wrong += r->start_ns < forward_end[s][r->op.microbatch];
	}
	is_int(wrong, 0, "nothing begins before what it needs has arrived");
	is_int(long_enough, 40 * 2 * 2, "every transfer takes bytes / bandwidth + latency");
	ok(report->has_steady, "there is a steady state");
	for (int r = 0; r < timeline->rank_count; r++) {
		int64_t sum = report->ranks[r].busy_ns;

		for (int w = 0; w < PD_WAITS; w++)
			sum += report->ranks[r].wait_ns[w];
		uneven += sum != report->end_ns - report->begin_ns;
	}
	is_int(uneven, 0, "work and waits of each rank add up to the window");
	is_int(report->links[0].activation_bytes, 40 * 15, "bytes of activations");
	is_int(report->links[1].gradient_bytes, 40 * 15, "bytes of gradients");
	pd_report_free(report);
	pd_timeline_free(timeline);
	pd_trace_free(trace);
}

/* Returns a rank's time from the beginning of its first forward to the end of its last operation `last`. */
static int64_t span(const struct pd_trace *trace, int rank, enum pd_op_kind last)
{
	int64_t begin = INT64_MAX, end = 0;

	for (size_t i = 0; i < trace->count; i++) {
		const struct pd_record *r = &trace->records[i];

		if (r->op.rank == rank && r->op.kind == PD_OP_forward && r->start_ns < begin)
			begin = r->start_ns;
		if (r->op.rank == rank && r->op.kind == last && r->end_ns > end)
			end = r->end_ns;
	}
	return end - begin;
}

/*
 * Tests one flushed group of m microbatches on p equal stages whose transfers take no time: the first
 * stage idles for (p - 1)(F + B - min(F, W)) if backward is split, for (p - 1)(F + B + W) if it is not.
 */
static void test_bubbles(void)
{
	static const int64_t times[][3] = {             /* F, B, W */
		{ 10, 10, 10 }, { 10, 12, 8 }, { 10, 10, 5 }, { 10, 10, 20 }, { 10, 20, 15 },
		{ 20, 10, 10 },
	};

	for (size_t i = 0; i < PD_COUNT(times); i++)
		for (int p = 2; p <= MOST; p++) {
			int64_t f = times[i][0], b = times[i][1], w = times[i][2];
			struct shape shape = { .stages = p, .warmup = { -1 }, .schedule = "zb-h1",
					       .microbatches = 3 * p };
			struct pd_trace *trace;

			for (int s = 0; s < p; s++) {
				shape.replicas[s] = 1;
				shape.forward[s] = f;
				shape.backward[s] = b + w;
				shape.input[s] = b;
				shape.weight[s] = w;
			}
			trace = replayed(&shape, 3 * p);
			is_int(span(trace, 0, PD_OP_backward_weight) - 3 * p * (f + b + w),
			       (p - 1) * (f + b - (f < w ? f : w)),
			       "zb-h1, %d stages, F B W %d %d %d", p, (int)f, (int)b, (int)w);
			pd_trace_free(trace);
			shape.schedule = "1f1b";
			trace = replayed(&shape, 3 * p);
			is_int(span(trace, 0, PD_OP_backward) - 3 * p * (f + b + w),
			       (p - 1) * (f + b + w), "1f1b, %d stages, F B %d %d", p, (int)f,
			       (int)(b + w));
			pd_trace_free(trace);
		}
}

/* Tests that an arrival waits for the weight part of the microbatch that had the inbox before. */
static void test_inboxes(void)
{
	const struct shape shape = { .stages = 3, .replicas = { 1, 1, 1 }, .warmup = { -1 },
				     .forward = { 1, 1, 1 }, .backward = { 3, 52, 52 },
				     .input = { 2, 2, 2 }, .weight = { 1, 50, 50 },
				     .schedule = "zb-h1", .microbatches = 24,
				     .activation_bytes = 3 };
	struct pd_trace *trace = replayed(&shape, 24);
	struct pd_error err;
	struct pd_schedule *schedule = pd_schedule_new(trace->plan, &err);
	int64_t done[3][24] = { 0 }, wrong = 0, reused = 0;

	for (size_t i = 0; i < trace->count; i++)
		if (trace->records[i].op.kind == PD_OP_backward_weight)
			done[trace->records[i].op.stage][trace->records[i].op.microbatch] =
				trace->records[i].end_ns;
	for (size_t i = 0; i < trace->count; i++) {
		const struct pd_record *r = &trace->records[i];
		int64_t before = r->op.microbatch -
				 pd_schedule_inboxes(schedule, r->op.stage, false);

		if (r->op.kind != PD_OP_recv_activation || before < 0)
			continue;
		reused++;
		wrong += r->start_ns < done[r->op.stage][before];
	}
	ok(reused > 30, "%d times an inbox is used again", (int)reused);
	is_int(wrong, 0, "after the weight part");
	pd_schedule_free(schedule);
	pd_trace_free(trace);
}

/* Tests that a profile without parts halves backward, with the odd nanosecond in the first part. */
static void test_unsplit(void)
{
	const struct shape shape = { .stages = 2, .replicas = { 1, 1 }, .warmup = { -1 },
				     .forward = { 4, 4 }, .backward = { 7, 10 },
				     .schedule = "zb-h1", .microbatches = 4 };
	struct pd_trace *trace = replayed(&shape, 4);
	int64_t wrong = 0;

	for (size_t i = 0; i < trace->count; i++) {
		const struct pd_record *r = &trace->records[i];
		int64_t took = r->end_ns - r->start_ns;

		if (r->op.kind == PD_OP_backward_input)
			wrong += took != (r->op.stage ? 5 : 4);
		if (r->op.kind == PD_OP_backward_weight)
			wrong += took != (r->op.stage ? 5 : 3);
	}
	is_int(wrong, 0, "backward in halves");
	pd_trace_free(trace);
}

int main(void)
{
	test_bubbles();
	test_unsplit();
	test_inboxes();
	test_closed_form();
	test_replicas();
	test_order();
	test_times();
	return done_testing();
}
