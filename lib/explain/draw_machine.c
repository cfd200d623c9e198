/* SPDX-License-Identifier: Apache-2.0 */
/* Draws the machine: devices in the colours of all their stages, links by how busy they are. */
#include "explain/draw_svg.h"

#include "base/mem.h"
#include "base/opt.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define STAGE_FONT 8.0

#define STUB 20                 /* length of a link */
#define PAD 8
#define NAME 12                 /* height of a component's name */

static const struct machine_size {
	int64_t most;                   /* devices */
	double width, height;           /* of one */
	double font;                    /* of its number, which stands below it; 0: it has none */
} sizes[] = {
	{ 48, 38, 38, 9 }, { 160, 26, 26, 8 }, { 640, 15, 15, 7 }, { INT64_MAX, 8, 8, 0 },
};

/* A component below level k, as it is drawn; [levels] is the machine. */
struct machine {
	struct pd_drawing *d;
	const struct pd_topology *topology;
	const struct machine_size *size;
	double width[PD_MAX_LEVELS + 1], height[PD_MAX_LEVELS + 1];
	int64_t per_row[PD_MAX_LEVELS + 1];
};

/* Sets the size of the components, which is the same for all of a level. */
static void measure_components(struct machine *m)
{
	const struct pd_topology *topology = m->topology;
	double name_width = pd_svg_text_width("100 MB/s each", PD_SVG_SMALL) + 8;

	for (m->size = sizes; topology->devices > m->size->most; m->size++)
		;
	m->width[0] = m->size->width;
	m->height[0] = m->size->height + (m->size->font > 0 ? m->size->font + 2 : 0);
	for (int k = 1; k <= topology->levels; k++) {
		double most = PD_DRAWING_WIDTH - 2 * PD_SVG_MARGIN - 2 * PAD * (topology->levels - k);
		int64_t count = topology->level[k - 1].count, rows;
		int64_t fit = (int64_t)((most - PAD) / (m->width[k - 1] + PAD));

		fit = fit < 1 ? 1 : fit < count ? fit : count;
		rows = (count + fit - 1) / fit;
		m->per_row[k] = fit;
		m->width[k] = fmax((double)fit * (m->width[k - 1] + PAD) + PAD, name_width);
		m->height[k] = (double)rows * (STUB + m->height[k - 1] + PAD) + PAD + NAME;
	}
}

const struct pd_draw_load pd_draw_loads[4] = {
	{ 0, "link busy below 20 %", { 0x6f, 0x7f, 0x8f } },
	{ 0.2, "20 to 60 %", { 0x2f, 0x5f, 0x9b } },
	{ 0.6, "60 to 90 %", { 0xc4, 0x5c, 0x0e } },
	{ 0.9, "above 90 %", { 0xb0, 0x2a, 0x1f } },
};

double pd_draw_load_width(double part)
{
	return 1 + 6 * (part > 1 ? 1 : part);
}

/* Writes "stages 0, 4" of a rank into a title. */
static void put_title(const struct pd_drawing *d, int64_t rank, int first)
{
	const struct pd_topology *topology = &d->plan->topology;

	fprintf(d->out, "<title>rank %" PRId64 ", stage%s %d", rank, d->next_stage[first] < 0 ? "" : "s",
		first);
	for (int s = d->next_stage[first]; s >= 0; s = d->next_stage[s])
		fprintf(d->out, ", %d", s);
	if (pd_topology_mixed(topology)) {
		fputs(", on ", d->out);
		pd_svg_put(topology->kind[pd_topology_kind_of(topology, rank)].name, d->out);
	}
	fputs("</title>", d->out);
}

/* Draws one of a rank's stages, with its number if that fits. */
static void put_stage(const struct pd_drawing *d, int s, double x, double y, double width,
		      double height)
{
	struct pd_colour ground = pd_draw_colour(s);
	double font = fmin(height - 1, width > 30 ? STAGE_FONT + 1 : STAGE_FONT);
	char number[16], colour[8];

	fprintf(d->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>", x, y,
		width, height, pd_show_colour(ground, colour));
	snprintf(number, sizeof(number), "%d", s);
	if (font >= 6 && pd_svg_text_width(number, font) <= width)
		fprintf(d->out, "<text class=\"m\" style=\"font-size:%.1fpx\" fill=\"%s\" x=\"%.1f\" "
			"y=\"%.1f\">%s</text>", font, pd_show_colour(pd_colour_on(ground), colour),
			x + width / 2, y + height / 2 + font * 0.36, number);
}

/* Draws all stages of a rank, one below the other, in columns if there are many. */
static void put_stages(struct pd_drawing *d, int64_t device, const struct machine_size *size,
		       double x, double y)
{
	int first = d->stage_of[device], count = 0, columns, rows, i = 0;

	if (first < 0) {
		d->unused = true;
		fprintf(d->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"#fff\" "
			"stroke=\"#888\" stroke-dasharray=\"2 2\"><title>device %" PRId64 ": not used"
			"</title></rect>\n", x, y, size->width, size->height, device);
		return;
	}
	for (int s = first; s >= 0; s = d->next_stage[s])
		count++;
	columns = (int)ceil(count * STAGE_FONT / size->height);
	rows = (count + columns - 1) / columns;
	fputs("<g>", d->out);
	put_title(d, device, first);
	for (int s = first; s >= 0; s = d->next_stage[s], i++)
		put_stage(d, s, x + i / rows * size->width / columns, y + i % rows * size->height / rows,
			  size->width / columns, size->height / rows);
	fprintf(d->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"none\" "
		"stroke=\"#666\" stroke-width=\".7\"/></g>\n", x, y, size->width, size->height);
}

