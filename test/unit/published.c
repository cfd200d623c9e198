/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares the papers' figures of pipelines with the generator's schedules and the workers in
 * virtual time: figures as time lines, and for 2 to 16 equal stages whose transfers take no
 * time warm-ups, microbatches in flight, bubbles and periods.
 *
 *     GPipe        arXiv 1811.06965, section 2.3
 *     1F1B         SOSP 2019, section 3.2; with flush ICML 2021, section 3.2
 *     interleaved  SC 2021 (Megatron-LM), section 2.2
 *     ZB-H1        ICLR 2024 (zero bubble), section 2; the published bubble, (p - 1)(F + B - W),
 *                  applies if W is no longer than F; if it is, the bubble is (p - 1) B
 *
 * test/unit/trace-memory.c tests how many versions of the weights live.
 */
#include "replayed.h"
#include "tap.h"

#include "base/json.h"
#include "base/mem.h"
#include "predict/replay.h"
#include "schedule/list.h"

#include <stdlib.h>
#include <string.h>

#define MOST_STAGES 16

struct pipeline {
	const char *schedule, *weights, *startup;
	int ranks, chunks;                      /* chunks: stages of each rank */
	int microbatches;                       /* microbatches of an update */
	int64_t forward, input, weight;         /* times of one stage */
};

static json_t *layers_of(const struct pipeline *pipe)
{
	json_t *layers = json_array();

	for (int l = 0; l < pipe->ranks * pipe->chunks; l++) {
		json_t *inputs = json_array();
		char *name = pd_format("l%d", l), *before = pd_format("l%d", l - 1);

		if (l > 0)
			json_array_append_new(inputs, json_string(before));
		json_array_append_new(layers, json_pack(
			"{ss so sI sI sI sI si si}", "name", name, "inputs", inputs,
			"forward_ns", pipe->forward, "backward_ns", pipe->input + pipe->weight,
			"backward_input_ns", pipe->input, "backward_weight_ns", pipe->weight,
			"activation_bytes", 0, "parameter_bytes", 4));
		free(name);
		free(before);
	}
	return layers;
}

static json_t *stages_of(const struct pipeline *pipe)
{
	json_t *stages = json_array();

	for (int s = 0; s < pipe->ranks * pipe->chunks; s++) {
		char *name = pd_format("l%d", s);

		json_array_append_new(stages, json_pack("{s[s] si s[i]}", "layers", name,
							"replicas", 1, "ranks", s % pipe->ranks));
		free(name);
	}
	return stages;
}

static struct pd_plan *plan_of(const struct pipeline *pipe)
{
	return plan_of_stages(layers_of(pipe), stages_of(pipe), 0, pipe->schedule, pipe->weights,
			      pipe->startup ? pipe->startup : "frugal", pipe->microbatches);
}

static struct pd_trace *replayed(const struct pipeline *pipe, int64_t minibatches)
{
	return replayed_plan(plan_of(pipe), minibatches);
}

/* ---- figures ---- */

/* Returns what a rank does in each unit of time as "F1 . B1 B1", with microbatches counted from 1. */
static char *row_of(const struct pd_trace *trace, int rank, int units)
{
	char (*cells)[16] = pd_calloc((size_t)units, sizeof(*cells));
	char *text = pd_zalloc((size_t)units * 16 + 1);

	for (int u = 0; u < units; u++)
		strcpy(cells[u], ".");
	for (size_t i = 0; i < trace->count; i++) {
		const struct pd_record *r = &trace->records[i];

		if (r->op.rank != rank || (r->op.kind != PD_OP_forward &&
					   r->op.kind != PD_OP_backward))
			continue;
		for (int64_t u = r->start_ns; u < r->end_ns && u < units; u++)
			snprintf(cells[u], sizeof(cells[u]), "%c%d",
				 pd_op_kind_letter[r->op.kind], (int)r->op.microbatch + 1);
	}
	for (int u = 0; u < units; u++)
		sprintf(text + strlen(text), "%s%s", u ? " " : "", cells[u]);
	free(cells);
	return text;
}

static void check_figure(const char *what, const struct pipeline *pipe, int64_t minibatches,
			 int units, const char *const *rows)
{
	struct pd_trace *trace = replayed(pipe, minibatches);

	for (int rank = 0; rank < pipe->ranks; rank++) {
		char *got = row_of(trace, rank, units);

		is_str(got, rows[rank], "%s, worker %d", what, rank + 1);
		free(got);
	}
	pd_trace_free(trace);
}

