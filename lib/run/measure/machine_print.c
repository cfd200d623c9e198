/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a machine that was measured, for people. */
#include "run/measure/machine.h"

#include "base/opt.h"
#include "plan/show.h"

#include <inttypes.h>
#include <stdlib.h>

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

/* Says which ranks are on which host, where there are several. */
static void print_hosts(const struct pd_machine *m, FILE *out)
{
	const char *between = "hosts: ranks ";

	for (int first = 0, next; first < m->ranks; first = next) {
		for (next = first + 1; next < m->ranks; next++)
			if (!pd_seat_beside(&m->seats[first], &m->seats[next]))
				break;
		if (next - first == m->ranks)
			return;
		fprintf(out, "%s%d", between, first);
		if (next - first > 1)
			fprintf(out, "-%d", next - 1);
		fprintf(out, " %s", m->seats[first].host);
		between = ", ";
	}
	fputc('\n', out);
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
	print_hosts(m, out);
	print_kinds(&m->topology, out);
}
