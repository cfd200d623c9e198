/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what pictures share: the contrast of their colours, and room for text. */
#include "base/svg.h"

#include "base/mem.h"
#include "explain/draw_svg.h"
#include "plan/show.h"
#include "tap.h"
#include "trace/colours.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void test_contrast(void)
{
	const struct pd_colour grey = { 0x77, 0x77, 0x77 };

	ok(fabs(pd_contrast(PD_BLACK, PD_WHITE) - 21) < 1e-9, "black on white");
	ok(pd_contrast(grey, grey) == 1, "nothing on itself");
	ok(fabs(pd_contrast(grey, PD_WHITE) - 4.48) < 0.01, "the grey just below 4.5 on white");
	ok(pd_contrast(PD_WHITE, grey) == pd_contrast(grey, PD_WHITE), "either way");
}

/* Labels can be read on every colour, and bars can be seen on white and on idle moments. */
static void test_palette(void)
{
	double label = 21, ground = 21, between = 21;

	for (int kind = 0; kind < PD_OP_KINDS; kind++)
		for (int chunks = 1; chunks <= 8; chunks++)
			for (int c = 0; c < chunks; c++) {
				struct pd_colour colour = pd_op_colour(kind, c, chunks);

				label = fmin(label, pd_contrast(colour, pd_colour_on(colour)));
				ground = fmin(ground, pd_contrast(colour, PD_WHITE));
				ground = fmin(ground, pd_contrast(colour, PD_IDLE_COLOUR));
				if (c > 0 && kind == PD_OP_forward)
					between = fmin(between, pd_contrast(colour,
						       pd_op_colour(kind, c - 1, chunks)));
			}
	ok(label >= 4.5, "labels have a contrast of at least 4.5: %.2f", label);
	ok(ground >= 3, "bars have a contrast of at least 3 with what is behind them: %.2f", ground);
	ok(between > 1.1, "stages of a rank differ: %.2f", between);
	for (size_t i = 0; i < PD_COUNT(pd_draw_loads); i++)
		ok(pd_contrast(pd_draw_loads[i].colour, PD_IDLE_COLOUR) >= 3, "links: %s",
		   pd_draw_loads[i].name);
	for (int s = 0; s < 10; s++)
		label = fmin(label, pd_contrast(pd_draw_colour(s), pd_colour_on(pd_draw_colour(s))));
	ok(label >= 4.5, "numbers of stages: %.2f", label);
	ok(pd_contrast(pd_evaluation_colour(), PD_IDLE_COLOUR) >= 3, "evaluations, too");
}

/* Widths of letters of DejaVu Sans, one of the widest usual fonts, in 2048ths of its size. */
static void test_width(void)
{
	static const struct { const char *text; int width; } rows[] = {
		{ "0123456789", 10 * 1303 }, { "mmm", 3 * 1995 }, { "WWW", 3 * 2025 }, { "ooo", 3 * 1253 },
		{ "GOQ", 1587 + 1612 + 1612 }, { "iii", 3 * 569 }, { "...", 3 * 651 }, { "%%", 2 * 1946 },
	};

	for (size_t i = 0; i < PD_COUNT(rows); i++)
		ok(pd_svg_text_width(rows[i].text, 10) >= 10 * rows[i].width / 2048.0,
		   "%s has room", rows[i].text);
	ok(pd_svg_text_width("\xc3\xa4", 10) == pd_svg_text_width("m", 10),
	   "a character of two bytes is one");
}

static char *put(void (*write)(FILE *))
{
	char *text;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	write(out);
	fclose(out);
	return text;
}

static void put_legend(FILE *out)
{
	struct pd_legend legend = pd_legend_begin(100, 300, 20, out);

	for (int i = 0; i < 3; i++)
		pd_legend_boxes(&legend, &PD_WHITE, NULL, 1, "twelve letters");
	fprintf(out, "below: %.0f", pd_legend_end(&legend));
}

static void test_legend(void)
{
	char *text = put(put_legend);

	ok(strstr(text, "x=\"100.0\" y=\"11.0\"") != NULL, "the first sign");
	ok(strstr(text, "x=\"100.0\" y=\"43.0\"") != NULL, "the third is on the third line");
	ok(strstr(text, "below: 64") != NULL, "what comes next is below");
	free(text);
}

#define UMLAUTS "\xc3\xa4\xc3\xb6"

static void test_names(void)
{
	struct pd_profile_layer layers[4] = {
		{ .name = (char[]){ "transformer.encoder.h.0.attention.query" } },
		{ .name = (char[]){ "transformer.encoder.h.0.mlp.projection" } },
		{ .name = (char[]){ "transformer.encoder.h.11.mlp.projection.weight" } },
		{ .name = (char[]){ "transformer.encoder." UMLAUTS UMLAUTS UMLAUTS } },
	};
	const struct pd_profile profile = { .layers = layers, .layer_count = 4 };
	const struct { int first, count, most; const char *shown; } rows[] = {
		{ 0, 2, 80, "h.0.attention.query to h.0.mlp.projection" },
		{ 0, 2, 40, "h.0.attention.query to ..mlp.projection" },
		{ 0, 2, 24, "h.0...uery to ..ml..tion" },
		{ 2, 1, 10, "h.11..ight" },
		{ 3, 1, 5, UMLAUTS "..\xc3\xb6" },
		{ 2, 2, 80, "h.11.mlp.projection.weight to " UMLAUTS UMLAUTS UMLAUTS },
	};
	size_t prefix = pd_layers_prefix(&profile);

	is_int((int64_t)prefix, 20, "what all names begin with, up to a full stop");
	for (size_t i = 0; i < PD_COUNT(rows); i++) {
		struct pd_stage stage = { .first_layer = rows[i].first, .layer_count = rows[i].count };
		struct pd_name_style style = { " to ", "..", rows[i].most };
		char *text = pd_show_layers(&profile, &stage, prefix, &style);

		is_str(text, rows[i].shown, "names in %d characters", rows[i].most);
		free(text);
	}
}

int main(void)
{
	test_contrast();
	test_palette();
	test_width();
	test_legend();
	test_names();
	return done_testing();
}
