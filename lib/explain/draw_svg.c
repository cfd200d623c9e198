/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Draws a plan: its stages in a row, and below them the machine, as boxes in boxes by the levels of
 * the topology.  Each device has the colour of its stage, and each link is as wide and dark as it
 * is busy.
 */
#include "explain/draw_svg.h"

#include "base/mem.h"
#include "base/opt.h"
#include "base/svg.h"
#include "explain/explain.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MOST_DEVICES 4096

static const struct { int red, green, blue; } palette[] = {
	{ 0x3b, 0x6f, 0xa8 }, { 0xee, 0x84, 0x1c }, { 0x4d, 0x94, 0x45 }, { 0xa6, 0x6f, 0x97 },
	{ 0x5f, 0xa8, 0xa3 }, { 0xc8, 0x55, 0x4b }, { 0xf0, 0xc2, 0x5a }, { 0x7a, 0x6a, 0x5a },
	{ 0x85, 0xb8, 0xe0 }, { 0x9a, 0x94, 0x90 },
};

const struct pd_draw_kind pd_draw_kinds[SVG_KINDS] = {
	{ "forward", "#3b6fa8" }, { "backward", "#ee841c" }, { "update", "#4d9445" },
	{ "all-reduce", "#a66f97" },
};

/* Makes a stage paler than kinds of work. */
static int pale(int part)
{
	return part + (255 - part) * 2 / 5;
}

const char *pd_draw_colour(int stage, char buf[8])
{
	size_t i = (size_t)stage % PD_COUNT(palette);

	snprintf(buf, 8, "#%02x%02x%02x", (unsigned)pale(palette[i].red),
		 (unsigned)pale(palette[i].green), (unsigned)pale(palette[i].blue));
	return buf;
}

static double put_legend(const struct pd_drawing *d, double y)
{
	static const double parts[] = { 0.1, 0.4, 0.75, 1 };
	static const char *const names[] = {
		"a link busy for less than 20 %", "60 %", "90 %", "more" };
	double x = SVG_MARGIN;

	for (size_t i = 0; i < SVG_KINDS; i++) {
		fprintf(d->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"10\" height=\"10\" fill=\"%s\"/>"
			"<text x=\"%.1f\" y=\"%.1f\">%s</text>\n", x, y - 9,
			pd_draw_kinds[i].colour, x + 14, y, pd_draw_kinds[i].name);
		x += 30 + 6.2 * (double)strlen(pd_draw_kinds[i].name);
	}
	x += 20;
	for (size_t i = 0; i < PD_COUNT(parts); i++) {
		fprintf(d->out, "<path d=\"M%.1f %.1f v12\" stroke=\"%s\" stroke-width=\"%.1f\"/>"
			"<text x=\"%.1f\" y=\"%.1f\">%s</text>\n", x + 4, y - 10,
			pd_draw_load_colour(parts[i]), pd_draw_load_width(parts[i]), x + 12, y,
			names[i]);
		x += 32 + 6.2 * (double)strlen(names[i]);
	}
	return y + 14;
}

static double put_all(const struct pd_drawing *d)
{
	const struct pd_plan *plan = d->plan;
	const struct pd_prediction *predicted = &plan->predicted;
	char time[32], bound[32];
	double y = 46;

	fprintf(d->out, "<text x=\"%d\" y=\"18\" font-size=\"13\">", SVG_MARGIN);
	pd_svg_put(plan->profile->name ? plan->profile->name : "", d->out);
	fprintf(d->out, ": %s, %s, %d of %lld devices</text>\n<text class=\"s\" x=\"%d\" y=\"34\">"
		"%s per %s of %lld samples (no plan takes less than %s); data parallelism%s "
		"takes %.2f times as long</text>\n", pd_schedule_kind_name[plan->schedule],
		pd_weight_kind_name[plan->weights], plan->rank_count,
		(long long)plan->topology.devices, SVG_MARGIN,
		pd_show_time(predicted->period_ns, time), pd_plan_unit(plan),
		(long long)plan->profile->batch_size,
		pd_show_time(predicted->lower_bound_ns, bound),
		pd_data_parallel_fits(plan) ? "" : ", which does not fit,",
		predicted->speedup_over_data_parallel);
	y = pd_draw_stages(d, y) + 4;
	return put_legend(d, pd_draw_machine(d, y) + 12);
}

int pd_plan_svg_check(const struct pd_topology *topology, struct pd_error *err)
{
	if (topology->devices <= MOST_DEVICES)
		return 0;
	return pd_error_input(err, "--format: svg: expected at most %d devices, found %" PRId64,
			      MOST_DEVICES, topology->devices);
}

int pd_plan_svg(const struct pd_plan *plan, FILE *out, struct pd_error *err)
{
	struct pd_drawing d = { .plan = plan };
	char *body;
	size_t size;
	double height;

	if (pd_plan_svg_check(&plan->topology, err) < 0)
		return -1;
	d.usage = pd_usage_new(plan);
	if (!d.usage)
		pd_bug("svg: no schedule");
	d.out = pd_mem_stream(&body, &size);
	d.stage_of = pd_calloc((size_t)plan->topology.devices, sizeof(*d.stage_of));
	for (int64_t i = 0; i < plan->topology.devices; i++)
		d.stage_of[i] = -1;
	for (int s = plan->stage_count - 1; s >= 0; s--)
		for (int r = 0; r < plan->stages[s].replicas; r++)
			d.stage_of[plan->stages[s].ranks[r]] = s;
	height = put_all(&d);           /* the height is known only afterwards */
	pd_mem_stream_close(d.out);
	fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" "
		"viewBox=\"0 0 %d %.0f\" font-family=\"Helvetica, Arial, sans-serif\" "
		"font-size=\"11\">\n<style>.s{fill:#555;font-size:10px}.t{fill:#333;font-size:8px}"
		".m{text-anchor:middle}.e{text-anchor:end;fill:#555}"
		"path{fill:none}</style>\n"
		"<defs><marker id=\"a\" markerWidth=\"6\" markerHeight=\"6\" refX=\"5\" refY=\"3\" "
		"orient=\"auto\"><path d=\"M0 0L6 3L0 6z\" style=\"fill:#444\"/></marker>"
		"<marker id=\"b\" markerWidth=\"6\" markerHeight=\"6\" refX=\"1\" refY=\"3\" "
		"orient=\"auto\"><path d=\"M6 0L0 3L6 6z\" style=\"fill:#444\"/></marker></defs>\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n", SVG_WIDTH, height,
		SVG_WIDTH, height);
	fwrite(body, 1, size, out);
	fputs("</svg>\n", out);
	free(body);
	free(d.stage_of);
	pd_usage_free((struct pd_usage *)d.usage);
	return 0;
}
