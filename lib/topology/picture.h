/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Draws a machine (SVG): boxes in boxes by its levels, devices in the innermost, and the link from each
 * component to the others of its level.  Who asks says what devices and links look like.
 */
#pragma once

#include "base/svg.h"
#include "topology/topology.h"

#define PD_MACHINE_WIDTH 940
#define PD_MOST_DEVICES 4096    /* more are too many to be drawn */

struct pd_machine_size {
	double width, height;           /* of a device */
	double font;                    /* of its number, which stands below it; 0: it has none */
};

/* How a link is drawn. */
struct pd_link_look {
	struct pd_colour colour;
	double width;
	char text[32], title[96];       /* text: beside it; "": none */
};

struct pd_machine_look {
	const struct pd_topology *topology;
	void *context;
	/* Draws what is in the box of a device, from its upper left corner on. */
	void (*device)(void *context, int64_t device, const struct pd_machine_size *size, double x,
		       double y, FILE *out);
	/* Sets the look of the link of a component (at level 0: of a device). */
	void (*link)(void *context, int level, int64_t component, struct pd_link_look *look);
	/* Writes what stands in a component of at least level 1, with its levels' links; "": nothing. */
	void (*name)(void *context, int level, int64_t component, char *buf, size_t size);
	double device_width;            /* of a device at least, for what is in it */
	double component_width;         /* of a component at least, for its name */
};

/* Returns the size of devices if there are so many. */
struct pd_machine_size pd_machine_size(int64_t devices);
/* Draws from y on, within PD_MACHINE_WIDTH; returns the y below. */
double pd_machine_picture(const struct pd_machine_look *look, double y, FILE *out);
