/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/window.h"

#include "base/mem.h"
#include "base/opt.h"
#include "base/sort.h"
#include "trace/steady.h"

#include <stdlib.h>

#define SLOW 8                  /* times what is usual */
#define MOST_UNEVEN 2.5         /* usual operations are so many times as long as short ones, at most */

/* A moment at which an operation begins or ends. */
struct moment {
	int64_t ns;
	int by;                         /* 1 or -1: the operations that run */
};

/* What is known of a timeline while its windows are chosen. */
struct looked {
	const struct pd_timeline *timeline;
	struct moment *moments;
	size_t count;
	struct pd_cut *slow;            /* when operations run that take much longer than others */
	size_t slow_count;
	int64_t usual_ns;               /* mean of computing operations, without the slow ones */
	int64_t short_ns;               /* what nearly all of them take */
	int64_t begin_ns, end_ns;       /* of training before the first evaluation */
	int64_t evaluate_ns, evaluated_ns;      /* of the evaluation; equal: there is none */
	bool goes_on;                   /* training, after the first evaluation */
};

static int64_t larger(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static int64_t smaller(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

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

static bool is_slow(const struct looked *l, int64_t from, int64_t to)
{
	for (size_t i = 0; i < l->slow_count; i++)
		if (l->slow[i].begin_ns <= from && l->slow[i].end_ns >= to)
			return true;
	return false;
}

/*
 * Sets a window that begins with training and shows at most `length`, or all if that is 0.  Between two
 * moments time is left out if a slow operation runs, or none.
 */
static void set_start(const struct looked *l, int64_t length, struct pd_window *out)
{
	int64_t near = 2 * l->usual_ns, running = 0;

	*out = (struct pd_window){ .begin_ns = l->begin_ns, .end_ns = l->end_ns };
	for (size_t i = 0; i + 1 < l->count; i++) {
		int64_t from = l->moments[i].ns, to = l->moments[i + 1].ns;

		running += l->moments[i].by;
		if (from < l->begin_ns || from >= l->end_ns)
			continue;
		if (length > 0 && pd_window_shown(out, from) >= length)
			break;
		if (to - from > SLOW * l->usual_ns && out->cut_count < PD_CUTS &&
		    (running == 0 || is_slow(l, from, to)))
			out->cuts[out->cut_count++] = (struct pd_cut){ from + near, to - near };
	}
	if (length > 0 && pd_window_shown(out, out->end_ns) > length)
		out->end_ns = pd_window_moment(out, length);
}

/* ---- looking at a timeline ---- */

static int by_ns(const void *a, const void *b)
{
	const struct moment *x = a, *y = b;

	PD_ORDER(x->ns, y->ns);
	return y->by - x->by;           /* what begins comes first, so that something runs */
}

/* Returns the start of the first forward of training or evaluation at or after a moment. */
static int64_t first_forward(const struct pd_trace *trace, bool evaluate, int64_t from_ns)
{
	int64_t first = INT64_MAX;

	for (size_t i = 0; i < trace->count; i++) {
		const struct pd_record *record = &trace->records[i];

		if (record->op.kind == PD_OP_forward && record->op.evaluate == evaluate &&
		    record->start_ns >= from_ns && record->start_ns < first)
			first = record->start_ns;
	}
	return first;
}

/* A duration of an operation of one kind and stage. */
struct duration {
	int64_t key, ns;
	const struct pd_record *record;
};

static int by_key(const void *a, const void *b)
{
	const struct duration *x = a, *y = b;

	PD_ORDER(x->key, y->key);
	return (x->ns > y->ns) - (x->ns < y->ns);
}

/* Finds slow operations among n of one kind and stage, sorted; returns the median. */
static int64_t look_at_kind(struct looked *l, const struct duration *list, size_t n)
{
	int64_t median = list[(n - 1) / 2].ns;

	for (size_t i = n; i-- > 0 && list[i].ns > SLOW * median;)
		l->slow[l->slow_count++] = (struct pd_cut){ list[i].record->start_ns,
							    list[i].record->end_ns };
	return median;
}

/* Sets what is slow, and what computing operations usually take: those of training, if there are any. */
static void look_at_durations(struct looked *l)
{
	const struct pd_trace *trace = l->timeline->trace;
	struct duration *list = pd_calloc(trace->count, sizeof(*list));
	bool evaluates = first_forward(trace, false, INT64_MIN) == INT64_MAX;
	double sum = 0, counted = 0;
	size_t n = 0;

	l->short_ns = INT64_MAX;
	for (size_t i = 0; i < trace->count; i++) {
		const struct pd_record *record = &trace->records[i];

		if (record->end_ns > record->start_ns && record->op.evaluate == evaluates)
			list[n++] = (struct duration){
				(int64_t)record->op.stage * PD_OP_KINDS + record->op.kind,
				record->end_ns - record->start_ns, record };
	}
	qsort(list, n, sizeof(*list), by_key);
	for (size_t i = 0, j; i < n; i = j) {
		enum pd_op_kind kind = list[i].record->op.kind;
		int64_t median;

		for (j = i; j < n && list[j].key == list[i].key;)
			j++;
		median = look_at_kind(l, list + i, j - i);
		if (kind == PD_OP_step || pd_lane_of(kind) != PD_LANE_COMPUTE)
			continue;
		sum += (double)median * (double)(j - i);
		counted += (double)(j - i);
		l->short_ns = smaller(l->short_ns, list[i + (j - i - 1) / 10].ns);
	}
	l->usual_ns = counted > 0 ? (int64_t)(sum / counted) : 0;
	l->short_ns = pd_clamp(l->short_ns, (int64_t)((double)l->usual_ns / MOST_UNEVEN), l->usual_ns);
	free(list);
}

static void look_at_moments(struct looked *l)
{
	const struct pd_trace *trace = l->timeline->trace;

	for (size_t i = 0; i < trace->count; i++) {
		const struct pd_record *record = &trace->records[i];

		if (record->end_ns == record->start_ns)
			continue;
		l->moments[l->count++] = (struct moment){ record->start_ns, 1 };
		l->moments[l->count++] = (struct moment){ record->end_ns, -1 };
	}
	qsort(l->moments, l->count, sizeof(*l->moments), by_ns);
}

/* Sets when the operations of training or evaluation that begin before a moment begin and end. */
static void span(const struct pd_trace *trace, bool evaluate, int64_t before_ns, int64_t *begin_p,
		 int64_t *end_p)
{
	*begin_p = *end_p = 0;
	for (size_t i = 0, n = 0; i < trace->count; i++) {
		const struct pd_record *record = &trace->records[i];

		if (record->op.evaluate != evaluate || record->start_ns >= before_ns)
			continue;
		*begin_p = n == 0 || record->start_ns < *begin_p ? record->start_ns : *begin_p;
		*end_p = n == 0 || record->end_ns > *end_p ? record->end_ns : *end_p;
		n++;
	}
}

/*
 * Finds training up to the first evaluation behind it, and this evaluation.  What is loaded ahead belongs
 * to neither.
 */
static void look_at_phases(struct looked *l)
{
	const struct pd_trace *trace = l->timeline->trace;
	int64_t trained = first_forward(trace, false, INT64_MIN), loaded, again;
	int64_t evaluated = first_forward(trace, true, trained == INT64_MAX ? INT64_MIN : trained);

	again = evaluated == INT64_MAX ? INT64_MAX : first_forward(trace, false, evaluated);
	span(trace, false, evaluated, &l->begin_ns, &l->end_ns);
	l->goes_on = again < INT64_MAX;
	if (evaluated == INT64_MAX)
		return;
	span(trace, true, again, &loaded, &l->evaluated_ns);
	l->evaluate_ns = evaluated;
}

static void look(const struct pd_timeline *timeline, struct looked *l)
{
	*l = (struct looked){ .timeline = timeline };
	l->moments = pd_calloc(2 * timeline->trace->count, sizeof(*l->moments));
	l->slow = pd_calloc(timeline->trace->count, sizeof(*l->slow));
	look_at_durations(l);
	look_at_moments(l);
	look_at_phases(l);
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
static bool set_cycles(const struct looked *l, const struct pd_steady *steady, int64_t length,
		       int64_t most, struct pd_window *out)
{
	const struct pd_plan *plan = l->timeline->trace->plan;
	int64_t step = steady->cycle ? steady->cycle : pd_steady_turn(plan);
	int64_t n = steady->last - steady->first + pd_steady_in_flight(plan) + 1, first, begin, end = 0;
	int64_t *starts = forwards_of(l->timeline->trace, steady->first, n);

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

static void set_steady(const struct looked *l, int64_t length, int64_t most, struct pd_window *out)
{
	struct pd_steady steady;
	const char *part;
	char time[32];

	*out = (struct pd_window){ 0 };
	if (!pd_trace_steady(l->timeline->trace, &steady) || steady.end_ns <= steady.begin_ns)
		return;
	part = set_cycles(l, &steady, length, most, out) ? "" : "a part of the ";
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

static void set_evaluation(const struct looked *l, int64_t length, struct pd_window *out)
{
	bool whole = l->evaluated_ns - l->evaluate_ns <= length;

	*out = (struct pd_window){ .evaluates = true, .begin_ns = l->evaluate_ns,
				   .end_ns = whole ? l->evaluated_ns : l->evaluate_ns + length };
	snprintf(out->what, sizeof(out->what), "%sevaluation",
		 whole ? "" : "the beginning of an ");
}

/* Says what a start window shows, and what it leaves out. */
static void name_start(const struct looked *l, bool whole, struct pd_window *out)
{
	int64_t left_out = out->end_ns - out->begin_ns - shown(out);
	const char *what = !whole ? "start-up" : l->goes_on ? "up to the first evaluation"
			 : l->evaluated_ns > l->evaluate_ns ? "training" : "";
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
		last = i < lane->count ? larger(last, lane->bars[i].record->end_ns) : last;
	}
	return last;
}

/* Shortens a start window: to `length`, or until the pipeline is full if that is not above `most`. */
static void shorten(const struct looked *l, int64_t length, int64_t most, struct pd_window *start)
{
	int64_t full = pd_window_shown(start, filled_ns(l->timeline));

	set_start(l, full > most ? length : larger(length, full), start);
}

void pd_windows_of(const struct pd_view *views, int count, double labels, double most_ops,
		      struct pd_window (*windows)[PD_WINDOWS], int64_t scales[PD_WINDOWS])
{
	struct looked *looked = pd_calloc((size_t)count, sizeof(*looked));
	int64_t length = 1, most = 1;
	bool parts = true;

	for (int v = 0; v < count; v++) {
		look(views[v].timeline, &looked[v]);
		length = larger(length, (int64_t)(labels * (double)looked[v].short_ns));
		most = larger(most, (int64_t)(most_ops * (double)looked[v].usual_ns));
	}
	for (int v = 0; v < count; v++) {
		set_start(&looked[v], 0, &windows[v][PD_WINDOW_START]);
		windows[v][PD_WINDOW_STEADY] = (struct pd_window){ 0 };
		if (shown(&windows[v][PD_WINDOW_START]) > length || looked[v].goes_on)
			set_steady(&looked[v], length, most, &windows[v][PD_WINDOW_STEADY]);
		set_evaluation(&looked[v], length, &windows[v][PD_WINDOW_EVALUATION]);
		parts &= shown(&windows[v][PD_WINDOW_STEADY]) > 0;
	}
	for (int k = 0; k < PD_WINDOWS; k++)
		scales[k] = length;
	for (int v = 0; v < count; v++) {
		struct pd_window *start = &windows[v][PD_WINDOW_START];
		int64_t whole = shown(start);

		if (parts)
			shorten(&looked[v], length, most, start);
		else                    /* all are shown as a whole */
			windows[v][PD_WINDOW_STEADY] = (struct pd_window){ 0 };
		name_start(&looked[v], shown(start) == whole, start);
		for (int k = 0; k < PD_WINDOWS; k++)
			scales[k] = larger(scales[k], shown(&windows[v][k]));
		free(looked[v].moments);
		free(looked[v].slow);
	}
	/* What is shown as a whole may be short. */
	for (int v = 0; v < count && !parts; v++)
		scales[PD_WINDOW_START] = v == 0 ? shown(&windows[v][PD_WINDOW_START])
			: larger(scales[PD_WINDOW_START], shown(&windows[v][PD_WINDOW_START]));
	free(looked);
}
