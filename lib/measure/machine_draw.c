/* SPDX-License-Identifier: Apache-2.0 */
/* Prints and draws a machine that was measured, for people. */
#include "measure/machine.h"

#include "base/opt.h"
#include "base/svg.h"

#include <inttypes.h>

#define WIDTH 940.0
#define MARGIN 14.0
#define ROW 46.0                        /* a level of links */
#define RANK 34.0                       /* the row of ranks */

static int component_size(const struct pd_machine *m, int level)
{
	int size = 1;

	for (int k = 0; k <= level; k++)
		size *= (int)m->topology.level[k].count;
	return size;
}

void pd_machine_print(const struct pd_machine *m, FILE *out)
{
	for (int level = 0; level < m->topology.levels; level++) {
		const struct pd_machine_level *l = &m->levels[level];
		char median[32], least[32], most[32], both[32], latency[32], alone[64] = "";

		if (level > 0)          /* several ranks share a link */
			snprintf(alone, sizeof(alone), "%s for one rank alone; ",
				 pd_show_rate((int64_t)l->alone, latency));
		fprintf(out, "level %d: %" PRId64 " on a link of %s each (%s to %s; %s%s while as much goes "
			"the other way), latency %s\n", level, m->topology.level[level].count,
			pd_show_rate((int64_t)l->median, median), pd_show_rate((int64_t)l->least, least),
			pd_show_rate((int64_t)l->most, most), alone,
			pd_show_rate((int64_t)l->both_ways, both),
			pd_show_time(l->latency_ns, latency));
	}
}

/* A box over the ranks of each component, and below it what its links carry. */
static void draw_level(const struct pd_machine *m, int level, double y, FILE *out)
{
	double per_rank = (WIDTH - 2 * MARGIN) / m->ranks;
	int size = component_size(m, level);
	char rate[32], latency[32];

	for (int first = 0; first < m->ranks; first += size)
		fprintf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"20\" rx=\"3\" "
			"fill=\"#dde6f0\" stroke=\"#456\"/>\n", MARGIN + first * per_rank + 1, y,
			size * per_rank - 2);
	fprintf(out, "<text x=\"%.1f\" y=\"%.1f\">level %d: %" PRId64 " links of %s, %s</text>\n",
		MARGIN + 6, y + 14, level, m->topology.level[level].count,
		pd_show_rate((int64_t)m->levels[level].median, rate),
		pd_show_time(m->levels[level].latency_ns, latency));
	for (int first = 0; first < m->ranks; first += level ? component_size(m, level - 1) : 1) {
		int below = level ? component_size(m, level - 1) : 1;
		double x = MARGIN + (first + below / 2.0) * per_rank;

		fprintf(out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#456\" "
			"stroke-width=\"2\"/>\n", x, y + 20, x, y + ROW);
	}
}

static void draw_ranks(const struct pd_machine *m, double y, FILE *out)
{
	double per_rank = (WIDTH - 2 * MARGIN) / m->ranks;

	for (int r = 0; r < m->ranks; r++) {
		fprintf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"#fff\" "
			"stroke=\"#456\"><title>rank %d on ", MARGIN + r * per_rank + 1, y, per_rank - 2,
			RANK, r);
		pd_svg_put(m->seats[r].host, out);
		fputs("</title></rect>\n", out);
		if (per_rank < 24)
			continue;
		fprintf(out, "<text x=\"%.1f\" y=\"%.1f\">%d</text>\n", MARGIN + r * per_rank + 6, y + 14,
			r);
		fprintf(out, "<text x=\"%.1f\" y=\"%.1f\">", MARGIN + r * per_rank + 6, y + 28);
		pd_svg_put(per_rank < 60 ? "" : m->seats[r].host, out);
		fputs("</text>\n", out);
	}
}

void pd_machine_draw(const struct pd_machine *m, FILE *out)
{
	double height = 2 * MARGIN + m->topology.levels * ROW + RANK, y = MARGIN;

	fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
		"font-family=\"sans-serif\" font-size=\"11\">\n", WIDTH, height);
	fprintf(out, "<rect width=\"%.0f\" height=\"%.0f\" fill=\"#fff\"/>\n", WIDTH, height);
	for (int level = m->topology.levels - 1; level >= 0; level--, y += ROW)
		draw_level(m, level, y, out);
	draw_ranks(m, y, out);
	fputs("</svg>\n", out);
}
