/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/pane.h"

#include "base/mem.h"
#include "base/opt.h"
#include "trace/colours.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROW 18                  /* height of a row for computation */
#define THIN 4                  /* height of a row for transfers */
#define GAP 6
#define LEAST 1.0               /* width of a bar, be it shorter */
#define PADDING 2               /* around a label */
#define LABELLED 0.9            /* the part of a row's operations that must have room for theirs */

double pd_pane_label(int64_t microbatch, char label[24])
{
	snprintf(label, 24, "%" PRId64, microbatch);
	return pd_svg_text_width(label, PD_SVG_SMALL) + PADDING;
}

/* ---- bars ---- */

static double x_of(const struct pd_pane *pane, int64_t ns)
{
	return PD_PANE_LEFT + (double)pd_window_shown(pane->window, ns) / pane->ns_per_pixel;
}

static double width_of(const struct pd_pane *pane, const struct pd_record *record)
{
	return x_of(pane, record->end_ns) - x_of(pane, record->start_ns);
}

/* Tells whether a bar is in the window and long enough; updates and transfers may be too short. */
static bool is_drawn(const struct pd_pane *pane, const struct pd_record *record)
{
	double width = pd_window_has(pane->window, record) ? width_of(pane, record) : 0;
	bool always = pd_op_computes(record->op.kind) && record->op.kind != PD_OP_step;

	if (width >= PD_PANE_VISIBLE || (width > 0 && always))
		return true;
	pane->picture->left_out |= width > 0;
	return false;
}

/* Returns the colour of an operation; of the stages of a rank, later ones are darker. */
static struct pd_colour colour_of(const struct pd_timeline *timeline, const struct pd_op *op)
{
	if (op->evaluate && op->kind == PD_OP_forward)
		return pd_evaluation_colour();
	return pd_op_colour(op->kind, timeline->chunks[op->stage],
			    pd_op_computes(op->kind) ? timeline->stage_counts[op->rank] : 1);
}

/* Returns the middle of a bar, or of its part before time is left out. */
static double middle_of(const struct pd_pane *pane, const struct pd_record *record)
{
	const struct pd_window *window = pane->window;
	int64_t end = record->end_ns;

	for (int i = window->cut_count - 1; i >= 0; i--)
		if (window->cuts[i].begin_ns > record->start_ns && window->cuts[i].begin_ns < end)
			end = window->cuts[i].begin_ns;
	return (x_of(pane, record->start_ns) + x_of(pane, end)) / 2;
}

static void put_bar(const struct pd_pane *pane, const struct pd_record *record, double y, double height,
		    bool labelled)
{
	const struct pd_op *op = &record->op;
	struct pd_colour ground = colour_of(pane->timeline, op);
	double x = x_of(pane, record->start_ns), width = width_of(pane, record);
	char label[40], from[32], length[32], colour[8];
	FILE *out = pane->picture->out;

	pane->picture->used[op->kind] |= !op->evaluate || op->kind != PD_OP_forward;
	pane->picture->evaluates |= op->evaluate && op->kind == PD_OP_forward;
	fprintf(out, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"%s\"%s>"
		"<title>%s %s%s: from %s for %s</title></rect>\n", x, y, fmax(width, LEAST), height,
		pd_show_colour(ground, colour), width > 3 ? " class=\"b\"" : "",
		pd_op_short(op, label), pd_op_kind_name[op->kind],
		op->evaluate ? ", evaluation" : "",
		pd_show_time(record->start_ns - pane->timeline->begin_ns, from),
		pd_show_time(record->end_ns - record->start_ns, length));
	if (labelled && pd_pane_label(op->microbatch, label) <= width)
		fprintf(out, "<text class=\"s m\" fill=\"%s\" x=\"%.2f\" y=\"%.1f\">%s</text>\n",
			pd_show_colour(pd_colour_on(ground), colour), middle_of(pane, record), y + ROW - 5,
			label);
}

/*
 * Decides for all of a row: nearly all operations that are in the window as a whole have room.  Those that
 * are shorter than half a label do not count.
 */
static bool is_labelled(const struct pd_pane *pane, const struct pd_lane *lane)
{
	int whole = 0, fit = 0;

	for (size_t i = 0; i < lane->count; i++) {
		const struct pd_record *record = lane->bars[i].record;
		char label[24];
		double room, width;

		if (!pd_window_has_whole(pane->window, record))
			continue;
		room = pd_pane_label(record->op.microbatch, label);
		width = width_of(pane, record);
		whole += width >= room / 2;
		fit += width >= room;
	}
	return fit >= LABELLED * whole;
}

