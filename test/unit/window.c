/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which parts of a timeline are drawn. */
#include "replayed.h"
#include "tap.h"
#include "trace/window.h"

#include <stdlib.h>
#include <string.h>

#define LABELS 40
#define MOST 300

static const struct row {
	const char *what, *schedule, *weights;
	int stages, ranks, replicas, microbatches;      /* stages are dealt to ranks in turn */
} rows[] = {
	{ "1f1b", "1f1b", "stash", 4, 4, 1, 1 },
	{ "2bw", "1f1b", "2bw", 3, 3, 1, 4 },
	{ "gpipe", "gpipe", "flush", 3, 3, 1, 8 },
	{ "interleaved", "interleaved", "flush", 6, 3, 1, 6 },
	{ "zb-h1", "zb-h1", "flush", 4, 4, 1, 6 },
	{ "replicas", "1f1b", "stash", 2, 6, 3, 1 },
};

static struct pd_trace *trace_of(const struct row *row)
{
	json_t *layers = json_array(), *stages = json_array();
	int next = 0;

	for (int s = 0; s < row->stages; s++) {
		json_t *ranks = json_array();
		char name[16];

		snprintf(name, sizeof(name), "l%d", s);
		json_array_append_new(layers, json_pack("{ss s[] sI sI sI sI}", "name", name, "inputs",
			"forward_ns", INT64_C(1000) + s, "backward_ns", INT64_C(2000), "activation_bytes",
			INT64_C(100), "parameter_bytes", INT64_C(800)));
		if (s > 0) {
			snprintf(name, sizeof(name), "l%d", s - 1);
			json_array_append_new(json_object_get(json_array_get(layers, (size_t)s), "inputs"),
					      json_string(name));
			snprintf(name, sizeof(name), "l%d", s);
		}
		for (int i = 0; i < row->replicas; i++)
			json_array_append_new(ranks, json_integer(next++ % row->ranks));
		json_array_append_new(stages, json_pack("{s[s] si so si sb}", "layers", name, "replicas",
			row->replicas, "ranks", ranks, "warmup", strcmp(row->schedule, "1f1b") == 0
			? row->stages - 1 - s : 0, "recompute", 0));
	}
	return replayed_plan(plan_of_stages(layers, stages, 10, row->schedule, row->weights, "frugal",
					    row->microbatches), 0);
}

/* Returns the operation that a rank computes at a moment, or NULL. */
static const struct pd_record *at(const struct pd_timeline *timeline, int rank, int64_t ns)
{
	const struct pd_lane *lane = pd_timeline_lane(timeline, rank, PD_LANE_COMPUTE);

	for (size_t i = 0; i < lane->count; i++)
		if (lane->bars[i].record->start_ns <= ns && lane->bars[i].record->end_ns > ns)
			return lane->bars[i].record;
	return NULL;
}

/* Tells whether all ranks do at the end of a window what they do at its beginning, and are as far. */
static bool joins(const struct pd_timeline *timeline, const struct pd_window *window)
{
	bool same = true;

	for (int r = 0; r < timeline->rank_count; r++) {
		const struct pd_record *a = at(timeline, r, window->begin_ns);
		const struct pd_record *b = at(timeline, r, window->end_ns);

		if (!a || !b)
			same &= !a && !b;
		else
			same &= a->op.kind == b->op.kind && a->op.stage == b->op.stage &&
				window->begin_ns - a->start_ns == window->end_ns - b->start_ns;
	}
	return same;
}

static void test_steady(const struct row *row)
{
	struct pd_trace *trace = trace_of(row);
	struct pd_timeline *timeline = pd_timeline_new(trace);
	struct pd_view view = { timeline, NULL };
	struct pd_window windows[1][PD_WINDOWS];
	int64_t scales[PD_WINDOWS];
	const struct pd_window *start = &windows[0][PD_WINDOW_START];
	const struct pd_window *steady = &windows[0][PD_WINDOW_STEADY];

	pd_windows_of(&view, 1, LABELS, MOST, windows, scales);
	ok(steady->end_ns > steady->begin_ns && strncmp(steady->what, "steady state, which repeats", 27) == 0,
	   "%s: there is a steady state: %s", row->what, steady->what);
	ok(joins(timeline, steady), "%s: its end is like its beginning", row->what);
	is_int(start->begin_ns, timeline->begin_ns, "%s: the start-up begins with the trace", row->what);
	is_int(start->cut_count, 0, "%s: and lacks nothing", row->what);
	is_int(windows[0][PD_WINDOW_EVALUATION].end_ns, 0, "%s: nothing is evaluated", row->what);
	pd_timeline_free(timeline);
	pd_trace_free(trace);
}

/* ---- traces that are made by hand, of one rank ---- */

static struct pd_trace *by_hand(void)
{
	static const struct row one = { "", "1f1b", "stash", 1, 1, 1, 1 };
	struct pd_trace *trace = trace_of(&one);

	trace->count = 0;
	return trace;
}

static int64_t add(struct pd_trace *trace, enum pd_op_kind kind, int64_t microbatch, bool evaluate,
		   int64_t start_ns, int64_t length_ns)
{
	const struct pd_record record = {
		.op = { .kind = kind, .microbatch = microbatch, .evaluate = evaluate, .peer = -1,
			.link = -1, .version = -1, .seq = -1 },
		.start_ns = start_ns, .end_ns = start_ns + length_ns,
	};

	pd_trace_add(trace, &record);
	return record.end_ns;
}

/* Trains minibatches first to first + count - 1, from a moment on; returns when it ends. */
static int64_t train(struct pd_trace *trace, int64_t first, int count, int64_t ns)
{
	for (int i = 0; i < count; i++) {
		ns = add(trace, PD_OP_forward, first + i, false, ns, 100);
		ns = add(trace, PD_OP_backward, first + i, false, ns, 200);
	}
	return ns;
}

