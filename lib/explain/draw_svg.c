/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Draws a plan: its stages in a row, and below them the machine, as boxes in boxes by the levels of
 * the topology.  Each device has the colours of its stages, and each link is as wide and dark as it
 * is busy.
 */
#include "explain/draw_svg.h"

#include "base/mem.h"
#include "base/opt.h"
#include "explain/explain.h"
#include "trace/colours.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST_NAME 80         /* characters */
#define PALE 0.4                /* white in the colour of a stage, which is paler than kinds of work */

static const struct pd_colour palette[] = {
	{ 0x3b, 0x6f, 0xa8 }, { 0xee, 0x84, 0x1c }, { 0x4d, 0x94, 0x45 }, { 0xa6, 0x6f, 0x97 },
	{ 0x5f, 0xa8, 0xa3 }, { 0xc8, 0x55, 0x4b }, { 0xf0, 0xc2, 0x5a }, { 0x7a, 0x6a, 0x5a },
	{ 0x85, 0xb8, 0xe0 }, { 0x9a, 0x94, 0x90 },
};

struct pd_colour pd_draw_colour(int stage)
{
	return pd_mix(palette[(size_t)stage % PD_COUNT(palette)], PD_WHITE, PALE);
}

static void put_load(const struct pd_draw_load *load, double least, struct pd_legend *legend)
{
	double x = pd_legend_room(legend, 8, load->name);
	char colour[8];

	fprintf(legend->out, "<path d=\"M%.1f %.1fv12\" stroke=\"%s\" stroke-width=\"%.1f\"/>\n", x + 4,
		legend->y - 10, pd_show_colour(load->colour, colour), pd_draw_load_width(least));
}

static void put_not_used(struct pd_legend *legend)
{
	double x = pd_legend_room(legend, 10, "device that is not used");

	fprintf(legend->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"10\" height=\"10\" fill=\"#fff\" "
		"stroke=\"#888\" stroke-dasharray=\"2 2\"/>\n", x, legend->y - 9);
}

/* Explains what is in the picture, and nothing else. */
static double put_legend(const struct pd_drawing *d, double y)
{
	struct pd_legend legend = pd_legend_begin(PD_SVG_MARGIN, PD_DRAWING_WIDTH - PD_SVG_MARGIN,
						  y, d->out);
	const struct pd_colour idle = PD_IDLE_COLOUR;

	for (size_t i = 0; i < PD_COUNT(pd_draw_kinds); i++) {
		struct pd_colour colour = pd_op_colour(pd_draw_kinds[i], 0, 1);

		if (d->kinds[i])
			pd_legend_boxes(&legend, &colour, NULL, 1, pd_op_colour_name(pd_draw_kinds[i]));
	}
	pd_legend_boxes(&legend, &idle, NULL, 1, "idle");
	for (size_t i = 0; i < PD_COUNT(pd_draw_loads); i++)
		if (d->loads[i])
			put_load(&pd_draw_loads[i], pd_draw_loads[i].least + 0.1, &legend);
	if (d->unused)
		put_not_used(&legend);
	pd_legend_note(&legend, d->numbered
		       ? "devices have the colours of their stages; their rank is below" :
		       "devices have the colours of their stages");
	return pd_legend_end(&legend) + 4;
}

static double put_all(struct pd_drawing *d)
{
	const struct pd_plan *plan = d->plan;
	const struct pd_prediction *predicted = &plan->predicted;
	static const struct pd_name_style style = { .dots = "\xe2\x80\xa6", .most = LONGEST_NAME };
	char *name = pd_show_name(plan->profile->name ? plan->profile->name : "", &style);
	size_t prefix = pd_layers_prefix(plan->profile);
	char time[32], bound[32], places[PD_SHOW_PLACES];
	double y = 46;

	fprintf(d->out, "<text x=\"%d\" y=\"18\" font-size=\"13\">", PD_SVG_MARGIN);
	pd_svg_put(name, d->out);
	free(name);
	fprintf(d->out, ": %s, %s, %s</text>\n<text class=\"q\" x=\"%d\" y=\"34\">"
		"%s per %s of %lld samples, %.1f samples/s (no plan takes less than %s); ", pd_schedule_kind_name[plan->schedule],
		pd_weight_kind_name[plan->weights], pd_show_places(plan, places), PD_SVG_MARGIN,
		pd_show_time(predicted->period_ns, time), pd_plan_unit(plan),
		(long long)plan->profile->batch_size, predicted->samples_per_s,
		pd_show_time(predicted->lower_bound_ns, bound));
	if (pd_plan_is_data_parallel(plan))
		fputs("it is data parallelism</text>\n", d->out);
	else
		fprintf(d->out, "data parallelism%s takes %.2f times as long</text>\n",
			pd_data_parallel_fits(plan) ? "" : ", which does not fit,",
			predicted->speedup_over_data_parallel);
	if (prefix > 0) {
		name = pd_format("all names of layers begin with %.*s", (int)prefix,
				 plan->profile->layers[0].name);
		fprintf(d->out, "<text class=\"q\" x=\"%d\" y=\"50\">", PD_SVG_MARGIN);
		pd_svg_put(name, d->out);
		fputs("</text>\n", d->out);
		free(name);
		y += 16;
	}
	y = pd_draw_stages(d, y) + 4;
	return put_legend(d, pd_draw_machine(d, y) + 16);
}

int pd_plan_svg_check(const struct pd_topology *topology, struct pd_error *err)
{
	if (topology->devices <= PD_MOST_DEVICES)
		return 0;
	return pd_error_input(err, "--format: svg: expected at most %d devices, found %" PRId64,
			      PD_MOST_DEVICES, topology->devices);
}

/* Sets which stage a device has first, and which its ranks have next. */
static void list_stages(struct pd_drawing *d)
{
	const struct pd_plan *plan = d->plan;

	d->stage_of = pd_calloc((size_t)plan->topology.devices, sizeof(*d->stage_of));
	d->next_stage = pd_calloc((size_t)plan->stage_count, sizeof(*d->next_stage));
	for (int64_t i = 0; i < plan->topology.devices; i++)
		d->stage_of[i] = -1;
	for (int s = plan->stage_count - 1; s >= 0; s--) {
		d->next_stage[s] = d->stage_of[plan->stages[s].ranks[0]];
		for (int r = 0; r < plan->stages[s].replicas; r++)
			d->stage_of[plan->stages[s].ranks[r]] = s;
	}
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
	list_stages(&d);
	d.out = pd_mem_stream(&body, &size);
	height = put_all(&d);           /* the height is known only afterwards */
	pd_mem_stream_close(d.out);
	pd_svg_begin(0, PD_DRAWING_WIDTH, height, out);
	fputs("<defs><marker id=\"a\" markerWidth=\"6\" markerHeight=\"6\" refX=\"5\" refY=\"3\" "
	      "orient=\"auto\"><path d=\"M0 0L6 3L0 6z\" style=\"fill:#444\"/></marker>"
	      "<marker id=\"b\" markerWidth=\"6\" markerHeight=\"6\" refX=\"1\" refY=\"3\" "
	      "orient=\"auto\"><path d=\"M6 0L0 3L6 6z\" style=\"fill:#444\"/></marker></defs>\n", out);
	fwrite(body, 1, size, out);
	pd_svg_end(out);
	free(body);
	free(d.stage_of);
	free(d.next_stage);
	pd_usage_free((struct pd_usage *)d.usage);
	return 0;
}
