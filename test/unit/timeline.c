/* SPDX-License-Identifier: Apache-2.0 */
/* Tests traces that are made by hand: their layout, drawings and reports. */
#include "base/mem.h"
#include "tap.h"
#include "trace/compare.h"
#include "trace/report.h"
#include "trace/timeline.h"

#include <stdlib.h>
#include <string.h>

static int ranks[3] = { 0, 1, 2 };
static struct pd_profile_layer layers[2] = { { .name = (char[]){ "a" } },
					     { .name = (char[]){ "b" } } };
static struct pd_profile profile = { .name = (char[]){ "one <two> & three" }, .batch_size = 8,
				     .layer_count = 2, .layers = layers };
static struct pd_stage stages[2] = {
	{ .first_layer = 0, .layer_count = 1, .replicas = 1, .ranks = ranks, .warmup = 1 },
	{ .first_layer = 1, .layer_count = 1, .replicas = 1, .ranks = ranks + 1 },
};
static struct pd_plan plan = { .profile = &profile, .stage_count = 2, .stages = stages,
			       .rank_count = 2, .microbatches = 1 };

/* The trace of all tests, which only borrows the plan. */
static struct pd_trace trace = { .plan = &plan, .device = (char[]){ "cpu" } };

static void begin_trace(void)
{
	trace.count = 0;
}

static void add(enum pd_op_kind kind, int rank, int64_t microbatch, int64_t start, int64_t end)
{
	bool transfer = pd_lane_of(kind) != PD_LANE_COMPUTE && kind != PD_OP_load
			&& kind != PD_OP_allreduce;
	struct pd_record record = {
		.op = { .kind = kind, .rank = rank, .stage = rank, .microbatch = microbatch,
			.peer = transfer ? 1 - rank : -1, .link = transfer ? 0 : -1,
			.version = -1, .seq = transfer ? microbatch : -1 },
		.start_ns = start, .end_ns = end, .bytes = transfer ? 100 : 0,
	};

	pd_trace_add(&trace, &record);
}

/* Adds one minibatch through two stages and back; its transfers take 5, or 10 for the gradient. */
static void add_round(void)
{
	begin_trace();
	add(PD_OP_forward, 0, 0, 100, 120);
	add(PD_OP_send_activation, 0, 0, 120, 125);
	add(PD_OP_recv_activation, 1, 0, 120, 125);
	add(PD_OP_forward, 1, 0, 130, 140);
	add(PD_OP_backward, 1, 0, 140, 160);
	add(PD_OP_send_gradient, 1, 0, 160, 170);
	add(PD_OP_recv_gradient, 0, 0, 160, 170);
	add(PD_OP_forward, 0, 1, 120, 140);
	add(PD_OP_backward, 0, 0, 170, 200);
}

static void test_lanes(void)
{
	struct pd_timeline *timeline;
	const struct pd_lane *lane;

	add_round();
	add(PD_OP_recv_gradient, 0, 1, 165, 180);
	add(PD_OP_recv_gradient, 0, 2, 170, 190);
	timeline = pd_timeline_new(&trace);
	is_int(timeline->begin_ns, 100, "begins with the first operation");
	is_int(timeline->end_ns, 200, "ends with the last");
	lane = pd_timeline_lane(timeline, 0, PD_LANE_COMPUTE);
	is_int(lane->count, 3, "rank 0 computes three times");
	is_int(lane->bars[1].record->op.microbatch, 1, "in order of time");
	is_int(lane->depth, 1, "one at a time");
	lane = pd_timeline_lane(timeline, 0, PD_LANE_GRADIENTS_IN);
	is_int(lane->depth, 2, "two transfers at a time");
	is_int(lane->bars[1].depth, 1, "the second lies below the first");
	is_int(lane->bars[2].depth, 0, "the third where the first has ended");
	is_int(pd_timeline_lane(timeline, 1, PD_LANE_LOAD)->depth, 0, "nothing was loaded");
	pd_timeline_free(timeline);
}