static void windows_of(const struct pd_trace *trace, struct pd_window windows[PD_WINDOWS])
{
	struct pd_timeline *timeline = pd_timeline_new(trace);
	struct pd_view view = { timeline, NULL };
	struct pd_window both[1][PD_WINDOWS];
	int64_t scales[PD_WINDOWS];

	pd_windows_of(&view, 1, LABELS, MOST, both, scales);
	memcpy(windows, both[0], sizeof(both[0]));
	pd_timeline_free(timeline);
}

static void test_evaluation(void)
{
	struct pd_trace *trace = by_hand();
	struct pd_window w[PD_WINDOWS];
	int64_t trained = train(trace, 0, 30, 0), evaluated = trained + 50;

	trace->epoch_minibatches = 30;
	for (int i = 0; i < 8; i++)
		evaluated = add(trace, PD_OP_forward, i, true, evaluated, 100);
	add(trace, PD_OP_load, 30, false, trained + 60, 10);     /* of the next epoch */
	train(trace, 30, 30, evaluated + 30);
	windows_of(trace, w);
	is_int(w[PD_WINDOW_START].begin_ns, 0, "it starts with training");
	ok(w[PD_WINDOW_START].end_ns <= trained, "and shows no evaluation there");
	ok(w[PD_WINDOW_STEADY].end_ns > w[PD_WINDOW_STEADY].begin_ns &&
	   (w[PD_WINDOW_STEADY].end_ns <= trained || w[PD_WINDOW_STEADY].begin_ns >= evaluated),
	   "nor in the steady state");
	ok(w[PD_WINDOW_EVALUATION].evaluates, "that is drawn apart");
	is_int(w[PD_WINDOW_EVALUATION].begin_ns, trained + 50, "from its beginning");
	is_int(w[PD_WINDOW_EVALUATION].end_ns, evaluated, "to its end");
	is_str(w[PD_WINDOW_EVALUATION].what, "evaluation", "and named");
	ok(!pd_window_has(&w[PD_WINDOW_START], &(struct pd_record){ .op.evaluate = true, .end_ns = 100 }),
	   "what is evaluated beside training is not drawn there");
	ok(pd_window_has(&w[PD_WINDOW_EVALUATION], &trace->records[60]), "but there");
	pd_trace_free(trace);
}

/* An evaluation alone, and training that is short. */
static void test_short(void)
{
	struct pd_trace *trace = by_hand();
	struct pd_window w[PD_WINDOWS];

	add(trace, PD_OP_forward, 0, true, 1000, 100);
	windows_of(trace, w);
	is_int(w[PD_WINDOW_START].end_ns, w[PD_WINDOW_START].begin_ns, "an evaluation alone: no start-up");
	is_int(w[PD_WINDOW_EVALUATION].end_ns, 1100, "but an evaluation");
	trace->count = 0;
	train(trace, 0, 6, 1000);
	windows_of(trace, w);
	is_str(w[PD_WINDOW_START].what, "", "what fits is shown as a whole");
	is_int(w[PD_WINDOW_START].end_ns, 1000 + 6 * 300, "to its end");
	is_int(w[PD_WINDOW_STEADY].end_ns, 0, "and no part of it again");
	trace->count = 0;
	windows_of(trace, w);
	is_int(w[PD_WINDOW_START].end_ns, 0, "nothing has no window");
	pd_trace_free(trace);
}

static void test_cut(void)
{
	struct pd_trace *trace = by_hand();
	struct pd_window w[PD_WINDOWS], *start = &w[PD_WINDOW_START];
	int64_t slow_ns = 1000000;

	add(trace, PD_OP_forward, 0, false, 0, slow_ns);
	add(trace, PD_OP_backward, 0, false, slow_ns, 200);
	train(trace, 1, 99, slow_ns + 200);
	windows_of(trace, w);
	is_int(start->cut_count, 1, "a slow first operation is cut");
	ok(start->cuts[0].begin_ns > 0 && start->cuts[0].begin_ns < 1000 &&
	   start->cuts[0].end_ns > slow_ns - 1000 && start->cuts[0].end_ns < slow_ns,
	   "in its middle, near to both ends");
	ok(strstr(start->what, "left out at //") != NULL, "and the window says so: %s", start->what);
	is_int(pd_window_shown(start, start->cuts[0].end_ns), pd_window_shown(start, start->cuts[0].begin_ns),
	       "what is cut takes no room");
	is_int(pd_window_moment(start, pd_window_shown(start, slow_ns + 300)), slow_ns + 300,
	       "behind it a place has its moment");
	is_int(pd_window_moment(start, 100), 100, "and before it");
	ok(start->end_ns > slow_ns + 2000, "operations behind it are shown");
	pd_trace_free(trace);
}

/* Many very short operations between long ones do not make windows short. */
static void test_short_operations(void)
{
	struct pd_trace *trace = by_hand();
	struct pd_window w[PD_WINDOWS];
	int64_t ns = 0;

	for (int i = 0; i < 200; i++) {
		ns = add(trace, PD_OP_forward, i, false, ns, 10000);
		ns = add(trace, PD_OP_backward, i, false, ns, 10000);
		for (int k = 0; k < 6; k++)
			ns = add(trace, PD_OP_recompute, i, false, ns, 10);
	}
	windows_of(trace, w);
	ok(w[PD_WINDOW_START].end_ns >= LABELS * 9000, "long operations have room for as many labels");
	pd_trace_free(trace);
}

int main(void)
{
	for (size_t i = 0; i < PD_COUNT(rows); i++)
		test_steady(&rows[i]);
	test_evaluation();
	test_short();
	test_cut();
	test_short_operations();
	return done_testing();
}
