/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/outline.h"

#include "base/mem.h"
#include "base/minmax.h"
#include "base/opt.h"
#include "base/sort.h"
#include "trace/steady.h"

#include <stdlib.h>

/* ---- time that is left out ---- */

int64_t pd_window_shown(const struct pd_window *window, int64_t ns)
{
	int64_t shown = pd_clamp(ns, window->begin_ns, window->end_ns) - window->begin_ns;

	for (int i = 0; i < window->cut_count; i++) {
		const struct pd_cut *cut = &window->cuts[i];

		shown -= pd_clamp(ns, cut->begin_ns, cut->end_ns) - cut->begin_ns;
	}
	return shown;
}

int64_t pd_window_moment(const struct pd_window *window, int64_t shown_ns)
{
	int64_t ns = window->begin_ns + shown_ns;

	for (int i = 0; i < window->cut_count && ns > window->cuts[i].begin_ns; i++)
		ns += window->cuts[i].end_ns - window->cuts[i].begin_ns;
	return ns;
}

static bool is_slow(const struct pd_outline *outline, int64_t from, int64_t to)
{
	for (size_t i = 0; i < outline->slow_count; i++)
		if (outline->slow[i].begin_ns <= from && outline->slow[i].end_ns >= to)
			return true;
	return false;
}

/*
 * Sets a window that begins with training and shows at most `length`, or all if that is 0.  Between two
 * moments time is left out if a slow operation runs, or none.
 */
static void set_start(const struct pd_outline *outline, int64_t length, struct pd_window *out)
{
	int64_t near = 2 * outline->usual_ns, running = 0;

	*out = (struct pd_window){ .begin_ns = outline->begin_ns, .end_ns = outline->end_ns };
	for (size_t i = 0; i + 1 < outline->count; i++) {
		int64_t from = outline->moments[i].ns, to = outline->moments[i + 1].ns;

		running += outline->moments[i].by;
		if (from < outline->begin_ns || from >= outline->end_ns)
			continue;
		if (length > 0 && pd_window_shown(out, from) >= length)
			break;
		if (to - from > PD_SLOW * outline->usual_ns && out->cut_count < PD_CUTS &&
		    (running == 0 || is_slow(outline, from, to)))
			out->cuts[out->cut_count++] = (struct pd_cut){ from + near, to - near };
	}
	if (length > 0 && pd_window_shown(out, out->end_ns) > length)
		out->end_ns = pd_window_moment(out, length);
}

/* ---- the steady state ---- */

/* Returns when the first stage begins the forward of microbatch first + i, of n; INT64_MAX: never. */
static int64_t *forwards_of(const struct pd_trace *trace, int64_t first, int64_t n)
{
	int64_t *starts = pd_calloc((size_t)n, sizeof(*starts));

	for (int64_t i = 0; i < n; i++)
		starts[i] = INT64_MAX;
	for (size_t i = 0; i < trace->count; i++) {
		const struct pd_op *op = &trace->records[i].op;

		if (op->stage == 0 && op->kind == PD_OP_forward && !op->evaluate &&
		    op->microbatch >= first && op->microbatch - first < n)
			starts[op->microbatch - first] = trace->records[i].start_ns;
	}
	return starts;
}

/* Returns the first of n forwards in the steady state, at the beginning of an update if it can, or n. */
static int64_t first_of(const struct pd_plan *plan, const struct pd_steady *steady,
			const int64_t *starts, int64_t n)
{
	int64_t any = n;

	for (int64_t i = n; i-- > 0;)
		if (starts[i] >= steady->begin_ns && starts[i] < steady->end_ns)
			any = i;
	for (int64_t i = any; i < n && starts[i] < steady->end_ns; i++)
		if ((steady->first + i) % plan->microbatches == 0)
			return i;
	return any;
}

/*
 * Sets a window of whole cycles, from one forward of the first stage to another, as many as `length`
 * shows; of one cycle if that is longer, but not than `most`.  Else it is a part of a cycle, and it returns
 * false.
 */
static bool set_cycles(const struct pd_outline *outline, const struct pd_steady *steady, int64_t length,
		       int64_t most, struct pd_window *out)
{
	const struct pd_plan *plan = outline->timeline->trace->plan;
	int64_t step = steady->cycle ? steady->cycle : pd_steady_turn(plan);
	int64_t n = steady->last - steady->first + pd_steady_in_flight(plan) + 1, first, begin, end = 0;
	int64_t *starts = forwards_of(outline->timeline->trace, steady->first, n);

	first = first_of(plan, steady, starts, n);
	begin = first < n ? starts[first] : steady->begin_ns;
	for (int64_t i = first + step; i < n; i += step) {
		int64_t next = steady->cycle
			? begin + (int64_t)((double)(i - first) * steady->period_ns + 0.5) : starts[i];

		if (next > steady->end_ns || next - begin > (end > 0 ? length : most))
			break;
		end = next;
	}
	free(starts);
	*out = (struct pd_window){ .begin_ns = begin, .end_ns = end > 0 ? end
				   : pd_clamp(begin + length, begin, steady->end_ns) };
	return end > 0;
}

static void set_steady(const struct pd_outline *outline, int64_t length, int64_t most,
		       struct pd_window *out)
{
	struct pd_steady steady;
	const char *part;
	char time[32];

