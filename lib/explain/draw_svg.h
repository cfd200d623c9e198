/* SPDX-License-Identifier: Apache-2.0 */
/* Private to draw_svg.c and the two halves of the drawing: draw_stages.c, draw_machine.c. */
#pragma once

#include "base/svg.h"
#include "explain/usage.h"

#include <stdio.h>

#define PD_DRAWING_WIDTH 940
#define PD_MOST_DEVICES 4096    /* more are too many to be drawn */

struct pd_drawing {
	const struct pd_plan *plan;
	const struct pd_usage *usage;
	FILE *out;
	int *stage_of;                  /* per device: its first stage, or -1 */
	int *next_stage;                /* per stage: the next one of its ranks, or -1 */
	bool numbered;                  /* ranks have room for their numbers */
	bool unused;                    /* a device has no rank */
	bool loads[4];                  /* links are as busy as this (pd_draw_loads) */
	bool kinds[4];                  /* replicas do this (pd_draw_kinds) */
};

/* Returns the colour of a stage. */
struct pd_colour pd_draw_colour(int stage);

/* The parts of a replica's time, in the colours of pd-replay's timelines. */
extern const enum pd_op_kind pd_draw_kinds[4];

/* How busy a link is: classes, from idle ones on. */
struct pd_draw_load {
	double least;                   /* part of the time */
	const char *name;
	struct pd_colour colour;
};
extern const struct pd_draw_load pd_draw_loads[4];
double pd_draw_load_width(double part);

/* draw_stages.c and draw_machine.c: these draw from y on, and return where the drawing ends. */
double pd_draw_stages(struct pd_drawing *d, double y);
double pd_draw_machine(struct pd_drawing *d, double y);
