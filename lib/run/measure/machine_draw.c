/* SPDX-License-Identifier: Apache-2.0 */
/* Prints and draws a machine that was measured, for people. */
#include "run/measure/machine.h"

#include "base/mem.h"
#include "base/opt.h"
#include "plan/show.h"
#include "topology/picture.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Says which devices there are, and which links, where these differ. */
static void print_kinds(const struct pd_topology *topology, FILE *out)
{
	const struct pd_level *level = &topology->level[0];
	char *devices = pd_show_devices(topology), rate[32];
	int64_t begin = 0;

	if (devices)
		fprintf(out, "devices: %s\n", devices);
	free(devices);
	for (int i = level->first_run; i < level->first_run + level->runs; i++) {
		const struct pd_link_run *run = &topology->link_run[i];

		fprintf(out, "links of ranks %" PRId64 "-%" PRId64 ": %s each\n", begin, run->end - 1,
			pd_show_rate(run->bandwidth_bytes_per_s, rate));
		begin = run->end;
	}
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
	print_kinds(&m->topology, out);
}

/* ---- the picture ---- */

#define HOST_GROUND ((struct pd_colour){ 0xdd, 0xe6, 0xf0 })
#define LINK_COLOUR ((struct pd_colour){ 0x44, 0x55, 0x66 })
#define NAME_MOST 24            /* characters of a host's name */

/* All links of a level are as wide; outer ones carry more ranks and are wider. */
static void set_link(void *context, int level, int64_t component, struct pd_link_look *look)
{
	const struct pd_machine *m = context;
	const struct pd_machine_level *l = &m->levels[level];
	char rate[32], latency[32];

	look->colour = LINK_COLOUR;
	look->width = 1.5 + level;
	snprintf(look->title, sizeof(look->title), "link of %s %" PRId64 ": %s, latency %s",
		 level ? "component" : "rank", component, pd_show_rate((int64_t)l->median, rate),
		 pd_show_time(l->latency_ns, latency));
}

static int64_t component_size(const struct pd_machine *m, int level)
{
	int64_t size = 1;

	for (int k = 0; k < level; k++)
		size *= m->topology.level[k].count;
	return size;
}

/* Returns the host of all ranks of a component, or NULL if they are on several. */
static const char *host_of(const struct pd_machine *m, int level, int64_t component)
{
	int64_t size = component_size(m, level), first = component * size;

	for (int64_t r = first + 1; r < first + size; r++)
		if (!pd_seat_beside(&m->seats[first], &m->seats[r]))
			return NULL;
	return m->seats[first].host;
}

/* Writes a host's name, cut if it is long. */
static void show_host(const char *host, char *buf, size_t size)
{
	snprintf(buf, size, "%.*s%s", NAME_MOST, host, strlen(host) > NAME_MOST ? "..." : "");
}

/* A rank that is alone on its host has the host's name in its box. */
static void put_device(void *context, int64_t device, const struct pd_machine_size *size, double x,
		       double y, FILE *out)
{
	const struct pd_machine *m = context;
	const struct pd_topology *topology = &m->topology;
	char colour[8], name[PD_SEAT_HOST + 4];

	fprintf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\" "
		"stroke=\"#666\" stroke-width=\".7\"><title>rank %" PRId64 " on ", x, y, size->width,
		size->height, pd_show_colour(HOST_GROUND, colour), device);
	pd_svg_put(m->seats[device].host, out);
	if (pd_topology_mixed(topology)) {
		fputs(", ", out);
		pd_svg_put(topology->kind[pd_topology_kind_of(topology, device)].name, out);
	}
	fputs("</title></rect>\n", out);
	if (m->seats[device].locals != 1 || size->font == 0)
		return;
	show_host(m->seats[device].host, name, sizeof(name));
	fprintf(out, "<text class=\"s m\" x=\"%.1f\" y=\"%.1f\">", x + size->width / 2,
		y + size->height / 2 + 4);
	pd_svg_put(name, out);
	fputs("</text>\n", out);
}

/* A component that is a host has its name; another one has the number of its level, once. */
static void set_name(void *context, int level, int64_t component, char *buf, size_t size)
{
	const struct pd_machine *m = context;
	const char *host = host_of(m, level, component);

	if (host)
		show_host(host, buf, size);
	else if (component == 0)
		snprintf(buf, size, "level %d", level - 1);
}

/* Returns a width for the longest name of a host, or of a level. */
static double widest(const struct pd_machine *m)
{
	double most = pd_svg_text_width("level 0", PD_SVG_SMALL);
	char name[PD_SEAT_HOST + 4];

	for (int r = 0; r < m->ranks; r++) {
		show_host(m->seats[r].host, name, sizeof(name));
		most = fmax(most, pd_svg_text_width(name, PD_SVG_SMALL));
	}
	return most + 8;
}

static int host_count(const struct pd_machine *m)
{
	int count = m->ranks > 0;

	for (int r = 1; r < m->ranks; r++)
		count += !pd_seat_beside(&m->seats[r - 1], &m->seats[r]);
	return count;
}

/* Writes a line for each level; returns the y below. */
static double put_levels(const struct pd_machine *m, double y, FILE *out)
{
	for (int level = 0; level < m->topology.levels; level++, y += 15) {
		const struct pd_machine_level *l = &m->levels[level];
		char rate[32], latency[32];

		fprintf(out, "<text class=\"q\" x=\"%d\" y=\"%.1f\">level %d: %" PRId64 " %s on links of %s "
			"each, latency %s</text>\n", PD_SVG_MARGIN, y, level,
			m->topology.level[level].count, level ? "components" : "ranks",
			pd_show_rate((int64_t)l->median, rate), pd_show_time(l->latency_ns, latency));
	}
	return y;
}

void pd_machine_draw(const struct pd_machine *m, FILE *out)
{
	const struct pd_machine_look look = {
		.topology = &m->topology, .context = (void *)m, .device = put_device, .link = set_link,
		.name = set_name, .component_width = widest(m),
		.device_width = m->ranks > 0 && m->seats[0].locals == 1 ? widest(m) : 0,
	};
	int hosts = host_count(m);
	char *body;
	size_t size;
	FILE *stream = pd_mem_stream(&body, &size);
	double height = put_levels(m, 34, stream);

	if (m->topology.devices <= PD_MOST_DEVICES)
		height = pd_machine_picture(&look, height, stream);
	else
		fprintf(stream, "<text class=\"q\" x=\"%d\" y=\"%.1f\">more than %d ranks are not drawn"
			"</text>\n", PD_SVG_MARGIN, height, PD_MOST_DEVICES);
	pd_mem_stream_close(stream);
	pd_svg_begin(0, PD_MACHINE_WIDTH, height + PD_SVG_MARGIN, out);
	fprintf(out, "<text x=\"%d\" y=\"18\" font-size=\"13\">%d ranks on %d host%s, measured</text>\n",
		PD_SVG_MARGIN, m->ranks, hosts, hosts == 1 ? "" : "s");
	fwrite(body, 1, size, out);
	pd_svg_end(out);
	free(body);
}
