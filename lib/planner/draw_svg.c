/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plan as a drawing: its stages in a row, and below them the machine, boxes in boxes as the
 * levels of the topology are, each device in the colour of its stage, each link as wide and as
 * dark as it is busy.
 */
#include "planner/planner.h"

#include "base/mem.h"
#include "base/opt.h"
#include "base/xml.h"
#include "planner/usage.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH 940
#define MARGIN 14
#define CARD 198                /* of a stage */
#define CARD_HEIGHT 69          /* and a line for tensors that skip stages */
#define CARD_GAP 38             /* with an arrow */
#define CARDS_PER_ROW 4
#define MOST_CARDS 48
#define MOST_DEVICES 4096
#define STUB 20                 /* length of a link */
#define PAD 8
#define MOST_CHARACTERS 14      /* of a layer's name */

static const struct { int red, green, blue; } palette[] = {
	{ 0x3b, 0x6f, 0xa8 }, { 0xee, 0x84, 0x1c }, { 0x4d, 0x94, 0x45 }, { 0xa6, 0x6f, 0x97 },
	{ 0x5f, 0xa8, 0xa3 }, { 0xc8, 0x55, 0x4b }, { 0xf0, 0xc2, 0x5a }, { 0x7a, 0x6a, 0x5a },
	{ 0x85, 0xb8, 0xe0 }, { 0x9a, 0x94, 0x90 },
};

/* What makes up a replica's time, in the colours of pd-replay's timelines. */
static const struct { const char *name, *colour; } kinds[] = {
	{ "forward", "#3b6fa8" }, { "backward", "#ee841c" }, { "update", "#4d9445" },
	{ "all-reduce", "#a66f97" },
};

struct drawing {
	const struct pd_plan *plan;
	const struct pd_usage *usage;
	FILE *out;
	int *stage_of;                  /* per device: its first stage, or -1 */
	/* a component below level k, as it is drawn; [levels] is the machine */
	double width[PD_MAX_LEVELS + 1], height[PD_MAX_LEVELS + 1];
	int per_row[PD_MAX_LEVELS + 1];
	int card_height;
	int font;                       /* in a device; 0: nothing is written there */
};

/* Stages are paler than kinds of work. */
static int pale(int part)
{
	return part + (255 - part) * 2 / 5;
}

static const char *colour_of(int stage, char buf[8])
{
	size_t i = (size_t)stage % PD_COUNT(palette);

	snprintf(buf, 8, "#%02x%02x%02x", (unsigned)pale(palette[i].red),
		 (unsigned)pale(palette[i].green), (unsigned)pale(palette[i].blue));
	return buf;
}

/* From grey, not busy, through blue to red, all the time. */
static const char *load_colour(double part)
{
	return part >= 0.9 ? "#b02a1f" : part >= 0.6 ? "#ee841c" : part >= 0.2 ? "#3b6fa8"
		: part > 0 ? "#8fa9c4" : "#cccccc";
}

static double load_width(double part)
{
	return 1 + 6 * (part > 1 ? 1 : part);
}

/* A layer's name, cut to fit, but not inside a character. */
static void put_name(const struct drawing *d, int layer)
{
	char *name = pd_strdup(d->plan->profile->layers[layer].name);
	int characters = 0;

	for (char *c = name; *c; c++)
		if ((*c & 0xc0) != 0x80 && characters++ == MOST_CHARACTERS) {
			*c = '\0';
			break;
		}
	pd_put_xml(name, d->out);
	free(name);
}

/* "conv1 ... fc3" */
static void put_layers(const struct drawing *d, const struct pd_stage *stage)
{
	put_name(d, stage->first_layer);
	if (stage->layer_count == 1)
		return;
	fputs(" \xe2\x80\xa6 ", d->out);
	put_name(d, stage->first_layer + stage->layer_count - 1);
}