static void put_device(const struct machine *m, int64_t device, double x, double y)
{
	put_stages(m->d, device, m->size, x, y);
	if (m->size->font > 0)
		fprintf(m->d->out, "<text class=\"m q\" style=\"font-size:%.0fpx\" x=\"%.1f\" y=\"%.1f\">%"
			PRId64 "</text>\n", m->size->font, x + m->size->width / 2,
			y + m->size->height + m->size->font, device);
}

/* Draws the link from a component to the others of its level, as busy as it is. */
static void put_link(const struct machine *m, int k, int64_t component, double x, double y)
{
	struct pd_drawing *d = m->d;
	const struct pd_links *links = &d->usage->links;
	static const struct pd_load none[PD_WAYS];
	const struct pd_load *load = component < links->components[k] ? links->load[k][component] : none;
	double part = pd_usage_part(d->usage, fmax(load[PD_WAY_OUT].busy_ns, load[PD_WAY_IN].busy_ns));
	double width = pd_draw_load_width(part);
	size_t class = PD_COUNT(pd_draw_loads) - 1;
	char colour[8], a[32], b[32];

	while (part < pd_draw_loads[class].least)
		class--;
	d->loads[class] = true;
	fprintf(d->out,
		"<path d=\"M%.1f %.1fv%d\" stroke=\"%s\" stroke-width=\"%.1f\"><title>out %s, in "
		"%s "
		"per %s</title></path>\n",
		x, y, STUB, pd_show_colour(pd_draw_loads[class].colour, colour), width,
		pd_show_bytes((int64_t)(load[PD_WAY_OUT].bytes + 0.5), a),
		pd_show_bytes((int64_t)(load[PD_WAY_IN].bytes + 0.5), b), pd_plan_unit(d->plan));
	if (part >= 0.005 && (k > 0 || m->size->width > 30))
		fprintf(d->out, "<text class=\"q\" style=\"font-size:9px\" x=\"%.1f\" y=\"%.1f\">%.0f%%</text>\n",
			x + 2 + width / 2, y + STUB - 6, 100 * part);
}

static void put_component(const struct machine *m, int k, int64_t component, double x, double y);

/* Draws a row of children, and the line to which their links lead. */
static void put_row(const struct machine *m, int k, int64_t first, int64_t count, double x,
		    double y)
{
	double step = m->width[k - 1] + PAD, half = m->width[k - 1] / 2;

	fprintf(m->d->out, "<path d=\"M%.1f %.1fH%.1f\" stroke=\"#444\" stroke-width=\"2\"/>\n",
		x + PAD / 2.0, y, x + PAD + (double)(count - 1) * step + 2 * half);
	for (int64_t i = 0; i < count; i++) {
		double at = x + PAD + (double)i * step;

		put_link(m, k - 1, first + i, at + half, y);
		put_component(m, k - 1, first + i, at, y + STUB);
	}
}

/* The first component of a level says what its links are; each does, where they differ. */
static void put_name(const struct machine *m, int k, int64_t component, double x, double y)
{
	const struct pd_level *inside = &m->topology->level[k - 1];
	struct pd_level link = pd_topology_link(m->topology, k - 1, component * inside->count);
	char rate[32];

	if (component == 0 || inside->runs > 0)
		fprintf(m->d->out, "<text class=\"s q\" x=\"%.1f\" y=\"%.1f\">%s each</text>\n", x, y,
			pd_show_rate(link.bandwidth_bytes_per_s, rate));
}

static void put_component(const struct machine *m, int k, int64_t component, double x, double y)
{
	const struct pd_topology *topology = m->topology;
	int64_t count = topology->level[k > 0 ? k - 1 : 0].count;
	double row, top = y + PAD + NAME;

	if (k == 0) {
		put_device(m, component, x, y);
		return;
	}
	row = STUB + m->height[k - 1] + PAD;
	if (k < topology->levels)
		fprintf(m->d->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
			"fill=\"%s\" stroke=\"#888\"/>\n", x, y, m->width[k], m->height[k],
			k % 2 ? "#f6f6f6" : "#fff");
	put_name(m, k, component, x + PAD / 2.0, top - 5);
	for (int64_t i = 0; i < count; i += m->per_row[k]) {
		double at = top + (double)(i / m->per_row[k]) * row;

		if (i > 0)
			fprintf(m->d->out, "<path d=\"M%.1f %.1fv%.1f\" stroke=\"#444\" "
				"stroke-width=\"2\"/>\n", x + PAD / 2.0, at, -row);
		put_row(m, k, component * count + i,
			count - i < m->per_row[k] ? count - i : m->per_row[k], x, at);
	}
}

double pd_draw_machine(struct pd_drawing *d, double y)
{
	struct machine m = { .d = d, .topology = &d->plan->topology };

	measure_components(&m);
	d->numbered = m.size->font > 0;
	put_component(&m, m.topology->levels, 0, PD_SVG_MARGIN, y);
	return y + m.height[m.topology->levels];
}
