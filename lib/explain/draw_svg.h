/* SPDX-License-Identifier: Apache-2.0 */
/* Private to draw_svg.c and the two halves of the drawing: draw_stages.c, draw_machine.c. */
#pragma once

#include "explain/usage.h"

#include <stdio.h>

#define SVG_WIDTH 940
#define SVG_MARGIN 14

struct pd_drawing {
	const struct pd_plan *plan;
	const struct pd_usage *usage;
	FILE *out;
	int *stage_of;                  /* per device: its first stage, or -1 */
};

/* Returns the colour of a stage. */
const char *pd_draw_colour(int stage, char buf[8]);

/* The parts of a replica's time, in the colours of pd-replay's timelines. */
#define SVG_KINDS 4
struct pd_draw_kind {
	const char *name, *colour;
};
extern const struct pd_draw_kind pd_draw_kinds[SVG_KINDS];

/* draw_stages.c and draw_machine.c: these draw from y on, and return where the drawing ends. */
double pd_draw_stages(const struct pd_drawing *d, double y);
double pd_draw_machine(const struct pd_drawing *d, double y);
/* Returns the colour of a link that is busy for this part of the time. */
const char *pd_draw_load_colour(double part);
double pd_draw_load_width(double part);