static void put_bar(const struct drawing *d, int s, double x, double y)
{
	const struct pd_stage_usage *at = &d->usage->stages[s];
	double ns[] = { at->forward_ns, at->backward_ns, at->update_ns, at->allreduce_ns };
	double width = CARD - 56, from = x, end = x + width;

	fprintf(d->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"8\" "
		"fill=\"#e8e8e8\"/>", x, y, width);
	for (size_t i = 0; i < PD_COUNT(ns); i++) {
		double part = pd_usage_part(d->usage, ns[i]) * width;

		part = from + part > end ? end - from : part;
		if (part > 0)
			fprintf(d->out, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"8\" "
				"fill=\"%s\"/>", from, y, part, kinds[i].colour);
		from += part;
	}
	fprintf(d->out, "<text x=\"%.1f\" y=\"%.1f\">%.0f %%</text>\n", end + 5, y + 8,
		100 * pd_usage_part(d->usage, pd_usage_busy_ns(d->usage, s)));
}

/* What goes on to stages that are not the next one. */
static void put_skips(const struct drawing *d, int s, double x, double y)
{
	const struct pd_wiring *wiring = d->usage->schedule->wiring;
	int64_t sum = 0;
	int last = -1;
	char bytes[32];

	for (int i = 0; i < wiring->out_count[s]; i++) {
		const struct pd_link *link = &wiring->links[wiring->out[s][i]];

		if (link->to > s + 1 && link->bytes > 0) {
			sum += link->bytes;
			last = link->to;
		}
	}
	if (last >= 0)
		fprintf(d->out, "<text class=\"s\" x=\"%.1f\" y=\"%.1f\">%s past it, up to stage "
			"%d</text>\n", x, y, pd_show_bytes(sum, bytes), last);
}

static void put_card(const struct drawing *d, int s, double x, double y)
{
	const struct pd_stage *stage = &d->plan->stages[s];
	char colour[8], bytes[32], times[32] = "";

	if (stage->replicas > 1)
		snprintf(times, sizeof(times), " \xc3\x97 %d", stage->replicas);
	fprintf(d->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\" fill=\"#fff\" "
		"stroke=\"#888\"/><rect x=\"%.1f\" y=\"%.1f\" width=\"6\" height=\"%d\" "
		"fill=\"%s\"/>\n<text x=\"%.1f\" y=\"%.1f\" font-weight=\"bold\">stage %d%s</text>"
		"<text class=\"e\" x=\"%.1f\" y=\"%.1f\">%d layer%s</text>\n<text class=\"s\" "
		"x=\"%.1f\" y=\"%.1f\">", x, y, CARD, d->card_height, x, y, d->card_height,
		colour_of(s, colour), x + 13, y + 16, s, times, x + CARD - 8, y + 16,
		stage->layer_count, stage->layer_count > 1 ? "s" : "", x + 13, y + 31);
	put_layers(d, stage);
	fprintf(d->out, "</text>\n");
	put_bar(d, s, x + 13, y + 38);
	fprintf(d->out, "<text class=\"s\" x=\"%.1f\" y=\"%.1f\">%s, %d in flight%s</text>\n",
		x + 13, y + 61, pd_show_bytes(stage->memory_bytes, bytes),
		d->usage->stages[s].in_flight, stage->recompute ? ", recomputed" : "");
	put_skips(d, s, x + 13, y + 76);
}

static int64_t bytes_between(const struct drawing *d, int s)
{
	const struct pd_wiring *wiring = d->usage->schedule->wiring;

	for (int i = 0; i < wiring->out_count[s]; i++)
		if (wiring->links[wiring->out[s][i]].to == s + 1)
			return wiring->links[wiring->out[s][i]].bytes;
	return 0;
}

/* Between two cards, or behind the last of a row. */
static void put_arrow(const struct drawing *d, int s, double x, double y)
{
	char bytes[32], *unit;
	int64_t between = bytes_between(d, s);

	fprintf(d->out, "<path d=\"M%.1f %.1f h%d\" stroke=\"#444\" stroke-width=\"1.2\" "
		"marker-end=\"url(#a)\" marker-start=\"url(#b)\"/>", x + 5, y, CARD_GAP - 10);
	pd_show_bytes(between, bytes);
	unit = strchr(bytes, ' ');
	if (unit)
		*unit++ = 0;
	fprintf(d->out, "<text class=\"m\" x=\"%.1f\" y=\"%.1f\">%s</text><text class=\"m\" "
		"x=\"%.1f\" y=\"%.1f\">%s</text>\n", x + CARD_GAP / 2.0, y - 6, bytes,
		x + CARD_GAP / 2.0, y + 14, unit ? unit : "");
}