/* Returns where the thin rows of a lane are: per depth its number among those with a bar, or -1. */
static int *thin_rows(const struct pd_pane *pane, const struct pd_lane *lane, int *count_p)
{
	int *rows = pd_calloc((size_t)lane->depth, sizeof(*rows));

	for (int d = 0; d < lane->depth; d++)
		rows[d] = -1;
	for (size_t i = 0; i < lane->count; i++)
		if (is_drawn(pane, lane->bars[i].record))
			rows[lane->bars[i].depth] = 0;
	*count_p = 0;
	for (int d = 0; d < lane->depth; d++)
		if (rows[d] == 0)
			rows[d] = (*count_p)++;
	return rows;
}

static double rank_height(const struct pd_pane *pane, int rank)
{
	double height = ROW + GAP;

	for (int l = PD_LANE_COMPUTE + 1; l < PD_TRACK_LANES; l++) {
		int count;

		free(thin_rows(pane, pd_timeline_lane(pane->timeline, rank, l), &count));
		height += THIN * count;
	}
	return height;
}

static void put_rank(const struct pd_pane *pane, int rank, double y)
{
	for (int l = 0; l < PD_TRACK_LANES; l++) {
		const struct pd_lane *lane = pd_timeline_lane(pane->timeline, rank, l);
		bool main = l == PD_LANE_COMPUTE, labelled = main && is_labelled(pane, lane);
		int count, *rows = thin_rows(pane, lane, &count);

		for (size_t i = 0; i < lane->count; i++) {
			const struct pd_bar *bar = &lane->bars[i];
			double high = !main ? THIN : pd_lane_pairs(lane, i) ? ROW / 2.0 : ROW;

			if (is_drawn(pane, bar->record))
				put_bar(pane, bar->record, y + high * (main ? bar->depth : rows[bar->depth]), high,
					labelled && high == ROW);
		}
		y += main ? ROW : THIN * count;
		free(rows);
	}
}

/* ---- names of rows, and the axis ---- */

static const char *row_name(const struct pd_timeline *timeline, int rank, char *buf, size_t size)
{
	char stages[64], ranks[24];

	pd_timeline_ranks(timeline, rank, ranks, sizeof(ranks));
	snprintf(buf, size, "stage%s %s, rank%s %s", timeline->stage_counts[rank] > 1 ? "s" : "",
		 pd_timeline_stages(timeline, rank, ", ", stages, sizeof(stages)),
		 strpbrk(ranks, "-,") ? "s" : "", ranks);
	return buf;
}

/* Returns how far the longest name extends to the left of the column of names. */
double pd_pane_overhang(const struct pd_timeline *timeline)
{
	double most = 0;

	for (int i = 0; i < timeline->row_count; i++) {
		char name[128];

		row_name(timeline, timeline->rows[i], name, sizeof(name));
		most = fmax(most, pd_svg_text_width(name, PD_SVG_FONT) + 12 - PD_PANE_LEFT);
	}
	return ceil(most);
}

/* Draws the ground of a row first, so that the lines of the axis are on top of it. */
static void put_ground(const struct pd_pane *pane, int rank, double y)
{
	char name[128], colour[8];

	fprintf(pane->picture->out, "<rect x=\"%d\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"%s\"/>\n"
		"<text class=\"e\" x=\"%d\" y=\"%.1f\">%s</text>\n", PD_PANE_LEFT, y,
		x_of(pane, pane->window->end_ns) - PD_PANE_LEFT, ROW, pd_show_colour(PD_IDLE_COLOUR, colour),
		PD_PANE_LEFT - 8, y + ROW - 5, row_name(pane->timeline, rank, name, sizeof(name)));
}

/* Returns 1, 2 or 5 times a power of ten, which makes four to ten steps of a whole line. */
static double tick_ns(const struct pd_pane *pane)
{
	double length = pane->ns_per_pixel * PD_PANE_WIDTH / 10;
	double ten = pow(10, floor(log10(length > 1 ? length : 1)));

	return length <= ten ? ten : length <= 2 * ten ? 2 * ten : length <= 5 * ten ? 5 * ten
										      : 10 * ten;
}

/* Returns the first moment from ns on that is not left out. */
static int64_t not_cut(const struct pd_window *window, int64_t ns)
{
	for (int i = 0; i < window->cut_count; i++)
		if (ns > window->cuts[i].begin_ns && ns < window->cuts[i].end_ns)
			ns = window->cuts[i].end_ns;
	return ns;
}