static void test_report(void)
{
	struct pd_timeline *timeline;
	struct pd_report *report;
	const struct pd_rank_report *one;

	add_round();
	timeline = pd_timeline_new(&trace);
	report = pd_report_new(timeline);
	ok(!report->has_steady, "one minibatch has no steady state");
	is_int(report->microbatches, 1, "it is counted");
	one = &report->ranks[0];
	is_int(one->busy_ns, 70, "rank 0: busy");
	is_int(one->wait_ns[PD_WAIT_GRADIENT], 30, "rank 0: waits for the gradient");
	is_int(one->transfer_ns, 15, "rank 0: its transfers");
	is_int(one->overlapped_ns, 5, "rank 0: computes during one of them");
	one = &report->ranks[1];
	is_int(one->busy_ns, 30, "rank 1: busy");
	is_int(one->wait_ns[PD_WAIT_ACTIVATION], 25, "rank 1: waits until the activation arrives");
	is_int(one->wait_ns[PD_WAIT_LAUNCH], 5, "rank 1: then begins late");
	is_int(one->wait_ns[PD_WAIT_OTHER], 40, "rank 1: and waits for the end");
	is_int(one->overlapped_ns, 0, "rank 1: computes during none");
	ok(report->stages[0].forward_ns == 20, "mean forward of stage 0");
	ok(report->stages[1].backward_ns == 20, "mean backward of stage 1");
	is_int(report->link_count, 1, "one link");
	is_int(report->links[0].activation_bytes, 100, "activations on it");
	is_int(report->links[0].gradients, 1, "gradients on it");
	ok(report->links[0].gradient_ns == 10, "and how long each took");
	pd_report_free(report);
	pd_timeline_free(timeline);
}

/* Tests the time spent in the round: rank 0 waits 20 until the gradient is made, and 10 on its way. */
static void test_where(void)
{
	struct pd_timeline *timeline;
	struct pd_time_spent *spent;

	add_round();
	trace.records[6].start_ns = 141;        /* posted long before the gradient is sent */
	timeline = pd_timeline_new(&trace);
	spent = pd_time_spent_new(timeline);
	is_int(spent->ns[0][PD_SPENT_COMPUTE], 70, "rank 0 computes");
	is_int(spent->ns[0][PD_SPENT_GRADIENT], 20, "waits while another computes");
	is_int(spent->ns[0][PD_SPENT_TRANSFER], 10, "and while the gradient is on its way");
	is_int(spent->ns[0][PD_SPENT_OTHER], 0, "and no longer");
	is_int(spent->ns[1][PD_SPENT_ACTIVATION], 20, "rank 1 waits for rank 0");
	is_int(spent->ns[1][PD_SPENT_TRANSFER], 5, "for the activation on its way");
	is_int(spent->ns[1][PD_SPENT_LAUNCH], 5, "begins late");
	is_int(spent->ns[1][PD_SPENT_OTHER], 40, "and waits for the end");
	is_int(spent->awaited_count, 2, "two wait for another");
	ok(spent->awaited[0].rank == 0 && spent->awaited[0].peer == 1
	   && spent->awaited[0].gradient && spent->awaited[0].ns == 20, "rank 0 for rank 1");
	ok(spent->awaited[1].rank == 1 && spent->awaited[1].peer == 0
	   && !spent->awaited[1].gradient && spent->awaited[1].ns == 20, "and rank 1 for rank 0");
	pd_time_spent_free(spent);
	pd_timeline_free(timeline);
}

static void test_phases(void)
{
	int64_t *bounds;

	begin_trace();
	for (int b = 3; b < 10; b++)
		add(PD_OP_forward, 0, b, 100 * b, 100 * b + 10);
	is_int(pd_trace_phases(&trace, &bounds), 1, "no epochs: one phase");
	ok(bounds[0] == 3 && bounds[1] == 10, "of all that was trained");
	free(bounds);
	trace.epoch_minibatches = 4;
	is_int(pd_trace_phases(&trace, &bounds), 3, "three phases");
	ok(bounds[0] == 3 && bounds[1] == 4 && bounds[2] == 8 && bounds[3] == 10, "and where");
	free(bounds);
	trace.epoch_minibatches = 0;
	trace.records[0].op.microbatch = INT64_MAX;
	is_int(pd_trace_phases(&trace, &bounds), 0, "minibatches far apart make none");
	begin_trace();
	is_int(pd_trace_phases(&trace, &bounds), 0, "nothing trained makes none");
}

static char *drawn(void (*draw)(const struct pd_view *, int, FILE *))
{
	struct pd_timeline *timeline = pd_timeline_new(&trace);
	struct pd_view view = { timeline, NULL };
	char *text;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	draw(&view, 1, out);
	fclose(out);
	pd_timeline_free(timeline);
	return text;
}

static void plain(const struct pd_view *views, int count, FILE *out)
{
	pd_timeline_text(views, count, 54, false, out);
}

static void coloured(const struct pd_view *views, int count, FILE *out)
{
	pd_timeline_text(views, count, 54, true, out);
}