static double put_cards(const struct drawing *d, double y)
{
	int count = d->plan->stage_count <= MOST_CARDS ? d->plan->stage_count : MOST_CARDS;

	for (int s = 0; s < count; s++) {
		double x = MARGIN + s % CARDS_PER_ROW * (CARD + CARD_GAP);
		double top = y + s / CARDS_PER_ROW * (d->card_height + 14);
		bool row_ends = (s + 1) % CARDS_PER_ROW == 0;

		put_card(d, s, x, top);
		if (s + 1 < d->plan->stage_count && !row_ends)
			put_arrow(d, s, x + CARD, top + 30);
		else if (s + 1 < d->plan->stage_count)
			fprintf(d->out, "<text class=\"s\" x=\"%.1f\" y=\"%.1f\">\xe2\x86\xb5</text>\n",
				x + CARD + 2, top + 34);
	}
	y += (count + CARDS_PER_ROW - 1) / CARDS_PER_ROW * (d->card_height + 14);
	if (count < d->plan->stage_count) {
		fprintf(d->out, "<text x=\"%d\" y=\"%.1f\">and %d more stages</text>\n", MARGIN,
			y + 8, d->plan->stage_count - count);
		y += 18;
	}
	return y;
}

/* All components of a level are of one size. */
static void measure(struct drawing *d)
{
	const struct pd_topology *topology = &d->plan->topology;
	int64_t devices = topology->devices;
	double cell = devices <= 48 ? 34 : devices <= 160 ? 24 : devices <= 640 ? 15 : 8;

	d->font = devices <= 160 ? 10 : devices <= 640 ? 7 : 0;
	d->width[0] = d->height[0] = cell;
	for (int k = 1; k <= topology->levels; k++) {
		double most = WIDTH - 2 * MARGIN - 2 * PAD * (topology->levels - k);
		int64_t count = topology->level[k - 1].count, rows;
		int64_t fit = (int64_t)((most - 2 * PAD + PAD) / (d->width[k - 1] + PAD));

		fit = fit < 1 ? 1 : fit < count ? fit : count;
		rows = (count + fit - 1) / fit;
		d->per_row[k] = (int)fit;
		d->width[k] = (double)fit * (d->width[k - 1] + PAD) + PAD;
		d->height[k] = (double)rows * (STUB + d->height[k - 1] + PAD) + PAD + 12;
	}
}

static void put_device(const struct drawing *d, int64_t device, double x, double y)
{
	int s = d->stage_of[device];
	char colour[8];

	if (s < 0) {
		fprintf(d->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
			"fill=\"#fff\" stroke=\"#aaa\" stroke-dasharray=\"2 2\"><title>device %"
			PRId64 ": not used</title></rect>\n", x, y, d->width[0], d->height[0],
			device);
		return;
	}
	fprintf(d->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\">"
		"<title>rank %" PRId64 ", stage %d</title></rect>\n", x, y, d->width[0],
		d->height[0], colour_of(s, colour), device, s);
	if (d->font)
		fprintf(d->out, "<text class=\"m\" font-size=\"%d\" x=\"%.1f\" y=\"%.1f\">%d"
			"</text>\n", d->font, x + d->width[0] / 2, y + d->height[0] / 2 + d->font * 0.36, s);
}