static void check_figures(void)
{
	static const struct pipeline stash = {
		.schedule = "1f1b", .weights = "stash", .startup = "eager", .ranks = 4,
		.chunks = 1, .microbatches = 1, .forward = 1, .input = 1, .weight = 1,
	};
	static const char *const figure4[] = {
		"F1 F2 F3 F4 . . . . . . B1 B1 F5 B2 B2 F6 B3 B3 F7 B4",
		". F1 F2 F3 F4 . . . B1 B1 . B2 B2 F5 B3 B3 F6 B4 B4 F7",
		". . F1 F2 F3 F4 B1 B1 . B2 B2 . B3 B3 F5 B4 B4 F6 B5 B5",
		". . . F1 B1 B1 F2 B2 B2 F3 B3 B3 F4 B4 B4 F5 B5 B5 F6 B6",
	};
	/* Stages 2 and 3 have fewer warm-up forwards; later the time lines are the same. */
	static const char *const frugal[] = {
		"F1 F2 F3 F4 . . . . . . B1 B1 F5 B2 B2 F6 B3 B3 F7 B4",
		". F1 F2 F3 . . . . B1 B1 F4 B2 B2 F5 B3 B3 F6 B4 B4 F7",
		". . F1 F2 . . B1 B1 F3 B2 B2 F4 B3 B3 F5 B4 B4 F6 B5 B5",
		". . . F1 B1 B1 F2 B2 B2 F3 B3 B3 F4 B4 B4 F5 B5 B5 F6 B6",
	};
	struct pipeline other = stash;

	check_figure("PipeDream, figure 4", &stash, 12, 20, figure4);
	other.startup = "frugal";
	check_figure("the same, frugal", &other, 12, 20, frugal);
}

/* ---- the table ---- */

struct counted {
	int warmup;                             /* forwards before the first backward */
	int in_flight;				/* most between forward and last backward */
};

static struct counted count(const struct pd_schedule *schedule, int rank, int64_t microbatches)
{
	struct pd_phase phase = { .last = microbatches };
	struct counted counted = { .warmup = -1 };
	struct pd_cursor cursor;
	int forwards = 0, in_flight = 0;
	struct pd_op op;

	pd_cursor_init(&cursor, schedule, rank, &phase, 0);
	while (pd_cursor_next(&cursor, &op)) {
		if (op.kind == PD_OP_forward) {
			forwards++;
			in_flight++;
		}
		counted.in_flight = in_flight > counted.in_flight ? in_flight : counted.in_flight;
		if (counted.warmup < 0 &&
		    (op.kind == PD_OP_backward || op.kind == PD_OP_backward_input))
			counted.warmup = forwards;
		in_flight -= op.kind == PD_OP_backward_weight ||
			  (op.kind == PD_OP_backward && !schedule->splits);
	}
	pd_cursor_release(&cursor);
	return counted;
}

static int lower(int a, int b)
{
	return a < b ? a : b;
}

/*
 * Returns the forwards before the first backward: a warm-up and the first one of the steady phase, or
 * all of a group.
 */
static int published_warmup(const struct pipeline *pipe, int s)
{
	int p = pipe->ranks, v = pipe->chunks, m = pipe->microbatches;

	if (strcmp(pipe->schedule, "gpipe") == 0)
		return m;
	if (strcmp(pipe->schedule, "interleaved") == 0)
		return lower(m * v, 2 * (p - 1 - s) + (v - 1) * p + 1);
	return strcmp(pipe->weights, "flush") == 0 ? lower(p - s, m) : p - s;
}

static int published_in_flight(const struct pipeline *pipe, int s)
{
	if (strcmp(pipe->schedule, "zb-h1") == 0)
		return lower(pipe->ranks, pipe->microbatches);
	return published_warmup(pipe, s);
}

static bool counts_are_published(const struct pipeline *pipe)
{
	struct pd_plan *plan = plan_of(pipe);
	struct pd_error err;
	struct pd_schedule *schedule = pd_schedule_new(plan, &err);
	int64_t last = pipe->microbatches > 1 ? 2 * pipe->microbatches : 60;
	bool right = schedule != NULL;

	for (int s = 0; schedule && s < pipe->ranks; s++) {
		struct counted got = count(schedule, s, last);
		int warmup = published_warmup(pipe, s), in_flight = published_in_flight(pipe, s);

		if (got.warmup != warmup || got.in_flight != in_flight)
			diag("%d x %d stages, %d microbatches, rank %d: %d before the first "
			     "backward, expected %d; %d in flight, expected %d", pipe->ranks,
			     pipe->chunks, pipe->microbatches, s, got.warmup, warmup, got.in_flight,
			     in_flight);
		right = right && got.warmup == warmup && got.in_flight == in_flight;
	}
	pd_schedule_free(schedule);
	pd_plan_free(plan);
	return right;
}