static void test_text(void)
{
	char *text;

	add_round();
	text = drawn(plain);
	is_str(text,
	       "one <two> & three: 1f1b, stash, 2 ranks, measured\n"
	       "100 ns in all, no steady state\n"
	       "stage:rank; F- forward, B= backward, . idle\n"
	       "\n"
	       "100 ns from 0 ns on, one column is 2 ns\n"
	       "0:0 F0--------F1--------...............B0=============\n"
	       "1:1 ...............F0---B0========....................\n",
	       "a timeline of two ranks in 54 columns");
	free(text);
	text = drawn(coloured);
	ok(strstr(text, "\033[44;97mF0--------\033[0m") != NULL, "the same with colours");
	free(text);
	begin_trace();
	text = drawn(plain);
	ok(strstr(text, "\nstage:rank; . idle\n") != NULL, "a trace without operations");
	free(text);
}

static void test_svg(void)
{
	char *text;

	add_round();
	text = drawn(pd_timeline_svg);
	ok(strstr(text, "one &lt;two> &amp; three") != NULL, "names are escaped");
	ok(strstr(text, "<title>0B0 backward: from 70 ns for 30 ns</title>") != NULL,
	   "a bar says what it is");
	free(text);
}

/* Adds backwards of stage 0 that end at these times. */
static void add_ends(const int64_t *ends, int count)
{
	begin_trace();
	for (int b = 0; b < count; b++)
		add(PD_OP_backward, 0, b, ends[b] - 1, ends[b]);
}

static void test_steady(void)
{
	struct pd_steady steady;
	int64_t ends[40], at = 1000;

	/* The times settle during 8, are 3 and 5 in turns, and shorter while it drains (2 in flight). */
	for (int b = 0; b < 40; b++) {
		at += b < 8 ? 17 + b : b >= 38 ? 1 : b % 2 ? 3 : 5;
		ends[b] = at;
	}
	add_ends(ends, 40);
	ok(pd_trace_steady(&trace, &steady), "there is a steady state");
	is_int(steady.cycle, 2, "its cycle is two minibatches");
	ok(steady.period_ns == 4, "its period is exact");
	is_int(steady.end_ns - steady.begin_ns, 4 * (steady.last - steady.first),
	       "the window is whole cycles");
	ok(steady.first >= 19 && steady.last < 38, "and leaves out the start and the end");

	ends[30] += 1;
	add_ends(ends, 40);
	ok(pd_trace_steady(&trace, &steady) && steady.cycle == 0, "disturbed, it has no cycle");
	ok(steady.period_ns > 3.5 && steady.period_ns < 4.5, "but a mean");

	/* Minibatch 25 ends an epoch, and the longer stretch counts. */
	add_ends(ends, 40);
	trace.epoch_minibatches = 25;
	ok(pd_trace_steady(&trace, &steady) && steady.first >= 11 && steady.last < 25,
	   "epochs divide it");
	trace.epoch_minibatches = 0;

	for (int b = 0; b < 30; b++)
		ends[b] = at += b < 10 ? 5 : b < 20 ? 9 : 6;
	add_ends(ends, 30);
	trace.epoch_minibatches = 10;
	ok(pd_trace_steady(&trace, &steady) && steady.period_ns == 6 && steady.first > 20,
	   "of epochs as long that of the median period counts");
	trace.epoch_minibatches = 0;

	/* The minibatches of four replicas that sum end nearly together. */
	for (int b = 0; b < 32; b++)
		ends[b] = 1000 * (b / 4 + 1) + b % 4;
	trace.plan->stages[0].replicas = 4;
	ok(!pd_steady_of(trace.plan, ends, 8, true, &steady), "two rounds of replicas have none");
	ok(pd_steady_of(trace.plan, ends, 32, true, &steady) && steady.period_ns == 250,
	   "more have one, of whole rounds");
	trace.plan->stages[0].replicas = 1;

	add_ends(ends, 1);
	ok(!pd_trace_steady(&trace, &steady), "one minibatch has none");
	ok(pd_trace_period_ns(&trace) == 0, "and no period");
	add_ends(ends, 2);
	ok(pd_trace_period_ns(&trace) == (double)(ends[1] - ends[0]), "two have one");
}

static void test_limit(void)
{
	add_round();
	add(PD_OP_forward, 0, 5, 210, 220);
	trace.records[trace.count - 1].op.evaluate = true;
	pd_trace_limit(&trace, 1);
	is_int(trace.count, 8, "the first minibatch alone, without evaluations");
}

int main(void)
{
	test_lanes();
	test_report();
	test_where();
	test_phases();
	test_text();
	test_svg();
	test_steady();
	test_limit();
	free(trace.records);
	return done_testing();
}
