/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Draws cards in a row: a stage with its replicas or, if ranks have several stages, a rank with all of
 * its stages.  A card has the parts of a rank's time.
 */
#include "explain/draw_svg.h"

#include "base/mem.h"
#include "base/opt.h"
#include "trace/colours.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CARD 198                /* width of a card */
#define CARD_GAP 38             /* room for an arrow */
#define CARDS_PER_ROW 4
#define MOST_CARDS 64
#define MOST_LINES 16           /* stages of a rank that are listed */
#define LINE 15
#define INSET 13
#define CHARACTER 5.6           /* mean width of a name's, in a usual font */

const enum pd_op_kind pd_draw_kinds[4] = { PD_OP_forward, PD_OP_backward, PD_OP_step, PD_OP_allreduce };

/* A card has a list of stages: its first one, and the next ones of the same ranks. */
static int stage_count(const struct pd_drawing *d, int first)
{
	int count = 0;

	for (int s = first; s >= 0; s = d->next_stage[s])
		count++;
	return count;
}

/* Returns the stages with which cards begin, and how many there are; free() them. */
static int *cards_of(const struct pd_drawing *d, int *count_p)
{
	int *cards = pd_calloc((size_t)d->plan->stage_count, sizeof(*cards)), count = 0;

	for (int s = 0; s < d->plan->stage_count; s++)
		if (d->stage_of[d->plan->stages[s].ranks[0]] == s)
			cards[count++] = s;
	*count_p = count;
	return cards;
}

/* Writes the names of a stage's layers, without what the names of all layers begin with. */
static void put_layers(const struct pd_drawing *d, int s, double width)
{
	const struct pd_name_style style = { " \xe2\x80\x93 ", "\xe2\x80\xa6", (int)(width / CHARACTER) };
	char *names = pd_show_layers(d->plan->profile, &d->plan->stages[s],
				     pd_layers_prefix(d->plan->profile), &style);

	pd_svg_put(names, d->out);
	free(names);
}

/* Draws the parts of a rank's time, for all of its stages. */
static void put_bar(struct pd_drawing *d, int first, double x, double y)
{
	double ns[PD_COUNT(pd_draw_kinds)] = { 0 }, busy = 0;
	double width = CARD - 56, from = x, end = x + width;
	char colour[8];

	for (int s = first; s >= 0; s = d->next_stage[s]) {
		const struct pd_stage_usage *at = &d->usage->stages[s];

		ns[0] += at->forward_ns;
		ns[1] += at->backward_ns;
		ns[2] += at->update_ns;
		ns[3] += at->allreduce_ns;
		busy += pd_usage_busy_ns(d->usage, s);
	}
	fprintf(d->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"8\" fill=\"%s\"/>", x, y,
		width, pd_show_colour(PD_IDLE_COLOUR, colour));
	for (size_t i = 0; i < PD_COUNT(pd_draw_kinds); i++) {
		double part = fmin(pd_usage_part(d->usage, ns[i]) * width, end - from);

		if (part < 0.5)
			continue;
		d->kinds[i] = true;
		fprintf(d->out, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"8\" fill=\"%s\"/>",
			from, y, part, pd_show_colour(pd_op_colour(pd_draw_kinds[i], 0, 1), colour));
		from += part;
	}
	fprintf(d->out, "<text class=\"s\" x=\"%.1f\" y=\"%.1f\">%.0f %%</text>\n", end + 5, y + 8,
		100 * pd_usage_part(d->usage, busy));
}

/* Writes what goes on from a card's stages to others than the next. */
static void put_skips(const struct pd_drawing *d, int first, double x, double y)
{
	const struct pd_wiring *wiring = d->usage->schedule->wiring;
	int64_t sum = 0;
	int last = -1;
	char bytes[32];

	for (int s = first; s >= 0; s = d->next_stage[s])
		for (int i = 0; i < wiring->out_count[s]; i++) {
			const struct pd_link *link = &wiring->links[wiring->out[s][i]];

			if (link->to > s + 1 && link->bytes > 0) {
				sum += link->bytes;
				last = link->to > last ? link->to : last;
			}
		}
	if (last >= 0)
		fprintf(d->out, "<text class=\"s q\" x=\"%.1f\" y=\"%.1f\">%s past it, up to stage "
			"%d</text>\n", x, y, pd_show_bytes(sum, bytes), last);
}

