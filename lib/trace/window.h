/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of timelines that are drawn: the beginning of training, a part of the steady state that
 * repeats, and the first evaluation, of which neither of these has anything.
 *
 * A window can leave out time: where an operation takes many times what others of its kind do, as the
 * first ones of a process, and nothing else begins or ends meanwhile.
 */
#pragma once

#include "trace/timeline.h"

enum pd_window_kind { PD_WINDOW_START, PD_WINDOW_STEADY, PD_WINDOW_EVALUATION, PD_WINDOWS };

#define PD_CUTS 8

struct pd_window {
	char what[96];                  /* "": all there is */
	bool evaluates;                 /* it shows evaluations, or else training */
	int64_t begin_ns, end_ns;       /* equal: there is none */
	int cut_count;
	struct pd_cut { int64_t begin_ns, end_ns; } cuts[PD_CUTS];      /* ascending, apart */
};

/* Tells whether an operation is drawn in a window. */
static inline bool pd_window_has(const struct pd_window *window, const struct pd_record *record)
{
	return record->op.evaluate == window->evaluates && record->start_ns < window->end_ns &&
	       record->end_ns > window->begin_ns;
}

/* Tells whether it has all of an operation that may have a label; updates are too short. */
static inline bool pd_window_has_whole(const struct pd_window *window, const struct pd_record *record)
{
	return pd_window_has(window, record) && record->op.kind != PD_OP_step &&
	       record->start_ns >= window->begin_ns && record->end_ns <= window->end_ns;
}

/* Returns how much of the time from the beginning of the window to a moment in it is drawn. */
int64_t pd_window_shown(const struct pd_window *window, int64_t ns);
/* Does the opposite: returns the moment before which so much is drawn. */
int64_t pd_window_moment(const struct pd_window *window, int64_t shown_ns);

/*
 * Sets the windows of several timelines: windows[v][kind] is that of views[v].  As many labels as `labels`
 * fit side by side, and the windows are so long that nearly all operations have room for theirs.  They show
 * up to most_ops operations of a rank if it takes that to show what repeats, or how the pipeline fills.
 * Sets scales[kind] to the time that the width of a drawing stands for.
 */
void pd_windows_of(const struct pd_view *views, int count, double labels, double most_ops,
		   struct pd_window (*windows)[PD_WINDOWS], int64_t scales[PD_WINDOWS]);
