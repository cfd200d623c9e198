/* SPDX-License-Identifier: Apache-2.0 */
/* Draws stages as cards in a row, with the parts of their replicas' time. */
#include "explain/draw_svg.h"

#include "base/mem.h"
#include "base/opt.h"
#include "base/svg.h"

#include <stdlib.h>
#include <string.h>

#define CARD 198                /* width of a stage */
#define CARD_HEIGHT 69          /* without a line for tensors that skip stages */
#define CARD_GAP 38             /* room for an arrow */
#define CARDS_PER_ROW 4
#define MOST_CARDS 48
#define MOST_CHARACTERS 14      /* most characters of a layer's name */

/* Writes a layer's name, cut to fit, but not inside a character. */
static void put_name(const struct pd_drawing *d, int layer)
{
	char *name = pd_strdup(d->plan->profile->layers[layer].name);
	int characters = 0;

	for (char *c = name; *c; c++)
		if ((*c & 0xc0) != 0x80 && characters++ == MOST_CHARACTERS) {
			*c = '\0';
			break;
		}
	pd_svg_put(name, d->out);
	free(name);
}

/* Writes "conv1 ... fc3". */
static void put_layers(const struct pd_drawing *d, const struct pd_stage *stage)
{
	put_name(d, stage->first_layer);
	if (stage->layer_count == 1)
		return;
	fputs(" \xe2\x80\xa6 ", d->out);
	put_name(d, stage->first_layer + stage->layer_count - 1);
}

static void put_bar(const struct pd_drawing *d, int s, double x, double y)
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
				"fill=\"%s\"/>", from, y, part, pd_draw_kinds[i].colour);
		from += part;
	}
	fprintf(d->out, "<text x=\"%.1f\" y=\"%.1f\">%.0f %%</text>\n", end + 5, y + 8,
		100 * pd_usage_part(d->usage, pd_usage_busy_ns(d->usage, s)));
}

/* Writes what goes on to stages other than the next. */
static void put_skips(const struct pd_drawing *d, int s, double x, double y)
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

static void put_card(const struct pd_drawing *d, int s, int height, double x, double y)
{
	const struct pd_stage *stage = &d->plan->stages[s];
	char colour[8], bytes[32], times[32] = "";

	if (stage->replicas > 1)
		snprintf(times, sizeof(times), " \xc3\x97 %d", stage->replicas);
	fprintf(d->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\" fill=\"#fff\" "
		"stroke=\"#888\"/><rect x=\"%.1f\" y=\"%.1f\" width=\"6\" height=\"%d\" "
		"fill=\"%s\"/>\n<text x=\"%.1f\" y=\"%.1f\" font-weight=\"bold\">stage %d%s</text>"
		"<text class=\"e\" x=\"%.1f\" y=\"%.1f\">%d layer%s</text>\n<text class=\"s\" "
		"x=\"%.1f\" y=\"%.1f\">", x, y, CARD, height, x, y, height,
		pd_draw_colour(s, colour), x + 13, y + 16, s, times, x + CARD - 8, y + 16,
		stage->layer_count, stage->layer_count > 1 ? "s" : "", x + 13, y + 31);
	put_layers(d, stage);
	fprintf(d->out, "</text>\n");
	put_bar(d, s, x + 13, y + 38);
	fprintf(d->out, "<text class=\"s\" x=\"%.1f\" y=\"%.1f\">%s, %d in flight%s</text>\n",
		x + 13, y + 61, pd_show_bytes(stage->memory_bytes, bytes),
		d->usage->stages[s].in_flight, stage->recompute ? ", recomputed" : "");
	put_skips(d, s, x + 13, y + 76);
}

static int64_t bytes_between(const struct pd_drawing *d, int s)
{
	const struct pd_wiring *wiring = d->usage->schedule->wiring;

	for (int i = 0; i < wiring->out_count[s]; i++)
		if (wiring->links[wiring->out[s][i]].to == s + 1)
			return wiring->links[wiring->out[s][i]].bytes;
	return 0;
}

/* Draws an arrow between two cards, or behind the last of a row. */
static void put_arrow(const struct pd_drawing *d, int s, double x, double y)
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

/* Tells whether anything skips the next stage. */
static bool skips(const struct pd_drawing *d)
{
	const struct pd_wiring *wiring = d->usage->schedule->wiring;

	for (int k = 0; k < wiring->link_count; k++)
		if (wiring->links[k].to > wiring->links[k].from + 1)
			return true;
	return false;
}

double pd_draw_stages(const struct pd_drawing *d, double y)
{
	int height = CARD_HEIGHT + (skips(d) ? 15 : 0);
	int count = d->plan->stage_count <= MOST_CARDS ? d->plan->stage_count : MOST_CARDS;

	for (int s = 0; s < count; s++) {
		double x = SVG_MARGIN + s % CARDS_PER_ROW * (CARD + CARD_GAP);
		double top = y + s / CARDS_PER_ROW * (height + 14);
		bool row_ends = (s + 1) % CARDS_PER_ROW == 0;

		put_card(d, s, height, x, top);
		if (s + 1 < d->plan->stage_count && !row_ends)
			put_arrow(d, s, x + CARD, top + 30);
		else if (s + 1 < d->plan->stage_count)
			fprintf(d->out, "<text class=\"s\" x=\"%.1f\" y=\"%.1f\">\xe2\x86\xb5</text>\n",
				x + CARD + 2, top + 34);
	}
	y += (count + CARDS_PER_ROW - 1) / CARDS_PER_ROW * (height + 14);
	if (count < d->plan->stage_count) {
		fprintf(d->out, "<text x=\"%d\" y=\"%.1f\">and %d more stages</text>\n", SVG_MARGIN,
			y + 8, d->plan->stage_count - count);
		y += 18;
	}
	return y;
}
