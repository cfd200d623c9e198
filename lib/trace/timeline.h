/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trace laid out for drawing.  A rank has a lane for each kind of operation that can run beside
 * the others, and the operations of a lane are in order of time.  Operations that overlap within a
 * lane (two transfers) have different depths, so that no bar covers another.
 *
 * It is drawn in a terminal, as SVG, and as events for Chrome's and Perfetto's viewers.
 */
#pragma once

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
	PD_TRACK_LANES
};

extern const char *const pd_lane_name[PD_TRACK_LANES];
enum pd_lane_kind pd_lane_of(enum pd_op_kind kind);

struct pd_bar {
	const struct pd_record *record;
	int depth;                      /* 0: the first row of its lane */
};

struct pd_lane {
	size_t count;
	struct pd_bar *bars;            /* ascending by start, then end */
	int depth;                      /* rows; 0 for an empty lane */
};

struct pd_timeline {
	const struct pd_trace *trace;   /* borrowed */
	int64_t begin_ns, end_ns;       /* of all records; both 0 if there are none */
	int rank_count, row_count;
	int *rows;                      /* ranks in the order of drawing: by stage, then replica */
	bool folded;                    /* rows has the first replica of each stage alone */
	/* Per rank: its first stage, its replica, and how many stages it has (interleaved). */
	int *stages, *replicas, *stage_counts;
	int *chunks;                    /* per stage: its number among those of its ranks */
	struct pd_lane *lanes;          /* rank_count x PD_TRACK_LANES */
	struct pd_bar *bars;            /* bars of all lanes */
};

/* The trace must not change while its timeline lives. */
struct pd_timeline *pd_timeline_new(const struct pd_trace *trace);
void pd_timeline_free(struct pd_timeline *timeline);

/* Where there are more ranks than this, pd-replay draws one row for all replicas of a stage. */
#define PD_ROWS_UNFOLDED 16
void pd_timeline_fold(struct pd_timeline *timeline);

/*
 * Writes the stages of a rank, as "1" or "0, 2, 4", into buf (of size bytes) and returns it.  Of many,
 * those in the middle are left out.
 */
const char *pd_timeline_stages(const struct pd_timeline *timeline, int rank,
			       const char *separator, char *buf, size_t size);
/* Writes the ranks that a row stands for, as "3", or "0-7" where it is folded. */
const char *pd_timeline_ranks(const struct pd_timeline *timeline, int rank, char *buf, size_t size);

static inline const struct pd_lane *pd_timeline_lane(const struct pd_timeline *timeline, int rank,
						     enum pd_lane_kind kind)
{
	return &timeline->lanes[(size_t)rank * PD_TRACK_LANES + kind];
}

/* The bytes that a rank holds from a moment on. */
struct pd_memory_point {
	int64_t when_ns;
	int64_t bytes;
};
/*
 * Computes the memory of a rank while it trains, as the schedule prices it (schedule/price.h).  A
 * microbatch's memory counts from the start of the operation that brings or makes it to the end of
 * its backward; versions of the weights count too.  Sets *points_p to the moments at which it
 * changes, ascending, the first at the beginning of the timeline; the caller frees it.  Returns how
 * many there are.
 */
size_t pd_timeline_memory(const struct pd_timeline *timeline, int rank,
			  struct pd_memory_point **points_p);

/* Tells whether a bar of the lane that computes is one of two that ran together, depths 0 and 1. */
bool pd_lane_pairs(const struct pd_lane *lane, size_t i);

/* A timeline that is drawn together with others, to the same scale, each from its beginning. */
struct pd_view {
	const struct pd_timeline *timeline;
	const char *name;               /* such as "plan.json, replayed"; NULL for a single one */
};

/*
 * Return what stands above a drawing: what it is, and the period, the rate and the bubble of its steady
 * state.  free() them.
 */
char *pd_view_title(const struct pd_view *view);
char *pd_view_figures(const struct pd_view *view);

/* Draws one row of cells per rank, `columns` wide in all. */
void pd_timeline_text(const struct pd_view *views, int count, int columns, bool colour, FILE *out);
void pd_timeline_svg(const struct pd_view *views, int count, FILE *out);
/*
 * Writes a process per rank (the processes of a rank in several timelines follow one another), a
 * thread per lane and depth, arrows from sends to receives, and counters of the minibatches in
 * flight and of the memory.  Times are in microseconds.
 */
void pd_timeline_chrome(const struct pd_view *views, int count, FILE *out);
