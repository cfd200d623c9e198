/* SPDX-License-Identifier: Apache-2.0 */
/* Draws the machine: devices in the colours of all their stages, links by how busy they are. */
#include "explain/draw_svg.h"

#include "base/mem.h"
#include "base/opt.h"
#include "topology/picture.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define STAGE_FONT 8.0

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
static void put_device(void *context, int64_t device, const struct pd_machine_size *size, double x,
		       double y, FILE *out)
{
	struct pd_drawing *d = context;
	int first = d->stage_of[device], count = 0, columns, rows, i = 0;

	if (first < 0) {
		d->unused = true;
		fprintf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"#fff\" "
			"stroke=\"#888\" stroke-dasharray=\"2 2\"><title>device %" PRId64 ": not used"
			"</title></rect>\n", x, y, size->width, size->height, device);
		return;
	}
	for (int s = first; s >= 0; s = d->next_stage[s])
		count++;
	columns = (int)ceil(count * STAGE_FONT / size->height);
	rows = (count + columns - 1) / columns;
	fputs("<g>", out);
	put_title(d, device, first);
	for (int s = first; s >= 0; s = d->next_stage[s], i++)
		put_stage(d, s, x + i / rows * size->width / columns, y + i % rows * size->height / rows,
			  size->width / columns, size->height / rows);
	fprintf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"none\" "
		"stroke=\"#666\" stroke-width=\".7\"/></g>\n", x, y, size->width, size->height);
}

static void set_link(void *context, int level, int64_t component, struct pd_link_look *look)
{
	struct pd_drawing *d = context;
	const struct pd_links *links = &d->usage->links;
	static const struct pd_load none[PD_WAYS];
	const struct pd_load *load = component < links->components[level]
				   ? links->load[level][component] : none;
	double part = pd_usage_part(d->usage, fmax(load[PD_WAY_OUT].busy_ns, load[PD_WAY_IN].busy_ns));
	size_t class = PD_COUNT(pd_draw_loads) - 1;
	char a[32], b[32];

	while (part < pd_draw_loads[class].least)
		class--;
	d->loads[class] = true;
	look->colour = pd_draw_loads[class].colour;
	look->width = pd_draw_load_width(part);
	if (part >= 0.005)
		snprintf(look->text, sizeof(look->text), "%.0f%%", 100 * part);
	snprintf(look->title, sizeof(look->title), "out %s, in %s per %s",
		 pd_show_bytes((int64_t)(load[PD_WAY_OUT].bytes + 0.5), a),
		 pd_show_bytes((int64_t)(load[PD_WAY_IN].bytes + 0.5), b), pd_plan_unit(d->plan));
}

/* The first component of a level says what its links are; each does, where they differ. */
static void set_name(void *context, int level, int64_t component, char *buf, size_t size)
{
	const struct pd_drawing *d = context;
	const struct pd_topology *topology = &d->plan->topology;
	const struct pd_level *inside = &topology->level[level - 1];
	char rate[32];

	if (component == 0 || inside->runs > 0)
		snprintf(buf, size, "%s each", pd_show_rate(pd_topology_link(topology, level - 1, component *
				inside->count).bandwidth_bytes_per_s, rate));
}

double pd_draw_machine(struct pd_drawing *d, double y)
{
	const struct pd_machine_look look = {
		.topology = &d->plan->topology, .context = d, .device = put_device, .link = set_link,
		.name = set_name, .component_width = pd_svg_text_width("100 MB/s each", PD_SVG_SMALL) + 8,
	};

	return pd_machine_picture(&look, y, d->out);
}
