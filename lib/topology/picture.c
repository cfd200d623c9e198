/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/picture.h"

#include <inttypes.h>
#include <math.h>

#define STUB 20                 /* length of a link */
#define PAD 8
#define NAME 12                 /* height of a component's name */

/* A component below level k, as it is drawn; [levels] is the machine. */
struct machine {
	const struct pd_machine_look *look;
	FILE *out;
	struct pd_machine_size size;
	double width[PD_MAX_LEVELS + 1], height[PD_MAX_LEVELS + 1];
	int64_t per_row[PD_MAX_LEVELS + 1];
};

struct pd_machine_size pd_machine_size(int64_t devices)
{
	static const struct { int64_t most; struct pd_machine_size size; } sizes[] = {
		{ 48, { 38, 38, 9 } }, { 160, { 26, 26, 8 } }, { 640, { 15, 15, 7 } },
		{ INT64_MAX, { 8, 8, 0 } },
	};
	int i = 0;

	while (devices > sizes[i].most)
		i++;
	return sizes[i].size;
}

/* Sets the size of the components, which is the same for all of a level. */
static void measure(struct machine *m)
{
	const struct pd_topology *topology = m->look->topology;

	m->size = pd_machine_size(topology->devices);
	m->size.width = fmax(m->size.width, m->look->device_width);
	m->width[0] = m->size.width;
	m->height[0] = m->size.height + (m->size.font > 0 ? m->size.font + 2 : 0);
	for (int k = 1; k <= topology->levels; k++) {
		double most = PD_MACHINE_WIDTH - 2 * PD_SVG_MARGIN - 2 * PAD * (topology->levels - k);
		int64_t count = topology->level[k - 1].count, rows;
		int64_t fit = (int64_t)((most - PAD) / (m->width[k - 1] + PAD));

		fit = fit < 1 ? 1 : fit < count ? fit : count;
		rows = (count + fit - 1) / fit;
		m->per_row[k] = fit;
		m->width[k] = fmax((double)fit * (m->width[k - 1] + PAD) + PAD, m->look->component_width);
		m->height[k] = (double)rows * (STUB + m->height[k - 1] + PAD) + PAD + NAME;
	}
}

static void put_device(const struct machine *m, int64_t device, double x, double y)
{
	m->look->device(m->look->context, device, &m->size, x, y, m->out);
	if (m->size.font > 0)
		fprintf(m->out, "<text class=\"m q\" style=\"font-size:%.0fpx\" x=\"%.1f\" y=\"%.1f\">%"
			PRId64 "</text>\n", m->size.font, x + m->size.width / 2,
			y + m->size.height + m->size.font, device);
}

/* Draws the link from a component to the others of its level. */
static void put_link(const struct machine *m, int k, int64_t component, double x, double y)
{
	struct pd_link_look link = { .width = 1 };
	char colour[8];

	m->look->link(m->look->context, k, component, &link);
	fprintf(m->out, "<path d=\"M%.1f %.1fv%d\" stroke=\"%s\" stroke-width=\"%.1f\"><title>", x, y,
		STUB, pd_show_colour(link.colour, colour), link.width);
	pd_svg_put(link.title, m->out);
	fputs("</title></path>\n", m->out);
	if (*link.text && (k > 0 || m->size.width > 30))
		fprintf(m->out, "<text class=\"q\" style=\"font-size:9px\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
			x + 2 + link.width / 2, y + STUB - 6, link.text);
}

static void put_component(const struct machine *m, int k, int64_t component, double x, double y);

/* Draws a row of children, and the line to which their links lead. */
static void put_row(const struct machine *m, int k, int64_t first, int64_t count, double x, double y)
{
	double step = m->width[k - 1] + PAD, half = m->width[k - 1] / 2;

	fprintf(m->out, "<path d=\"M%.1f %.1fH%.1f\" stroke=\"#444\" stroke-width=\"2\"/>\n",
		x + PAD / 2.0, y, x + PAD + (double)(count - 1) * step + 2 * half);
	for (int64_t i = 0; i < count; i++) {
		double at = x + PAD + (double)i * step;

		put_link(m, k - 1, first + i, at + half, y);
		put_component(m, k - 1, first + i, at, y + STUB);
	}
}

static void put_name(const struct machine *m, int k, int64_t component, double x, double y)
{
	char name[128] = "";

	m->look->name(m->look->context, k, component, name, sizeof(name));
	if (!*name)
		return;
	fprintf(m->out, "<text class=\"s q\" x=\"%.1f\" y=\"%.1f\">", x, y);
	pd_svg_put(name, m->out);
	fputs("</text>\n", m->out);
}

static void put_component(const struct machine *m, int k, int64_t component, double x, double y)
{
	const struct pd_topology *topology = m->look->topology;
	int64_t count = topology->level[k > 0 ? k - 1 : 0].count;
	double row, top = y + PAD + NAME;

	if (k == 0) {
		put_device(m, component, x, y);
		return;
	}
	row = STUB + m->height[k - 1] + PAD;
	if (k < topology->levels)
		fprintf(m->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
			"fill=\"%s\" stroke=\"#888\"/>\n", x, y, m->width[k], m->height[k],
			k % 2 ? "#f6f6f6" : "#fff");
	put_name(m, k, component, x + PAD / 2.0, top - 5);
	for (int64_t i = 0; i < count; i += m->per_row[k]) {
		double at = top + (double)(i / m->per_row[k]) * row;

		if (i > 0)
			fprintf(m->out, "<path d=\"M%.1f %.1fv%.1f\" stroke=\"#444\" "
				"stroke-width=\"2\"/>\n", x + PAD / 2.0, at, -row);
		put_row(m, k, component * count + i,
			count - i < m->per_row[k] ? count - i : m->per_row[k], x, at);
	}
}

double pd_machine_picture(const struct pd_machine_look *look, double y, FILE *out)
{
	struct machine m = { .look = look, .out = out };

	measure(&m);
	put_component(&m, look->topology->levels, 0, PD_SVG_MARGIN, y);
	return y + m.height[look->topology->levels];
}