/* Writes a stage's number and ranks, or a rank's number and how many stages it has. */
static void put_head(const struct pd_drawing *d, int first, double x, double y)
{
	const struct pd_stage *stage = &d->plan->stages[first];
	int several = stage_count(d, first) > 1;
	char ranks[28], times[32] = "", right[40];
	const char *s = stage->replicas > 1 ? "s" : "";

	pd_show_ranks(stage, ranks, sizeof(ranks));
	if (stage->replicas > 1)
		snprintf(times, sizeof(times), " \xc3\x97 %d", stage->replicas);
	if (several)
		snprintf(right, sizeof(right), "%d stages", stage_count(d, first));
	else
		snprintf(right, sizeof(right), "rank%s %s", s, ranks);
	fprintf(d->out, "<text x=\"%.1f\" y=\"%.1f\" font-weight=\"bold\">", x + INSET, y);
	if (several)
		fprintf(d->out, "rank%s %s", s, ranks);
	else
		fprintf(d->out, "stage %d%s", first, times);
	fprintf(d->out, "</text><text class=\"e q\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", x + CARD - 8, y,
		right);
}

/* Writes one line for each stage of a card, and returns the y below. */
static double put_lines(const struct pd_drawing *d, int first, double x, double y)
{
	int count = stage_count(d, first), line = 0;
	char colour[8];

	for (int s = first; s >= 0 && line < MOST_LINES; s = d->next_stage[s], line++) {
		double room = CARD - INSET - 8;
		char head[16] = "";

		if (count > 1) {
			fprintf(d->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"6\" height=\"%d\" "
				"fill=\"%s\"/>", x, y - LINE + 4, LINE,
				pd_show_colour(pd_draw_colour(s), colour));
			snprintf(head, sizeof(head), "%d: ", s);
		}
		fprintf(d->out, "<text class=\"s q\" x=\"%.1f\" y=\"%.1f\">%s", x + INSET, y, head);
		put_layers(d, s, room - CHARACTER * (double)strlen(head));
		fputs("</text>\n", d->out);
		y += LINE;
	}
	if (count > MOST_LINES) {
		fprintf(d->out, "<text class=\"s q\" x=\"%.1f\" y=\"%.1f\">and %d more</text>\n", x + INSET,
			y, count - MOST_LINES);
		y += LINE;
	}
	return y;
}

/* Returns what to say of the first stage of a card that recomputes; "": none does. */
static const char *recomputed(const struct pd_drawing *d, int first, char text[PD_RECOMPUTED_TEXT])
{
	int s = first;

	while (s >= 0 && !d->plan->stages[s].recompute)
		s = d->next_stage[s];
	return s >= 0 ? pd_show_recomputed(d->plan, s, "", text) : "";
}

/* Writes the kinds of devices of a card's ranks, where the machine has several; returns the line below. */
static double put_kinds(const struct pd_drawing *d, int first, double x, double y)
{
	const struct pd_name_style style = { "", "...", (int)((CARD - 2 * INSET) / CHARACTER) - 3 };
	char kinds[200], *shown;

	if (!*pd_show_kinds(d->plan, &d->plan->stages[first], kinds, sizeof(kinds)))
		return y;
	shown = pd_show_name(kinds, &style);
	fprintf(d->out, "<text class=\"s q\" x=\"%.1f\" y=\"%.1f\">on ", x, y + LINE);
	pd_svg_put(shown, d->out);
	fputs("</text>\n", d->out);
	free(shown);
	return y + LINE;
}

static void put_card(struct pd_drawing *d, int first, double height, double x, double y)
{
	char colour[8], bytes[32], again[PD_RECOMPUTED_TEXT];
	int layers = 0;
	double at;

	for (int s = first; s >= 0; s = d->next_stage[s])
		layers += d->plan->stages[s].layer_count;

	fprintf(d->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%.1f\" fill=\"#fff\" "
		"stroke=\"#888\"/>\n", x, y, CARD, height);
	if (d->next_stage[first] < 0)
		fprintf(d->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"6\" height=\"%.1f\" fill=\"%s\"/>", x,
			y, height, pd_show_colour(pd_draw_colour(first), colour));
	put_head(d, first, x, y + 16);
	at = put_lines(d, first, x, y + 31);
	put_bar(d, first, x + INSET, at - 8);
	at += LINE;
	fprintf(d->out, "<text class=\"s q\" x=\"%.1f\" y=\"%.1f\">%d layer%s, %s, %d in flight</text>\n",
		x + INSET, at, layers, layers > 1 ? "s" : "",
		pd_show_device_bytes(d->plan, d->plan->stages[first].memory_bytes, bytes),
		d->usage->stages[first].in_flight);
	at = put_kinds(d, first, x + INSET, at);
	if (*recomputed(d, first, again))
		fprintf(d->out, "<text class=\"s q\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", x + INSET,
			at += LINE, again);
	put_skips(d, first, x + INSET, at + LINE);
}