	*out = (struct pd_window){ 0 };
	if (!pd_trace_steady(outline->timeline->trace, &steady))
		return;
	part = set_cycles(outline, &steady, length, most, out) ? "" : "a part of the ";
	if (steady.cycle)
		snprintf(out->what, sizeof(out->what), "%ssteady state, which repeats every %s", part,
			 pd_show_time((int64_t)((double)steady.cycle * steady.period_ns + 0.5), time));
	else
		snprintf(out->what, sizeof(out->what), "%ssteady state", part);
}

/* ---- all windows ---- */

static int64_t shown(const struct pd_window *window)
{
	return pd_window_shown(window, window->end_ns);
}

static void set_evaluation(const struct pd_outline *outline, int64_t length, struct pd_window *out)
{
	bool whole = outline->evaluated_ns - outline->evaluate_ns <= length;

	*out = (struct pd_window){ .evaluates = true, .begin_ns = outline->evaluate_ns,
				   .end_ns = whole ? outline->evaluated_ns : outline->evaluate_ns + length };
	snprintf(out->what, sizeof(out->what), "%sevaluation",
		 whole ? "" : "the beginning of an ");
}

/* Says what a start window shows, and what it leaves out. */
static void name_start(const struct pd_outline *outline, bool whole, struct pd_window *out)
{
	int64_t left_out = out->end_ns - out->begin_ns - shown(out);
	const char *what = !whole ? "start-up" : outline->goes_on ? "up to the first evaluation"
			 : outline->evaluated_ns > outline->evaluate_ns ? "training" : "";
	char time[32];

	if (left_out > 0)
		snprintf(out->what, sizeof(out->what), "%s; %s left out at //",
			 *what ? what : "all", pd_show_time(left_out, time));
	else
		snprintf(out->what, sizeof(out->what), "%s", what);
}

/* Returns when the last rank ends its first backward, from which on the pipeline is full. */
static int64_t filled_ns(const struct pd_timeline *timeline)
{
	int64_t last = timeline->begin_ns;

	for (int r = 0; r < timeline->rank_count; r++) {
		const struct pd_lane *lane = pd_timeline_lane(timeline, r, PD_LANE_COMPUTE);
		size_t i = 0;

		while (i < lane->count && (lane->bars[i].record->op.evaluate ||
					   (lane->bars[i].record->op.kind != PD_OP_backward &&
					    lane->bars[i].record->op.kind != PD_OP_backward_input)))
			i++;
		last = i < lane->count ? pd_max(last, lane->bars[i].record->end_ns) : last;
	}
	return last;
}

/* Shortens a start window: to `length`, or until the pipeline is full if that is not above `most`. */
static void shorten(const struct pd_outline *outline, int64_t length, int64_t most, struct pd_window *start)
{
	int64_t full = pd_window_shown(start, filled_ns(outline->timeline));

	set_start(outline, full > most ? length : pd_max(length, full), start);
}

void pd_windows_of(const struct pd_view *views, int count, double labels, double most_ops,
		      struct pd_window (*windows)[PD_WINDOWS], int64_t scales[PD_WINDOWS])
{
	struct pd_outline *outlines = pd_calloc((size_t)count, sizeof(*outlines));
	int64_t length = 1, most = 1;
	bool parts = true;

	for (int v = 0; v < count; v++) {
		pd_outline_init(&outlines[v], views[v].timeline);
		length = pd_max(length, (int64_t)(labels * (double)outlines[v].short_ns));
		set_start(&outlines[v], 0, &windows[v][PD_WINDOW_START]);
		if (outlines[v].operations > 0)
			most = pd_max(most, (int64_t)(most_ops * (double)shown(&windows[v][PD_WINDOW_START]) /
						      (double)outlines[v].operations));
	}
	for (int v = 0; v < count; v++) {
		windows[v][PD_WINDOW_STEADY] = (struct pd_window){ 0 };
		if (shown(&windows[v][PD_WINDOW_START]) > length || outlines[v].goes_on)
			set_steady(&outlines[v], length, most, &windows[v][PD_WINDOW_STEADY]);
		set_evaluation(&outlines[v], length, &windows[v][PD_WINDOW_EVALUATION]);
		parts &= shown(&windows[v][PD_WINDOW_STEADY]) > 0;
	}
	for (int k = 0; k < PD_WINDOWS; k++)
		scales[k] = length;
	for (int v = 0; v < count; v++) {
		struct pd_window *start = &windows[v][PD_WINDOW_START];
		int64_t whole = shown(start);

		if (parts)
			shorten(&outlines[v], length, most, start);
		else                    /* all are shown as a whole */
			windows[v][PD_WINDOW_STEADY] = (struct pd_window){ 0 };
		name_start(&outlines[v], shown(start) == whole, start);
		for (int k = 0; k < PD_WINDOWS; k++)
			scales[k] = pd_max(scales[k], shown(&windows[v][k]));
		pd_outline_release(&outlines[v]);
	}
	/* What is shown as a whole may be short. */
	for (int v = 0; v < count && !parts; v++)
		scales[PD_WINDOW_START] = v == 0 ? shown(&windows[v][PD_WINDOW_START])
			: pd_max(scales[PD_WINDOW_START], shown(&windows[v][PD_WINDOW_START]));
	free(outlines);
}
