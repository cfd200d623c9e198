/* SPDX-License-Identifier: Apache-2.0 */
/* One window of a timeline in a picture (SVG): rows of bars over an axis; private to out_svg.c and pane.c. */
#pragma once

#include "trace/window.h"

#define PD_PANE_LEFT 100        /* the least room for the names of rows */
#define PD_PANE_WIDTH 820       /* of the time axis: legible across a page */
#define PD_PANE_VISIBLE 2       /* pixels; transfers and updates that are shorter are left out */

/* A picture of one or more panes, and what is in it. */
struct pd_picture {
	FILE *out;
	bool used[PD_OP_KINDS], evaluates, folded;
	bool left_out;                  /* something is too short to be drawn */
	int chunks;                     /* most stages of a rank */
};

struct pd_pane {
	struct pd_picture *picture;
	const struct pd_timeline *timeline;
	const struct pd_window *window;
	double ns_per_pixel;
};

static inline bool pd_op_computes(enum pd_op_kind kind)
{
	return pd_lane_of(kind) == PD_LANE_COMPUTE;
}

/* Writes the label of an operation, and returns how many pixels it needs. */
double pd_pane_label(int64_t microbatch, char label[24]);
/* Returns how far the longest name of a row extends to the left of PD_PANE_LEFT. */
double pd_pane_overhang(const struct pd_timeline *timeline);
/* Draws the pane from y on, and notes what is in it; returns the y below. */
double pd_pane_put(const struct pd_pane *pane, double y);