/* Writes a number below the axis, if the one before ends at least at clear; returns where it ends. */
static double put_number(const struct pd_pane *pane, double x, double y, double number, double clear)
{
	char text[32];
	double half;

	snprintf(text, sizeof(text), "%.10g", number);
	half = pd_svg_text_width(text, PD_SVG_FONT) / 2;
	if (x - half < clear)
		return clear;
	fprintf(pane->picture->out, "<text class=\"m q\" x=\"%.2f\" y=\"%.1f\">%s</text>\n", x, y, text);
	return x + half + 4;
}

/* Draws a line at each step; if there is none, the beginning has a number. */
static void put_axis(const struct pd_pane *pane, double top, double y)
{
	static const struct { const char *name; double ns; } units[] = {
		{ "ns", 1 }, { "us", 1e3 }, { "ms", 1e6 }, { "s", 1e9 },
	};
	const struct pd_window *window = pane->window;
	double step = tick_ns(pane), clear = PD_PANE_LEFT - 20;
	int64_t zero = pane->timeline->begin_ns;
	FILE *out = pane->picture->out;
	size_t unit = 0;
	bool any = false;

	while (unit + 1 < PD_COUNT(units) && step >= units[unit + 1].ns / 10)
		unit++;
	for (double t = (double)(window->begin_ns - zero); ; t += step) {
		t = ceil((double)(not_cut(window, zero + (int64_t)t) - zero) / step) * step;
		if (t > (double)(window->end_ns - zero))
			break;
		fprintf(out, "<path d=\"M%.2f %.1fV%.1f\" stroke=\"#000\" stroke-opacity=\".15\"/>\n",
			x_of(pane, zero + (int64_t)t), top, y + 3);
		clear = put_number(pane, x_of(pane, zero + (int64_t)t), y + 15, t / units[unit].ns, clear);
		any = true;
	}
	if (!any)
		put_number(pane, PD_PANE_LEFT, y + 15, (double)(window->begin_ns - zero) / units[unit].ns,
			   clear);
	fprintf(out, "<text class=\"e q\" x=\"%d\" y=\"%.1f\">time, %s</text>\n", PD_PANE_LEFT - 24, y + 15,
		units[unit].name);
}

/* Draws a jagged strip through all rows where time is left out. */
static void put_cuts(const struct pd_pane *pane, double top, double bottom)
{
	static const struct { double dx; const char *stroke; int width; } strokes[] = {
		{ 0, "#fff", 5 }, { -3, "#555", 1 }, { 3, "#555", 1 },
	};

	for (int i = 0; i < pane->window->cut_count; i++) {
		const struct pd_cut *cut = &pane->window->cuts[i];
		char time[32];

		fprintf(pane->picture->out, "<g><title>%s left out</title>",
			pd_show_time(cut->end_ns - cut->begin_ns, time));
		for (size_t k = 0; k < PD_COUNT(strokes); k++) {
			fprintf(pane->picture->out, "<path stroke=\"%s\" stroke-width=\"%d\" d=\"M%.1f %.1f",
				strokes[k].stroke, strokes[k].width,
				x_of(pane, cut->begin_ns) + strokes[k].dx - 2, top - 3);
			for (double y = top - 3, way = 4; y < bottom; y += 5, way = -way)
				fprintf(pane->picture->out, "l%.0f 5", way);
			fputs("\"/>", pane->picture->out);
		}
		fputs("</g>\n", pane->picture->out);
	}
}

/* Draws ranks by stage, so that replicas of a stage are neighbours; returns the y below them. */
double pd_pane_put(const struct pd_pane *pane, double y)
{
	const struct pd_timeline *timeline = pane->timeline;
	double top, bottom;

	if (*pane->window->what) {
		fprintf(pane->picture->out, "<text x=\"%d\" y=\"%.1f\">%s</text>\n", PD_PANE_LEFT, y + 12,
			pane->window->what);
		y += 18;
	}
	top = bottom = y;
	for (int i = 0; i < timeline->row_count; i++) {
		put_ground(pane, timeline->rows[i], bottom);
		bottom += rank_height(pane, timeline->rows[i]);
	}
	put_axis(pane, top, bottom);
	for (int i = 0; i < timeline->row_count; i++) {
		put_rank(pane, timeline->rows[i], y);
		y += rank_height(pane, timeline->rows[i]);
	}
	put_cuts(pane, top, bottom);
	return y + 26;
}
