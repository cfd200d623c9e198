/* SPDX-License-Identifier: Apache-2.0 */
#include "base/svg.h"

#include <math.h>
#include <string.h>

#define LINE 16                 /* from one line of a legend to the next */
#define BOX 10

/* ---- colours ---- */

static double linear(uint8_t part)
{
	double value = part / 255.0;

	return value <= 0.04045 ? value / 12.92 : pow((value + 0.055) / 1.055, 2.4);
}

static double luminance(struct pd_colour colour)
{
	return 0.2126 * linear(colour.red) + 0.7152 * linear(colour.green) +
	       0.0722 * linear(colour.blue);
}

double pd_contrast(struct pd_colour a, struct pd_colour b)
{
	double x = luminance(a) + 0.05, y = luminance(b) + 0.05;

	return x > y ? x / y : y / x;
}

static uint8_t between(uint8_t a, uint8_t b, double part)
{
	return (uint8_t)(a + part * (b - a) + 0.5);
}

struct pd_colour pd_mix(struct pd_colour a, struct pd_colour b, double part)
{
	return (struct pd_colour){ between(a.red, b.red, part), between(a.green, b.green, part),
				   between(a.blue, b.blue, part) };
}

struct pd_colour pd_colour_on(struct pd_colour ground)
{
	return pd_contrast(PD_WHITE, ground) >= pd_contrast(PD_BLACK, ground) ? PD_WHITE : PD_BLACK;
}

const char *pd_show_colour(struct pd_colour colour, char buf[8])
{
	snprintf(buf, 8, "#%02x%02x%02x", colour.red, colour.green, colour.blue);
	return buf;
}

/* ---- text ---- */

/* Returns the width of a character in the widest of usual fonts, as a part of the font's size. */
static double width_of(char c)
{
	if ((c & 0xc0) == 0x80)         /* goes on with a character */
		return 0;
	if (strchr("ijlI.,:;'|!()[] ", c))
		return 0.46;
	if (strchr("mwMW%@", c) || (c & 0x80))
		return 1.08;
	return c >= 'A' && c <= 'Z' ? 0.79 : 0.64;
}

double pd_svg_text_width(const char *text, double font)
{
	double width = 0;

	for (; *text; text++)
		width += width_of(*text);
	return width * font;
}

void pd_svg_put(const char *text, FILE *out)
{
	for (; *text; text++)
		switch (*text) {
		case '<':
			fputs("&lt;", out);
			break;
		case '&':
			fputs("&amp;", out);
			break;
		default:
			putc(*text, out);
		}
}

/* ---- the document ---- */

void pd_svg_begin(double left, double width, double height, FILE *out)
{
	fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
		"viewBox=\"%.0f 0 %.0f %.0f\" font-family=\"Helvetica, Arial, sans-serif\" "
		"font-size=\"%d\">\n<style>.s{font-size:%dpx}.m{text-anchor:middle}"
		".e{text-anchor:end}.q{fill:#555}.w{fill:#fff}.b{stroke:#fff;stroke-width:.5}"
		"path,line{fill:none}</style>\n"
		"<rect x=\"%.0f\" width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n", width, height,
		left, width, height, PD_SVG_FONT, PD_SVG_SMALL, left);
}

void pd_svg_end(FILE *out)
{
	fputs("</svg>\n", out);
}

/* ---- the legend ---- */

struct pd_legend pd_legend_begin(double left, double right, double y, FILE *out)
{
	return (struct pd_legend){ .out = out, .left = left, .right = right, .x = left, .y = y };
}

double pd_legend_room(struct pd_legend *legend, double sign, const char *text)
{
	double width = sign + 4 + pd_svg_text_width(text, PD_SVG_FONT), x;

	if (legend->x + width > legend->right && legend->x > legend->left) {
		legend->x = legend->left;
		legend->y += LINE;
	}
	x = legend->x;
	fprintf(legend->out, "<text x=\"%.1f\" y=\"%.1f\">", x + sign + (sign > 0 ? 4 : 0), legend->y);
	pd_svg_put(text, legend->out);
	fputs("</text>", legend->out);
	legend->x += width + 12;
	return x;
}

void pd_legend_boxes(struct pd_legend *legend, const struct pd_colour *colours,
		     const char *const *inside, int count, const char *text)
{
	double width = BOX, x;
	char colour[8];

	for (int i = 0; inside && i < count; i++)
		width = fmax(width, 4 + pd_svg_text_width(inside[i], PD_SVG_SMALL));
	x = pd_legend_room(legend, count * width, text);
	for (int i = 0; i < count; i++) {
		fprintf(legend->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" "
			"fill=\"%s\"/>", x + i * width, legend->y - (inside ? 10 : 9), width,
			inside ? BOX + 3 : BOX, pd_show_colour(colours[i], colour));
		if (inside)
			fprintf(legend->out, "<text class=\"s m\" x=\"%.1f\" y=\"%.1f\" "
				"fill=\"%s\">%s</text>", x + (i + 0.5) * width, legend->y,
				pd_show_colour(pd_colour_on(colours[i]), colour), inside[i]);
	}
	putc('\n', legend->out);
}

void pd_legend_note(struct pd_legend *legend, const char *text)
{
	pd_legend_room(legend, 0, text);
	putc('\n', legend->out);
}

double pd_legend_end(const struct pd_legend *legend)
{
	return legend->y + LINE - 4;
}
