/* SPDX-License-Identifier: Apache-2.0 */
/* Draws the timeline: a row per rank, with thin rows below it for transfers. */
#include "base/mem.h"
#include "base/opt.h"
#include "base/xml.h"
#include "trace/timeline.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEFT 100
#define WIDTH 760               /* of the time axis: legible across a page */
#define RIGHT 14
#define ROW 18                  /* height of a row for computation */
#define THIN 4                  /* height of a row for transfers */
#define GAP 6
#define LETTER 6.2              /* width of a label's character */
#define OPS_PER_ROW 36
#define PALEST 0.6              /* share of white in the last stage of a rank */

/* These colours also differ in lightness, so that they can be told apart in grey. */
static const struct { const char *name; int red, green, blue; } style[PD_OP_KINDS] = {
	[PD_OP_forward] = { "forward", 0x3b, 0x6f, 0xa8 },
	[PD_OP_recompute] = { "recompute", 0x5f, 0xa8, 0xa3 },
	[PD_OP_backward] = { "backward", 0xee, 0x84, 0x1c },
	[PD_OP_backward_input] = { "backward, inputs", 0xee, 0x84, 0x1c },
	[PD_OP_backward_weight] = { "backward, weights", 0xf0, 0xc2, 0x5a },
	[PD_OP_step] = { "update", 0x4d, 0x94, 0x45 },
	[PD_OP_load] = { "load", 0xba, 0xb0, 0xac },
	[PD_OP_recv_activation] = { NULL, 0x85, 0xb8, 0xe0 },
	[PD_OP_send_activation] = { "activations, in and out", 0x85, 0xb8, 0xe0 },
	[PD_OP_recv_gradient] = { NULL, 0xf7, 0xb2, 0x6a },
	[PD_OP_send_gradient] = { "gradients, in and out", 0xf7, 0xb2, 0x6a },
	[PD_OP_allreduce] = { "all-reduce", 0xa6, 0x6f, 0x97 },
	[PD_OP_norms] = { "norms", 0xd3, 0xa6, 0xc7 },
	[PD_OP_agree] = { "agree", 0x8a, 0x5a, 0x44 },
};

static const enum pd_op_kind legend[] = {
	PD_OP_forward, PD_OP_recompute, PD_OP_backward, PD_OP_backward_input,
	PD_OP_backward_weight, PD_OP_step, PD_OP_load, PD_OP_send_activation,
	PD_OP_send_gradient, PD_OP_allreduce, PD_OP_norms, PD_OP_agree,
};

/* Writes "#rrggbb" with a share of white. */
static const char *shade(enum pd_op_kind kind, double white, char buf[8])
{
	snprintf(buf, 8, "#%02x%02x%02x",
		 (unsigned)(style[kind].red + white * (255 - style[kind].red)) & 255,
		 (unsigned)(style[kind].green + white * (255 - style[kind].green)) & 255,
		 (unsigned)(style[kind].blue + white * (255 - style[kind].blue)) & 255);
	return buf;
}

/* Tells whether the colour is so light that its label must be dark. */
static bool is_light(enum pd_op_kind kind, double white)
{
	double luma = 0.3 * style[kind].red + 0.59 * style[kind].green + 0.11 * style[kind].blue;

	return luma + white * (255 - luma) > 165;
}

/* Returns a share of white that is higher for later stages of a rank; transfers have none. */
static double white_of(const struct pd_timeline *timeline, const struct pd_op *op)
{
	int count = timeline->stage_counts[op->rank];

	return count < 2 || pd_lane_of(op->kind) != PD_LANE_COMPUTE
		? 0 : PALEST * timeline->chunks[op->stage] / (count - 1);
}

static double x_of(const struct pd_time_window *window, int64_t ns)
{
	return LEFT + WIDTH * (double)(ns - window->begin_ns)
			      / (double)(window->end_ns - window->begin_ns);
}

static void put_bar(const struct pd_timeline *timeline, const struct pd_record *record,
		    const struct pd_time_window *window, double y, double height, FILE *out)
{
	const struct pd_op *op = &record->op;
	int64_t from = record->start_ns, to = record->end_ns;
	char label[40], from_text[32], length_text[32], colour[8];
	double x, width, white = white_of(timeline, op);

	if (to <= window->begin_ns || from >= window->end_ns || to == from)
		return;
	from = from < window->begin_ns ? window->begin_ns : from;
	to = to > window->end_ns ? window->end_ns : to;
	x = x_of(window, from);
	width = x_of(window, to) - x;
	fprintf(out, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"%s\"%s>"
		"<title>%s %s: from %s for %s</title></rect>\n", x, y, width, height,
		shade(op->kind, white, colour), width > 3 ? " class=\"b\"" : "",
		pd_op_short(op, label), pd_op_kind_name[op->kind],
		pd_show_time(record->start_ns - timeline->begin_ns, from_text),
		pd_show_time(record->end_ns - record->start_ns, length_text));
	if (height < ROW)
		return;
	snprintf(label, sizeof(label), "%" PRId64, op->microbatch);
	if ((double)strlen(label) * LETTER + 1 <= width)
		fprintf(out, "<text class=\"op%s\" x=\"%.2f\" y=\"%.1f\">%s</text>\n",
			is_light(op->kind, white) ? " dark" : "", x + width / 2, y + ROW - 5,
			label);
}

