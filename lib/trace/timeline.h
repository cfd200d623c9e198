/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trace laid out for drawing: per rank one lane for each kind of thing that goes on
 * beside the others, the operations of a lane in order of time.  What overlaps within a
 * lane (two transfers under way) lies at different depths, so that nothing drawn at one
 * place covers anything else.
 *
 * The pictures: in a terminal, as SVG, and as events for Chrome's and Perfetto's viewers.
 */
#ifndef PD_TRACE_TIMELINE_H
#define PD_TRACE_TIMELINE_H

#include "trace/trace.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum pd_lane_kind {
	PD_LANE_COMPUTE,                /* forward, backward and its parts, recompute, step */
	PD_LANE_LOAD,
	PD_LANE_ACTIVATIONS_IN,
	PD_LANE_ACTIVATIONS_OUT,
	PD_LANE_GRADIENTS_IN,
	PD_LANE_GRADIENTS_OUT,
	PD_LANE_ALLREDUCE,
	PD_LANES
};

extern const char *const pd_lane_name[PD_LANES];
enum pd_lane_kind pd_lane_of(enum pd_op_kind kind);

struct pd_bar {
	const struct pd_record *record;
	int depth;                      /* 0: the first row of its lane */
};

struct pd_lane {
	size_t count;
	struct pd_bar *bars;            /* ascending by start, then end */
	int depth;                      /* rows: 0 for an empty lane */
};

struct pd_timeline {
	const struct pd_trace *trace;   /* borrowed */
	int64_t begin_ns, end_ns;       /* of all records; both 0 when there is none */
	int rank_count;
	int *rows;                      /* ranks in the order of drawing: by stage, then replica */
	/* per rank: its first stage, its replica, how many stages it has (interleaved) */
	int *stages, *replicas, *stage_counts;
	int *chunks;                    /* per stage: its number among those of its ranks */
	struct pd_lane *lanes;          /* rank_count x PD_LANES */
	struct pd_bar *bars;            /* of all lanes */
};

/* The trace must not change while its timeline lives. */
struct pd_timeline *pd_timeline_new(const struct pd_trace *trace);
void pd_timeline_free(struct pd_timeline *timeline);

/* The stages of a rank, as "1" or "0, 2, 4": into buf (of size bytes), returned. */
const char *pd_timeline_stages(const struct pd_timeline *timeline, int rank,
			       const char *separator, char *buf, size_t size);

static inline const struct pd_lane *pd_timeline_lane(const struct pd_timeline *timeline, int rank,
						     enum pd_lane_kind kind)
{
	return &timeline->lanes[(size_t)rank * PD_LANES + kind];
}

/*
 * What to show of it where `ops` operations side by side can be told apart: the whole, or
 * the start-up and a piece of the steady state.  Returns how many windows (0 to 2).
 */
struct pd_window {
	const char *what;               /* NULL: the whole */
	int64_t begin_ns, end_ns;
};
int pd_timeline_windows(const struct pd_timeline *timeline, double ops, struct pd_window *out);

/* The bytes that a rank holds from a moment on. */
struct pd_held {
	int64_t when_ns;
	int64_t bytes;
};
/*
 * How the memory of a rank grows and shrinks while it trains, as the schedule prices it
 * (schedule/price.h): what a microbatch keeps from the start of what brings or makes it to
 * the end of its backward, and the versions of the weights.  Into *held_p the moments at
 * which it changes, ascending, the first when the timeline begins; freed by the caller.
 * Returns how many.
 */
size_t pd_timeline_held(const struct pd_timeline *timeline, int rank, struct pd_held **held_p);

/* One of the timelines that are drawn together, to the same scale, each from its beginning. */
struct pd_view {
	const struct pd_timeline *timeline;
	const char *name;               /* "plan.json, replayed"; NULL where it is the only one */
};

/*
 * The windows of several timelines: windows[v][w] is the w-th of views[v], and those of one w
 * are equally long.  Returns how many each has (0 to 2).
 */
int pd_view_windows(const struct pd_view *views, int count, double ops,
		    struct pd_window (*windows)[2]);

/* One row of cells per rank, `columns` wide in all. */
void pd_timeline_text(const struct pd_view *views, int count, int columns, bool colour, FILE *out);
void pd_timeline_svg(const struct pd_view *views, int count, FILE *out);
/*
 * A process per rank (of several timelines, those of a rank follow one another), a thread per
 * lane and depth, arrows from sends to receives, counters of the minibatches in flight and of
 * the memory; times in microseconds.
 */
void pd_timeline_chrome(const struct pd_view *views, int count, FILE *out);

#endif