/* Returns the time from the first forward to the end of a group during which the first rank idles. */
static int64_t bubble_of(const struct pipeline *pipe)
{
	struct pd_trace *trace = replayed(pipe, pipe->microbatches);
	int64_t busy = 0, end = 0;

	for (size_t i = 0; i < trace->count; i++) {
		const struct pd_record *r = &trace->records[i];

		if (r->op.rank != 0)
			continue;
		end = r->end_ns > end ? r->end_ns : end;
		if (r->op.kind == PD_OP_forward || r->op.kind == PD_OP_backward ||
		    r->op.kind == PD_OP_backward_input || r->op.kind == PD_OP_backward_weight)
			busy += r->end_ns - r->start_ns;
	}
	pd_trace_free(trace);
	return end - busy;
}

/* Returns the published bubble, with F, B and W the times of a whole device, all chunks together. */
static int64_t published_bubble(const struct pipeline *pipe)
{
	int64_t p = pipe->ranks, f = pipe->forward, b = pipe->input, w = pipe->weight;

	/* The times of a chunk are those of the device divided by v. */
	return strcmp(pipe->schedule, "zb-h1") == 0 ? (p - 1) * (f + b - (f < w ? f : w))
						    : (p - 1) * (f + b + w);
}

static bool bubble_is_published(const struct pipeline *pipe)
{
	int64_t got = bubble_of(pipe), expected = published_bubble(pipe);

	if (got != expected)
		diag("%d x %d stages, %d microbatches: a bubble of %d, expected %d", pipe->ranks,
		     pipe->chunks, pipe->microbatches, (int)got, (int)expected);
	return got == expected;
}

/* Tells whether a period is a forward and a backward: no rank waits in the steady state. */
static bool period_is_published(const struct pipeline *pipe)
{
	struct pd_trace *trace = replayed(pipe, 0);
	double got = pd_replay_period_ns(trace);
	int64_t expected = pipe->forward + pipe->input + pipe->weight;

	pd_trace_free(trace);
	if (got != (double)expected)
		diag("%d stages: a period of %g, expected %d", pipe->ranks, got, (int)expected);
	return got == (double)expected;
}

static void check_table(void)
{
	static const struct {
		const char *schedule, *weights;
		int chunks;
		int turns[3];                   /* microbatches divided by stages; 0: one per update */
	} rows[] = {
		{ "gpipe", "flush", 1, { 2, 1, 4 } }, { "1f1b", "flush", 1, { 1, 2, 4 } },
		{ "interleaved", "flush", 2, { 1, 2, 4 } },
		{ "interleaved", "flush", 3, { 1, 2, 3 } }, { "zb-h1", "flush", 1, { 1, 2, 4 } },
		{ "1f1b", "stash", 1, { 0 } }, { "1f1b", "vertical-sync", 1, { 0 } },
		{ "1f1b", "2bw", 1, { 1, 2, 3 } },
	};

	for (size_t i = 0; i < PD_COUNT(rows); i++) {
		bool counts = true, times = true, drains = strcmp(rows[i].weights, "flush") == 0;

		for (int p = 2; p <= MOST_STAGES; p++)
			for (int t = 0; t < 3 && (t == 0 || rows[i].turns[t]); t++) {
				struct pipeline pipe = {
					.schedule = rows[i].schedule, .weights = rows[i].weights,
					.ranks = p, .chunks = rows[i].chunks,
					.microbatches = rows[i].turns[t] ? rows[i].turns[t] * p : 1,
					.forward = 6, .input = 7, .weight = t % 2 ? 9 : 5,
				};

				counts &= counts_are_published(&pipe);
				times &= drains ? bubble_is_published(&pipe)
						: period_is_published(&pipe);
			}
		ok(counts, "%s with %s, %d chunks, 2 to 16 stages: warm-ups and what is in flight",
		   rows[i].schedule, rows[i].weights, rows[i].chunks);
		ok(times, "%s with %s, %d chunks, 2 to 16 stages: %s", rows[i].schedule,
		   rows[i].weights, rows[i].chunks, drains ? "the bubble" : "no bubble");
	}
}

int main(void)
{
	check_figures();
	check_table();
	return done_testing();
}