/* From a component up to the others of its level. */
static void put_link(const struct drawing *d, int k, int64_t component, double x, double y)
{
	const struct pd_links *links = &d->usage->links;
	struct pd_load none = { 0 }, *up = &none, *down = &none;
	char a[32], b[32];
	double part;

	if (component < links->components[k]) {
		up = &links->up[k][component];
		down = &links->down[k][component];
	}
	part = pd_usage_part(d->usage, up->busy_ns > down->busy_ns ? up->busy_ns : down->busy_ns);
	fprintf(d->out, "<path d=\"M%.1f %.1f v%d\" stroke=\"%s\" stroke-width=\"%.1f\"><title>"
		"out %s, in %s per minibatch</title></path>\n", x, y, STUB, load_colour(part),
		load_width(part), pd_show_bytes((int64_t)(up->bytes + 0.5), a),
		pd_show_bytes((int64_t)(down->bytes + 0.5), b));
	if (part >= 0.005 && (k > 0 || d->width[0] > 30))
		fprintf(d->out, "<text class=\"t\" x=\"%.1f\" y=\"%.1f\">%.0f%%</text>\n",
			x + 2 + load_width(part) / 2, y + STUB - 7, 100 * part);
}

static void put_component(const struct drawing *d, int k, int64_t component, double x, double y);

/* The line to which the links of a row of children lead, and the children. */
static void put_row(const struct drawing *d, int k, int64_t first, int64_t count, double x,
		    double y)
{
	double step = d->width[k - 1] + PAD, half = d->width[k - 1] / 2;

	fprintf(d->out, "<path d=\"M%.1f %.1f H%.1f\" stroke=\"#444\" stroke-width=\"2\"/>\n",
		x + PAD / 2.0, y, x + PAD + (double)(count - 1) * step + 2 * half);
	for (int64_t i = 0; i < count; i++) {
		double at = x + PAD + (double)i * step;

		put_link(d, k - 1, first + i, at + half, y);
		put_component(d, k - 1, first + i, at, y + STUB);
	}
}

static void put_component(const struct drawing *d, int k, int64_t component, double x, double y)
{
	const struct pd_topology *topology = &d->plan->topology;
	const struct pd_level *level = &topology->level[k > 0 ? k - 1 : 0];
	int64_t first = component * level->count;
	double row, top = y + PAD + 12;
	char rate[32];

	if (k == 0) {
		put_device(d, component, x, y);
		return;
	}
	row = STUB + d->height[k - 1] + PAD;
	if (k < topology->levels)
		fprintf(d->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
			"fill=\"%s\" stroke=\"#bbb\"/>\n", x, y, d->width[k], d->height[k],
			k % 2 ? "#f6f6f6" : "#fff");
	if (component == 0)
		fprintf(d->out, "<text class=\"s\" x=\"%.1f\" y=\"%.1f\">%s each</text>\n",
			x + PAD / 2.0, top - 5, pd_show_rate(level->bandwidth_bytes_per_s, rate));
	for (int64_t i = 0; i < level->count; i += d->per_row[k]) {
		int64_t count = level->count - i < d->per_row[k] ? level->count - i : d->per_row[k];
		double at = top + (double)(i / d->per_row[k]) * row;

		if (i > 0)
			fprintf(d->out, "<path d=\"M%.1f %.1f v%.1f\" stroke=\"#444\" "
				"stroke-width=\"2\"/>\n", x + PAD / 2.0, at, -row);
		put_row(d, k, first + i, count, x, at);
	}
}

static double put_legend(const struct drawing *d, double y)
{
	static const double parts[] = { 0.1, 0.4, 0.75, 1 };
	static const char *const names[] = {
		"a link busy for less than 20 %", "60 %", "90 %", "more" };
	double x = MARGIN;

	for (size_t i = 0; i < PD_COUNT(kinds); i++) {
		fprintf(d->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"10\" height=\"10\" fill=\"%s\"/>"
			"<text x=\"%.1f\" y=\"%.1f\">%s</text>\n", x, y - 9, kinds[i].colour,
			x + 14, y, kinds[i].name);
		x += 30 + 6.2 * (double)strlen(kinds[i].name);
	}
	x += 20;
	for (size_t i = 0; i < PD_COUNT(parts); i++) {
		fprintf(d->out, "<path d=\"M%.1f %.1f v12\" stroke=\"%s\" stroke-width=\"%.1f\"/>"
			"<text x=\"%.1f\" y=\"%.1f\">%s</text>\n", x + 4, y - 10,
			load_colour(parts[i]), load_width(parts[i]), x + 12, y, names[i]);
		x += 32 + 6.2 * (double)strlen(names[i]);
	}
	return y + 14;
}

