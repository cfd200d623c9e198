/* SPDX-License-Identifier: Apache-2.0 */
/* The timeline as a drawing: a row per rank, thin rows below it for what else goes on. */
#include "base/mem.h"
#include "base/opt.h"
#include "trace/timeline.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEFT 110
#define WIDTH 1000              /* of the time axis */
#define RIGHT 20
#define ROW 18                  /* of computation */
#define THIN 4                  /* of a transfer */
#define GAP 6
#define LETTER 6.2              /* width of a character of a label */
#define OPS_PER_ROW 48

static const struct { const char *name, *fill; } style[PD_OP_KINDS] = {
	[PD_OP_load] = { "load", "#bab0ac" },
	[PD_OP_recv_activation] = { "activation received", "#9ecae9" },
	[PD_OP_forward] = { "forward", "#4c78a8" },
	[PD_OP_send_activation] = { "activation sent", "#7fb0d8" },
	[PD_OP_recv_gradient] = { "gradient received", "#ffbf79" },
	[PD_OP_backward] = { "backward", "#f58518" },
	[PD_OP_backward_input] = { "backward, inputs", "#f58518" },
	[PD_OP_backward_weight] = { "backward, weights", "#e0ac2b" },
	[PD_OP_recompute] = { "recompute", "#72b7b2" },
	[PD_OP_send_gradient] = { "gradient sent", "#eb9b4a" },
	[PD_OP_allreduce] = { "all-reduce", "#b279a2" },
	[PD_OP_step] = { "update", "#54a24b" },
};

static void put_text(const char *text, FILE *out)
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

static double x_of(const struct pd_window *window, int64_t ns)
{
	return LEFT + WIDTH * (double)(ns - window->begin_ns)
			      / (double)(window->end_ns - window->begin_ns);
}

static void put_bar(const struct pd_timeline *timeline, const struct pd_record *record,
		    const struct pd_window *window, double y, double height, FILE *out)
{
	const struct pd_op *op = &record->op;
	int64_t from = record->start_ns, to = record->end_ns;
	char label[32], from_text[32], length_text[32];
	double x, width;

	if (to <= window->begin_ns || from >= window->end_ns || to == from)
		return;
	from = from < window->begin_ns ? window->begin_ns : from;
	to = to > window->end_ns ? window->end_ns : to;
	x = x_of(window, from);
	width = x_of(window, to) - x;
	fprintf(out, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"%s\"%s>"
		"<title>%s %s: from %s for %s</title></rect>\n", x, y, width, height,
		style[op->kind].fill, width > 3 ? " class=\"b\"" : "", pd_op_short(op, label),
		pd_op_kind_name[op->kind],
		pd_show_time(record->start_ns - timeline->begin_ns, from_text),
		pd_show_time(record->end_ns - record->start_ns, length_text));
	if (height < ROW)
		return;
	snprintf(label, sizeof(label), "%" PRId64, op->microbatch);
	if ((double)strlen(label) * LETTER <= width)
		fprintf(out, "<text class=\"op\" x=\"%.2f\" y=\"%.1f\">%s</text>\n",
			x + width / 2, y + ROW - 5, label);
}

/* Draws a rank's lanes from y down, each rank as tall as the others; returns the next y. */
static double put_rank(const struct pd_timeline *timeline, int rank,
		       const struct pd_window *window, const int *depth, double y, FILE *out)
{
	fprintf(out, "<text class=\"rank\" x=\"%d\" y=\"%.1f\">stage %d, rank %d</text>\n",
		LEFT - 8, y + ROW - 5, timeline->stages[rank], rank);
	for (int l = 0; l < PD_LANES; l++) {
		const struct pd_lane *lane = pd_timeline_lane(timeline, rank, l);
		double height = l == PD_LANE_COMPUTE ? ROW : THIN;

		if (l == PD_LANE_COMPUTE)
			fprintf(out, "<rect x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%.1f\" "
				"fill=\"#f2f2f2\"/>\n", LEFT, y, WIDTH, height * depth[l]);
		for (size_t i = 0; i < lane->count; i++)
			put_bar(timeline, lane->bars[i].record, window,
				y + height * lane->bars[i].depth, height, out);
		y += height * depth[l];
	}
	return y + GAP;
}

/* 1, 2 or 5 times a power of ten, so that there are four to ten steps. */
static double tick_ns(const struct pd_window *window)
{
	double length = (double)(window->end_ns - window->begin_ns) / 10;
	double ten = pow(10, floor(log10(length > 1 ? length : 1)));

	return length <= ten ? ten : length <= 2 * ten ? 2 * ten : length <= 5 * ten ? 5 * ten
										      : 10 * ten;
}