/* Returns what goes from the stages of one card to those that follow them, on another. */
static int64_t bytes_between(const struct pd_drawing *d, int from, int to)
{
	const struct pd_wiring *wiring = d->usage->schedule->wiring;
	int64_t sum = 0;

	for (int s = from; s >= 0; s = d->next_stage[s])
		for (int t = to; t >= 0; t = d->next_stage[t])
			for (int i = 0; t == s + 1 && i < wiring->out_count[s]; i++)
				if (wiring->links[wiring->out[s][i]].to == t)
					sum += wiring->links[wiring->out[s][i]].bytes;
	return sum;
}

/* Draws an arrow between two cards. */
static void put_arrow(const struct pd_drawing *d, int64_t between, double x, double y)
{
	char bytes[32], *unit;

	fprintf(d->out, "<path d=\"M%.1f %.1fh%d\" stroke=\"#444\" stroke-width=\"1.2\" "
		"marker-end=\"url(#a)\" marker-start=\"url(#b)\"/>", x + 5, y, CARD_GAP - 10);
	pd_show_bytes(between, bytes);
	unit = strchr(bytes, ' ');
	if (unit)
		*unit++ = 0;
	fprintf(d->out, "<text class=\"s m\" x=\"%.1f\" y=\"%.1f\">%s</text><text class=\"s m\" "
		"x=\"%.1f\" y=\"%.1f\">%s</text>\n", x + CARD_GAP / 2.0, y - 6, bytes,
		x + CARD_GAP / 2.0, y + 14, unit ? unit : "");
}

/* Writes what goes to the first card of the next row, or from the last card back to the first one. */
static void put_turn(const struct pd_drawing *d, int64_t bytes, bool back, double x, double y)
{
	char text[32];

	fprintf(d->out, "<text class=\"s q e\" x=\"%.1f\" y=\"%.1f\">%s %s</text>\n", x, y,
		pd_show_bytes(bytes, text), back ? "back to the first" : "to the next row");
}

/* Returns the height of all cards: that of the one with most to say. */
static double card_height(const struct pd_drawing *d, const int *cards, int count)
{
	const struct pd_wiring *wiring = d->usage->schedule->wiring;
	char text[PD_RECOMPUTED_TEXT];
	int lines = 1, skips = 0, again = 0, kinds = pd_topology_mixed(&d->plan->topology);

	for (int i = 0; i < count; i++) {
		int stages = stage_count(d, cards[i]);

		again |= *recomputed(d, cards[i], text) != '\0';
		stages = stages > MOST_LINES ? MOST_LINES + 1 : stages;
		lines = stages > lines ? stages : lines;
	}
	for (int k = 0; k < wiring->link_count; k++)
		skips |= wiring->links[k].to > wiring->links[k].from + 1;
	return 54 + LINE * (lines + skips + again + kinds);
}

double pd_draw_stages(struct pd_drawing *d, double y)
{
	int count, *cards = cards_of(d, &count), shown = count < MOST_CARDS ? count : MOST_CARDS;
	double height = card_height(d, cards, count), step = height + 22;

	for (int i = 0; i < shown; i++) {
		double x = PD_SVG_MARGIN + i % CARDS_PER_ROW * (CARD + CARD_GAP);
		double top = y + i / CARDS_PER_ROW * step;
		bool last = i + 1 == count;
		int64_t bytes = bytes_between(d, cards[i], cards[last ? 0 : i + 1]);

		put_card(d, cards[i], height, x, top);
		if (!last && (i + 1) % CARDS_PER_ROW != 0)
			put_arrow(d, bytes, x + CARD, top + 30);
		else if (!last || (bytes > 0 && count > 1))
			put_turn(d, bytes, last, x + CARD, top + height + 12);
	}
	y += (shown + CARDS_PER_ROW - 1) / CARDS_PER_ROW * step;
	if (shown < count) {
		fprintf(d->out, "<text x=\"%d\" y=\"%.1f\">and %d more</text>\n", PD_SVG_MARGIN, y + 4,
			count - shown);
		y += 18;
	}
	free(cards);
	return y;
}