static double put_all(const struct drawing *d)
{
	const struct pd_plan *plan = d->plan;
	const struct pd_prediction *predicted = &plan->predicted;
	char time[32], bound[32];
	double y = 46;

	fprintf(d->out, "<text x=\"%d\" y=\"18\" font-size=\"13\">", MARGIN);
	pd_put_xml(plan->profile->name ? plan->profile->name : "", d->out);
	fprintf(d->out, ": %s, %s, %d of %lld devices</text>\n<text class=\"s\" x=\"%d\" y=\"34\">"
		"%s per minibatch of %lld samples (no plan takes less than %s); data parallelism%s "
		"takes %.2f times as long</text>\n", pd_schedule_kind_name[plan->schedule],
		pd_weight_kind_name[plan->weights], plan->rank_count,
		(long long)plan->topology.devices, MARGIN, pd_show_time(predicted->period_ns, time),
		(long long)plan->profile->batch_size, pd_show_time(predicted->lower_bound_ns, bound),
		pd_data_parallel_fits(plan) ? "" : ", which does not fit,",
		predicted->speedup_over_data_parallel);
	y = put_cards(d, y) + 4;
	put_component(d, plan->topology.levels, 0, MARGIN, y);
	return put_legend(d, y + d->height[plan->topology.levels] + 12);
}

int pd_plan_svg(const struct pd_plan *plan, FILE *out, struct pd_error *err)
{
	struct drawing d = { .plan = plan };
	char *body;
	size_t size;
	double height;

	if (plan->topology.devices > MOST_DEVICES)
		return pd_error_input(err, "--format: svg: expected at most %d devices, found %" PRId64,
				      MOST_DEVICES, plan->topology.devices);
	d.usage = pd_usage_new(plan);
	d.out = open_memstream(&body, &size);
	if (!d.usage || !d.out)
		pd_bug("svg: no schedule or no memory");
	d.stage_of = pd_calloc((size_t)plan->topology.devices, sizeof(*d.stage_of));
	for (int64_t i = 0; i < plan->topology.devices; i++)
		d.stage_of[i] = -1;
	for (int s = plan->stage_count - 1; s >= 0; s--)
		for (int r = 0; r < plan->stages[s].replicas; r++)
			d.stage_of[plan->stages[s].ranks[r]] = s;
	d.card_height = CARD_HEIGHT;
	for (int k = 0; k < d.usage->schedule->wiring->link_count; k++) {
		const struct pd_link *link = &d.usage->schedule->wiring->links[k];

		if (link->to > link->from + 1)
			d.card_height = CARD_HEIGHT + 15;
	}
	measure(&d);
	height = put_all(&d);           /* known afterwards */
	fclose(d.out);
	fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" "
		"viewBox=\"0 0 %d %.0f\" font-family=\"Helvetica, Arial, sans-serif\" "
		"font-size=\"11\">\n<style>.s{fill:#555;font-size:10px}.t{fill:#333;font-size:8px}"
		".m{text-anchor:middle}.e{text-anchor:end;fill:#555}"
		"path{fill:none}</style>\n"
		"<defs><marker id=\"a\" markerWidth=\"6\" markerHeight=\"6\" refX=\"5\" refY=\"3\" "
		"orient=\"auto\"><path d=\"M0 0L6 3L0 6z\" style=\"fill:#444\"/></marker>"
		"<marker id=\"b\" markerWidth=\"6\" markerHeight=\"6\" refX=\"1\" refY=\"3\" "
		"orient=\"auto\"><path d=\"M6 0L0 3L6 6z\" style=\"fill:#444\"/></marker></defs>\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n", WIDTH, height, WIDTH,
		height);
	fwrite(body, 1, size, out);
	fputs("</svg>\n", out);
	free(body);
	free(d.stage_of);
	pd_usage_free((struct pd_usage *)d.usage);
	return 0;
}
