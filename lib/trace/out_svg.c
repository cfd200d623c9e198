/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Draws timelines: a title with the figures, a legend, and panes.  What is too short to be seen is left
 * out, and a note says so.
 */
#include "base/mem.h"
#include "trace/colours.h"
#include "trace/pane.h"

#include <math.h>
#include <stdlib.h>

#define LEAST_PIXELS 3.0        /* of an operation, where a window must be long */
#define NUMBERED_CHUNKS 8       /* more are not numbered in the legend */
#define MOST_SHADES 16          /* of chunks, in the legend */

static void put_text(char *text, const char *style, double y, FILE *out)
{
	fprintf(out, "<text %s x=\"%d\" y=\"%.1f\">", style, PD_PANE_LEFT, y);
	pd_svg_put(text, out);
	fputs("</text>\n", out);
	free(text);
}

/* Draws a line that says what it is and, if wanted, one with its figures; returns the y below. */
static double put_title(const struct pd_view *view, bool figures, double y, FILE *out)
{
	put_text(pd_view_title(view), "font-size=\"13\"", y, out);
	if (figures)
		put_text(pd_view_figures(view), "class=\"q\"", y += 16, out);
	return y + 4;
}

/* Adds what operations of a kind look like: where ranks have several stages, in each of these. */
static void put_kind(const struct pd_picture *picture, enum pd_op_kind kind, struct pd_legend *legend)
{
	const char *name = pd_op_colour_name(kind);
	int chunks = pd_op_computes(kind) ? picture->chunks : 1;
	int boxes = chunks < MOST_SHADES ? chunks : MOST_SHADES;
	struct pd_colour colours[MOST_SHADES];
	char numbers[NUMBERED_CHUNKS][12], text[64];
	const char *inside[NUMBERED_CHUNKS];

	for (int c = 0; c < boxes; c++)         /* of very many chunks, some from the first to the last */
		colours[c] = pd_op_colour(kind, boxes < chunks ? c * (chunks - 1) / (boxes - 1) : c, chunks);
	for (int c = 0; c < boxes && c < NUMBERED_CHUNKS; c++) {
		snprintf(numbers[c], sizeof(numbers[c]), "%d", c + 1);
		inside[c] = numbers[c];
	}
	snprintf(text, sizeof(text), chunks > 1 ? "%s, a rank's 1st to last stage" : "%s", name);
	pd_legend_boxes(legend, colours, chunks > 1 && chunks <= NUMBERED_CHUNKS ? inside : NULL, boxes,
			text);
}

/* Adds the kinds that compute, or all others. */
static void put_kinds(const struct pd_picture *picture, bool computing, struct pd_legend *legend)
{
	for (int kind = 0; kind < PD_OP_KINDS; kind++) {
		bool used = picture->used[kind];

		if (kind == PD_OP_send_activation)      /* one entry for both ends */
			used |= picture->used[PD_OP_recv_activation];
		if (kind == PD_OP_send_gradient)
			used |= picture->used[PD_OP_recv_gradient];
		if (used && pd_op_computes(kind) == computing && pd_op_colour_name(kind))
			put_kind(picture, kind, legend);
	}
}

/* Explains what is in the picture, and nothing else; returns the y below. */
static double put_legend(const struct pd_picture *picture, double y, FILE *out)
{
	const struct pd_colour idle = PD_IDLE_COLOUR, evaluation = pd_evaluation_colour();
	struct pd_legend legend = pd_legend_begin(PD_PANE_LEFT, PD_PANE_LEFT + PD_PANE_WIDTH, y, out);
	char note[96];

	put_kinds(picture, true, &legend);
	if (picture->evaluates)
		pd_legend_boxes(&legend, &evaluation, NULL, 1, "forward of an evaluation");
	pd_legend_boxes(&legend, &idle, NULL, 1, "idle");
	put_kinds(picture, false, &legend);
	if (picture->left_out) {
		snprintf(note, sizeof(note), "transfers and updates shorter than %d pixels are not drawn",
			 PD_PANE_VISIBLE);
		pd_legend_note(&legend, note);
	}
	if (picture->folded)
		pd_legend_note(&legend, "of replicas, the first is drawn");
	return pd_legend_end(&legend);
}

/* Draws all panes, with titles if there are several views; returns how high they are. */
static double put_panes(struct pd_picture *picture, const struct pd_view *views, int count,
			struct pd_window (*windows)[PD_WINDOWS], const int64_t scales[PD_WINDOWS])
{
	double y = 0;

	for (int k = 0; k < PD_WINDOWS; k++)
		for (int v = 0; v < count; v++) {
			struct pd_pane pane = { picture, views[v].timeline, &windows[v][k],
					     (double)scales[k] / PD_PANE_WIDTH };

			if (pane.window->end_ns == pane.window->begin_ns)
				continue;
			if (count > 1)
				y = put_title(&views[v], k == PD_WINDOW_START, y + 14, picture->out);
			y = pd_pane_put(&pane, y);
		}
	return y;
}

/* Returns the pixels of the longest label. */
static double label_width(const struct pd_view *views, int count)
{
	int64_t highest = 0;
	char label[24];

	for (int v = 0; v < count; v++)
		for (size_t i = 0; i < views[v].timeline->trace->count; i++) {
			int64_t microbatch = views[v].timeline->trace->records[i].op.microbatch;

			highest = microbatch > highest ? microbatch : highest;
		}
	return pd_pane_label(highest, label);
}

static void find_chunks(struct pd_picture *picture, const struct pd_timeline *timeline)
{
	for (int r = 0; r < timeline->rank_count; r++)
		if (timeline->stage_counts[r] > picture->chunks)
			picture->chunks = timeline->stage_counts[r];
	picture->folded |= timeline->folded;
}

void pd_timeline_svg(const struct pd_view *views, int count, FILE *out)
{
	struct pd_window windows[count][PD_WINDOWS];
	struct pd_picture picture = { .chunks = 1 };
	double left = 0, top, height;
	int64_t scales[PD_WINDOWS];
	char *panes, *legend;
	size_t size, legend_size;

	pd_windows_of(views, count, PD_PANE_WIDTH / label_width(views, count),
		      PD_PANE_WIDTH / LEAST_PIXELS, windows, scales);
	for (int v = 0; v < count; v++) {
		left = fmax(left, pd_pane_overhang(views[v].timeline));
		find_chunks(&picture, views[v].timeline);
	}
	/* When the panes are drawn it is known how high they are, and what the legend has. */
	picture.out = pd_mem_stream(&panes, &size);
	height = put_panes(&picture, views, count, windows, scales);
	pd_mem_stream_close(picture.out);
	picture.out = pd_mem_stream(&legend, &legend_size);
	top = put_legend(&picture, count == 1 ? 54 : 18, picture.out);
	pd_mem_stream_close(picture.out);

	pd_svg_begin(-left, left + PD_PANE_LEFT + PD_PANE_WIDTH + PD_SVG_MARGIN, top + height, out);
	if (count == 1)
		put_title(views, true, 18, out);
	fwrite(legend, 1, legend_size, out);
	fprintf(out, "<g transform=\"translate(0 %.1f)\">\n", top);
	fwrite(panes, 1, size, out);
	fputs("</g>\n", out);
	pd_svg_end(out);
	free(legend);
	free(panes);
}