static double rank_height(const struct pd_timeline *timeline, int rank)
{
	double height = ROW + GAP;

	for (int l = PD_LANE_COMPUTE + 1; l < PD_LANES; l++)
		height += THIN * pd_timeline_lane(timeline, rank, l)->depth;
	return height;
}

static const char *row_name(const struct pd_timeline *timeline, int rank, char *buf, size_t size)
{
	char stages[64];

	snprintf(buf, size, "stage%s %s, rank %d", timeline->stage_counts[rank] > 1 ? "s" : "",
		 pd_timeline_stages(timeline, rank, ", ", stages, sizeof(stages)), rank);
	return buf;
}

/* Returns how far the longest name extends to the left of the column of names. */
static double overhang(const struct pd_timeline *timeline)
{
	double most = 0;

	for (int rank = 0; rank < timeline->rank_count; rank++) {
		char name[96];
		double length;

		row_name(timeline, rank, name, sizeof(name));
		length = LETTER * (double)strlen(name);
		most = length + 12 - LEFT > most ? length + 12 - LEFT : most;
	}
	return ceil(most);
}

/* Draws the ground of a row first, so that the lines of the axis are on top of it. */
static void put_ground(const struct pd_timeline *timeline, int rank, double y, FILE *out)
{
	char name[96];

	fprintf(out, "<rect x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%d\" fill=\"#f0f0f0\"/>\n"
		"<text class=\"rank\" x=\"%d\" y=\"%.1f\">%s</text>\n", LEFT, y, WIDTH, ROW,
		LEFT - 8, y + ROW - 5, row_name(timeline, rank, name, sizeof(name)));
}

static void put_rank(const struct pd_timeline *timeline, int rank,
		     const struct pd_time_window *window, double y, FILE *out)
{
	for (int l = 0; l < PD_LANES; l++) {
		const struct pd_lane *lane = pd_timeline_lane(timeline, rank, l);
		double height = l == PD_LANE_COMPUTE ? ROW : THIN;

		for (size_t i = 0; i < lane->count; i++)
			put_bar(timeline, lane->bars[i].record, window,
				y + (l == PD_LANE_COMPUTE ? 0 : height * lane->bars[i].depth),
				height, out);
		y += l == PD_LANE_COMPUTE ? height : height * lane->depth;
	}
}

/* Returns 1, 2 or 5 times a power of ten, which makes four to ten steps. */
static double tick_ns(const struct pd_time_window *window)
{
	double length = (double)(window->end_ns - window->begin_ns) / 10;
	double ten = pow(10, floor(log10(length > 1 ? length : 1)));

	return length <= ten ? ten : length <= 2 * ten ? 2 * ten : length <= 5 * ten ? 5 * ten
										      : 10 * ten;
}

static void put_axis(const struct pd_timeline *timeline, const struct pd_time_window *window,
		     double top, double y, FILE *out)
{
	static const struct { const char *name; double ns; } units[] = {
		{ "ns", 1 }, { "us", 1e3 }, { "ms", 1e6 }, { "s", 1e9 },
	};
	double step = tick_ns(window);
	int64_t zero = timeline->begin_ns;
	size_t unit = 0;

	while (unit + 1 < PD_COUNT(units) && step >= units[unit + 1].ns / 10)
		unit++;
	for (double t = ceil((double)(window->begin_ns - zero) / step) * step;
	     t <= (double)(window->end_ns - zero); t += step) {
		double x = x_of(window, zero + (int64_t)t);

		fprintf(out, "<line x1=\"%.2f\" x2=\"%.2f\" y1=\"%.1f\" y2=\"%.1f\"/>\n"
			"<text class=\"tick\" x=\"%.2f\" y=\"%.1f\">%.10g</text>\n", x, x, top,
			y + 3, x, y + 15, t / units[unit].ns);
	}
	fprintf(out, "<text class=\"rank tick\" x=\"%d\" y=\"%.1f\">time, %s</text>\n", LEFT - 8,
		y + 15, units[unit].name);
}

