/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Draws the machine: boxes in boxes, devices in the colours of their stages, links by how busy they
 * are.
 */
#include "explain/draw_svg.h"

#include "base/opt.h"

#include <inttypes.h>
#include <math.h>

#define STUB 20                 /* length of a link */
#define PAD 8

/* A component below level k, as it is drawn; [levels] is the machine. */
struct machine {
	const struct pd_drawing *d;
	double width[PD_MAX_LEVELS + 1], height[PD_MAX_LEVELS + 1];
	int per_row[PD_MAX_LEVELS + 1];
	int font;                       /* in a device; 0: no text */
};

/* Returns a colour from grey (not busy) through blue to red (always busy). */
const char *pd_draw_load_colour(double part)
{
	return part >= 0.9 ? "#b02a1f" : part >= 0.6 ? "#ee841c" : part >= 0.2 ? "#3b6fa8"
		: part > 0 ? "#8fa9c4" : "#cccccc";
}

double pd_draw_load_width(double part)
{
	return 1 + 6 * (part > 1 ? 1 : part);
}

/* Sets the size of the components, which is the same for all of a level. */
static void measure(struct machine *m)
{
	const struct pd_topology *topology = &m->d->plan->topology;
	int64_t devices = topology->devices;
	double cell = devices <= 48 ? 34 : devices <= 160 ? 24 : devices <= 640 ? 15 : 8;

	m->font = devices <= 160 ? 10 : devices <= 640 ? 7 : 0;
	m->width[0] = m->height[0] = cell;
	for (int k = 1; k <= topology->levels; k++) {
		double most = SVG_WIDTH - 2 * SVG_MARGIN - 2 * PAD * (topology->levels - k);
		int64_t count = topology->level[k - 1].count, rows;
		int64_t fit = (int64_t)((most - 2 * PAD + PAD) / (m->width[k - 1] + PAD));

		fit = fit < 1 ? 1 : fit < count ? fit : count;
		rows = (count + fit - 1) / fit;
		m->per_row[k] = (int)fit;
		m->width[k] = (double)fit * (m->width[k - 1] + PAD) + PAD;
		m->height[k] = (double)rows * (STUB + m->height[k - 1] + PAD) + PAD + 12;
	}
}

static void put_device(const struct machine *m, int64_t device, double x, double y)
{
	int s = m->d->stage_of[device];
	char colour[8];

	if (s < 0) {
		fprintf(m->d->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
			"fill=\"#fff\" stroke=\"#aaa\" stroke-dasharray=\"2 2\"><title>device %"
			PRId64 ": not used</title></rect>\n", x, y, m->width[0], m->height[0],
			device);
		return;
	}
	fprintf(m->d->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\">"
		"<title>rank %" PRId64 ", stage %d</title></rect>\n", x, y, m->width[0],
		m->height[0], pd_draw_colour(s, colour), device, s);
	if (m->font)
		fprintf(m->d->out, "<text class=\"m\" font-size=\"%d\" x=\"%.1f\" y=\"%.1f\">%d"
			"</text>\n", m->font, x + m->width[0] / 2,
			y + m->height[0] / 2 + m->font * 0.36, s);
}

/* Draws the link from a component to the others of its level. */
static void put_link(const struct machine *m, int k, int64_t component, double x, double y)
{
	const struct pd_links *links = &m->d->usage->links;
	static const struct pd_load none[PD_WAYS];
	const struct pd_load *load = component < links->components[k] ? links->load[k][component] : none;
	double part = pd_usage_part(m->d->usage, fmax(load[PD_WAY_OUT].busy_ns, load[PD_WAY_IN].busy_ns));
	char a[32], b[32];

	fprintf(m->d->out, "<path d=\"M%.1f %.1f v%d\" stroke=\"%s\" stroke-width=\"%.1f\"><title>"
		"out %s, in %s per %s</title></path>\n", x, y, STUB,
		pd_draw_load_colour(part), pd_draw_load_width(part),
		pd_show_bytes((int64_t)(load[PD_WAY_OUT].bytes + 0.5), a),
		pd_show_bytes((int64_t)(load[PD_WAY_IN].bytes + 0.5), b),
		pd_plan_unit(m->d->plan));
	if (part >= 0.005 && (k > 0 || m->width[0] > 30))
		fprintf(m->d->out, "<text class=\"t\" x=\"%.1f\" y=\"%.1f\">%.0f%%</text>\n",
			x + 2 + pd_draw_load_width(part) / 2, y + STUB - 7, 100 * part);
}

static void put_component(const struct machine *m, int k, int64_t component, double x, double y);

/* Draws a row of children, and the line to which their links lead. */
static void put_row(const struct machine *m, int k, int64_t first, int64_t count, double x,
		    double y)
{
	double step = m->width[k - 1] + PAD, half = m->width[k - 1] / 2;

	fprintf(m->d->out, "<path d=\"M%.1f %.1f H%.1f\" stroke=\"#444\" stroke-width=\"2\"/>\n",
		x + PAD / 2.0, y, x + PAD + (double)(count - 1) * step + 2 * half);
	for (int64_t i = 0; i < count; i++) {
		double at = x + PAD + (double)i * step;

		put_link(m, k - 1, first + i, at + half, y);
		put_component(m, k - 1, first + i, at, y + STUB);
	}
}

static void put_component(const struct machine *m, int k, int64_t component, double x, double y)
{
	const struct pd_topology *topology = &m->d->plan->topology;
	const struct pd_level *level = &topology->level[k > 0 ? k - 1 : 0];
	int64_t first = component * level->count;
	double row, top = y + PAD + 12;
	char rate[32];

	if (k == 0) {
		put_device(m, component, x, y);
		return;
	}
	row = STUB + m->height[k - 1] + PAD;
	if (k < topology->levels)
		fprintf(m->d->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
			"fill=\"%s\" stroke=\"#bbb\"/>\n", x, y, m->width[k], m->height[k],
			k % 2 ? "#f6f6f6" : "#fff");
	if (component == 0)
		fprintf(m->d->out, "<text class=\"s\" x=\"%.1f\" y=\"%.1f\">%s each</text>\n",
			x + PAD / 2.0, top - 5, pd_show_rate(level->bandwidth_bytes_per_s, rate));
	for (int64_t i = 0; i < level->count; i += m->per_row[k]) {
		int64_t count = level->count - i < m->per_row[k] ? level->count - i : m->per_row[k];
		double at = top + (double)(i / m->per_row[k]) * row;

		if (i > 0)
			fprintf(m->d->out, "<path d=\"M%.1f %.1f v%.1f\" stroke=\"#444\" "
				"stroke-width=\"2\"/>\n", x + PAD / 2.0, at, -row);
		put_row(m, k, first + i, count, x, at);
	}
}

double pd_draw_machine(const struct pd_drawing *d, double y)
{
	int levels = d->plan->topology.levels;
	struct machine m = { .d = d };

	measure(&m);
	put_component(&m, levels, 0, SVG_MARGIN, y);
	return y + m.height[levels];
}
