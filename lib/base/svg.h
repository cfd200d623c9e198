/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What pictures (SVG) share: the head with its styles, text, colours and the contrast between them, and
 * the legend.  Units are pixels.
 *
 * Classes of text: s smaller, m in the middle of its place, e at its end, q quiet (grey), w white.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define PD_SVG_FONT 11
#define PD_SVG_SMALL 10
#define PD_SVG_MARGIN 14

struct pd_colour {
	uint8_t red, green, blue;
};

#define PD_WHITE ((struct pd_colour){ 255, 255, 255 })
#define PD_BLACK ((struct pd_colour){ 0, 0, 0 })

/* Returns the contrast of two colours as WCAG 2.1 defines it, from 1 to 21. */
double pd_contrast(struct pd_colour a, struct pd_colour b);
/* Returns a with a part of b, from 0 to 1. */
struct pd_colour pd_mix(struct pd_colour a, struct pd_colour b, double part);
/* Returns white or black, whichever has more contrast with the ground: at least 4.5. */
struct pd_colour pd_colour_on(struct pd_colour ground);
/* Writes "#rrggbb" into buf and returns it. */
const char *pd_show_colour(struct pd_colour colour, char buf[8]);

/* Returns a width that the text does not exceed in any usual font without serifs. */
double pd_svg_text_width(const char *text, double font);

/* Writes text with the characters escaped that have a meaning in XML. */
void pd_svg_put(const char *text, FILE *out);

/* Writes the head of a picture that begins at x = left; its ground is white. */
void pd_svg_begin(double left, double width, double height, FILE *out);
void pd_svg_end(FILE *out);

/* Entries side by side, on as many lines as they need. */
struct pd_legend {
	FILE *out;
	double left, right;
	double x, y;                    /* of the next entry: where its text stands */
};
struct pd_legend pd_legend_begin(double left, double right, double y, FILE *out);
/* Makes room for a sign and a text behind it; returns the x of the sign. */
double pd_legend_room(struct pd_legend *legend, double sign, const char *text);
/* Adds boxes of colours, each with a text inside that may be NULL, and a text behind them. */
void pd_legend_boxes(struct pd_legend *legend, const struct pd_colour *colours,
		     const char *const *inside, int count, const char *text);
/* Adds a text without a sign. */
void pd_legend_note(struct pd_legend *legend, const char *text);
/* Returns the y below all. */
double pd_legend_end(const struct pd_legend *legend);