/* Draws the entries side by side, on as many lines as they need; returns the y below them. */
static double put_legend(const struct pd_view *views, int count, double y, FILE *out)
{
	bool used[PD_OP_KINDS] = { false };
	int shades = 1;
	double x = LEFT;
	char colour[8];

	for (int v = 0; v < count; v++) {
		const struct pd_timeline *timeline = views[v].timeline;

		if (timeline->rank_count && timeline->stage_counts[0] > shades)
			shades = timeline->stage_counts[0];
		for (size_t i = 0; i < timeline->trace->count; i++) {
			const struct pd_record *record = &timeline->trace->records[i];

			used[record->op.kind] |= record->end_ns > record->start_ns;
		}
	}
	for (size_t i = 0; i < PD_COUNT(legend); i++) {
		enum pd_op_kind kind = legend[i];
		int boxes = pd_lane_of(kind) == PD_LANE_COMPUTE ? shades : 1;
		double length = 10 * boxes + 20 + LETTER * (double)strlen(style[kind].name);

		if (!used[kind])
			continue;
		if (x + length > LEFT + WIDTH && x > LEFT) {
			x = LEFT;
			y += 15;
		}
		for (int c = 0; c < boxes; c++)
			fprintf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"10\" height=\"10\" "
				"fill=\"%s\"/>", x + 10 * c, y - 9,
				shade(kind, boxes > 1 ? PALEST * c / (boxes - 1) : 0, colour));
		fprintf(out, "<text x=\"%.1f\" y=\"%.1f\">%s</text>\n", x + 10 * boxes + 4, y,
			style[kind].name);
		x += length;
	}
	return y + 10;
}

/* Draws ranks by stage, so that replicas of a stage are neighbours. */
static double put_window(const struct pd_timeline *timeline, const struct pd_time_window *window,
			 double y, FILE *out)
{
	double top, bottom;

	if (window->what) {
		fprintf(out, "<text x=\"%d\" y=\"%.1f\">%s</text>\n", LEFT, y + 12, window->what);
		y += 18;
	}
	top = bottom = y;
	for (int i = 0; i < timeline->rank_count; i++) {
		put_ground(timeline, timeline->rows[i], bottom, out);
		bottom += rank_height(timeline, timeline->rows[i]);
	}
	put_axis(timeline, window, top, bottom, out);
	for (int i = 0; i < timeline->rank_count; i++) {
		put_rank(timeline, timeline->rows[i], window, y, out);
		y += rank_height(timeline, timeline->rows[i]);
	}
	return y + 26;
}

static void put_title(const struct pd_view *view, double y, FILE *out)
{
	const struct pd_plan *plan = view->timeline->trace->plan;

	fprintf(out, "<text x=\"%d\" y=\"%.1f\" font-size=\"13\">", LEFT, y);
	if (view->name) {
		pd_put_xml(view->name, out);
		fputs(": ", out);
	}
	pd_put_xml(plan->profile->name ? plan->profile->name : "", out);
	fprintf(out, "%s%s, %s, ", view->name ? ", " : ": ", pd_schedule_kind_name[plan->schedule],
		pd_weight_kind_name[plan->weights]);
	if (plan->microbatches > 1)
		fprintf(out, "%" PRId64 " microbatches, ", plan->microbatches);
	fprintf(out, "%d rank%s, %s</text>\n", view->timeline->rank_count,
		view->timeline->rank_count == 1 ? "" : "s",
		strcmp(view->timeline->trace->device, "sim") == 0 ? "simulated" : "measured");
}

/*
 * Draws a title above the legend, and titles above the windows of several views; returns the y
 * below all.
 */
static double put_body(const struct pd_view *views, int count, FILE *out)
{
	struct pd_time_window windows[count][2];
	int n = pd_view_windows(views, count, OPS_PER_ROW, windows);
	double y = count == 1 ? 36 : 18;

	if (count == 1)
		put_title(views, 18, out);
	y = put_legend(views, count, y, out);
	for (int w = 0; w < n; w++)
		for (int v = 0; v < count; v++) {
			if (count > 1) {
				y += 14;
				put_title(&views[v], y, out);
				y += 6;
			}
			y = put_window(views[v].timeline, &windows[v][w], y, out);
		}
	return y;
}

void pd_timeline_svg(const struct pd_view *views, int count, FILE *out)
{
	char *body;
	size_t size;
	FILE *memory = pd_mem_stream(&body, &size);
	double left = 0, y;

	for (int v = 0; v < count; v++)
		left = fmax(left, overhang(views[v].timeline));
	y = put_body(views, count, memory);     /* the height is known only afterwards */
	pd_mem_stream_close(memory);
	fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
		"viewBox=\"%.0f 0 %.0f %.0f\" font-family=\"Helvetica, Arial, sans-serif\" "
		"font-size=\"11\">\n"
		"<style>.b{stroke:#fff;stroke-width:.5}.op{fill:#fff;text-anchor:middle}"
		".dark{fill:#222}.tick{text-anchor:middle;fill:#555}.rank{text-anchor:end}"
		"line{stroke:#000;stroke-opacity:.15}</style>\n"
		"<rect x=\"%.0f\" width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
		left + LEFT + WIDTH + RIGHT, y, -left, left + LEFT + WIDTH + RIGHT, y, -left);
	fwrite(body, 1, size, out);
	fputs("</svg>\n", out);
	free(body);
}