static void put_axis(const struct pd_timeline *timeline, const struct pd_window *window,
		     double top, double y, FILE *out)
{
	double step = tick_ns(window);
	int64_t zero = timeline->begin_ns;
	char text[32];

	for (double t = ceil((double)(window->begin_ns - zero) / step) * step;
	     t <= (double)(window->end_ns - zero); t += step) {
		double x = x_of(window, zero + (int64_t)t);

		fprintf(out, "<line x1=\"%.2f\" x2=\"%.2f\" y1=\"%.1f\" y2=\"%.1f\"/>\n"
			"<text class=\"tick\" x=\"%.2f\" y=\"%.1f\">%s</text>\n", x, x, top, y + 4,
			x, y + 16, pd_show_time((int64_t)t, text));
	}
}

static void put_legend(const struct pd_timeline *timeline, double y, FILE *out)
{
	bool used[PD_OP_KINDS] = { false };
	double x = LEFT;

	for (size_t i = 0; i < timeline->trace->count; i++) {
		const struct pd_record *record = &timeline->trace->records[i];

		used[record->op.kind] |= record->end_ns > record->start_ns;
	}
	for (int k = 0; k < PD_OP_KINDS; k++) {
		if (!used[k])
			continue;
		fprintf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"10\" height=\"10\" fill=\"%s\"/>"
			"<text x=\"%.1f\" y=\"%.1f\">%s</text>\n", x, y - 9, style[k].fill,
			x + 14, y, style[k].name);
		x += 30 + LETTER * (double)strlen(style[k].name);
	}
}

/* Ranks by stage: replicas of a stage are neighbours. */
static double put_window(const struct pd_timeline *timeline, const struct pd_window *window,
			 const int *depth, double y, FILE *out)
{
	const struct pd_plan *plan = timeline->trace->plan;
	double top;

	if (window->what) {
		fprintf(out, "<text x=\"%d\" y=\"%.1f\">%s</text>\n", LEFT, y + 12, window->what);
		y += 18;
	}
	top = y;
	for (int s = 0; s < plan->stage_count; s++)
		for (int i = 0; i < plan->stages[s].replicas; i++)
			y = put_rank(timeline, plan->stages[s].ranks[i], window, depth, y, out);
	put_axis(timeline, window, top, y, out);
	return y + 28;
}

void pd_timeline_svg(const struct pd_timeline *timeline, FILE *out)
{
	const struct pd_plan *plan = timeline->trace->plan;
	int depth[PD_LANES] = { [PD_LANE_COMPUTE] = 1 }, n;
	struct pd_window windows[2];
	double rank_height = GAP, height, y = 46;

	for (int rank = 0; rank < timeline->rank_count; rank++)
		for (int l = 0; l < PD_LANES; l++)
			if (pd_timeline_lane(timeline, rank, l)->depth > depth[l])
				depth[l] = pd_timeline_lane(timeline, rank, l)->depth;
	for (int l = 0; l < PD_LANES; l++)
		rank_height += depth[l] * (l == PD_LANE_COMPUTE ? ROW : THIN);
	n = pd_timeline_windows(timeline, OPS_PER_ROW, windows);
	height = y + n * (timeline->rank_count * rank_height + 28 + (n > 1 ? 18 : 0));
	fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" "
		"viewBox=\"0 0 %d %.0f\" font-family=\"sans-serif\" font-size=\"11\">\n"
		"<style>.b{stroke:#fff;stroke-width:.5}.op{fill:#fff;text-anchor:middle}"
		".rank{text-anchor:end}.tick{text-anchor:middle;fill:#555}line{stroke:#000;stroke-opacity:.12}</style>\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
		"<text x=\"%d\" y=\"18\" font-size=\"13\">", LEFT + WIDTH + RIGHT, height,
		LEFT + WIDTH + RIGHT, height, LEFT);
	put_text(plan->profile->name ? plan->profile->name : "", out);
	fprintf(out, ": %s, %s, %d ranks, %s</text>\n", pd_schedule_kind_name[plan->schedule],
		pd_weight_kind_name[plan->weights], timeline->rank_count,
		strcmp(timeline->trace->device, "sim") == 0 ? "simulated" : "measured");
	put_legend(timeline, 36, out);
	for (int w = 0; w < n; w++)
		y = put_window(timeline, &windows[w], depth, y, out);
	fputs("</svg>\n", out);
}
