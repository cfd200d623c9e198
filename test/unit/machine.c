/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how levels of links are found from measurements between one rank and the next. */
#include "run/measure/machine.h"

#include "tap.h"

#include <stdlib.h>
#include <string.h>

#define MOST 64

/*
 * Finds the levels of a machine of so many ranks on each host, with these bandwidths between one rank and
 * the next (MB/s); inside a host they do not matter.
 */
static int find(struct pd_machine *m, const int *ranks_of_hosts, const double *rates,
		struct pd_error *err)
{
	int host = 0, in_host = 0;

	*m = (struct pd_machine){ .ranks = 0 };
	for (int i = 0; ranks_of_hosts[i]; i++)
		m->ranks += ranks_of_hosts[i];
	m->seats = calloc((size_t)m->ranks, sizeof(*m->seats));
	m->gaps = calloc((size_t)m->ranks, sizeof(*m->gaps));
	for (int r = 0; r < m->ranks; r++) {
		m->seats[r].host[0] = (char)('a' + host);
		m->seats[r].locals = ranks_of_hosts[host];
		m->gaps[r].bytes_per_s = 1e6 * (r < m->ranks - 1 ? rates[r] : 0);
		if (++in_host == ranks_of_hosts[host]) {
			host++;
			in_host = 0;
		}
	}
	return pd_machine_find_levels(m, err);
}

static void has(const int *ranks_of_hosts, const double *rates, const char *counts, const char *what)
{
	struct pd_error err = { 0 };
	struct pd_machine m;
	char text[64] = "";

	if (find(&m, ranks_of_hosts, rates, &err) < 0)
		snprintf(text, sizeof(text), "%.60s", err.text);
	for (int level = 0; level < m.topology.levels; level++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%d", level ? "," : "",
			 (int)m.topology.level[level].count);
	is_str(text, counts, "%s", what);
	pd_machine_release(&m);
}

static void refused(const int *ranks_of_hosts, const double *rates, const char *part,
		    const char *what)
{
	struct pd_error err = { 0 };
	struct pd_machine m;

	ok(find(&m, ranks_of_hosts, rates, &err) < 0 && err.status == PD_EXIT_NO &&
	   strstr(err.text, part), "%s", what);
	diag("%s", err.text);
	pd_machine_release(&m);
}

/* Checks which ranks' addresses a rank needs; `expected` has '#' for each of them. */
static void peers_are(int ranks, int rank, const char *expected, const char *what)
{
	char peers[16] = "";

	for (int r = 0; r < ranks; r++)
		peers[r] = pd_machine_meet(ranks, rank, r) ? '#' : '.';
	is_str(peers, expected, "%s", what);
}

/* Checks that this is a line of what is printed of a machine, or for NULL that none is about hosts. */
static void has_hosts(const int *ranks_of_hosts, const double *rates, const char *line)
{
	struct pd_error err = { 0 };
	struct pd_machine m;
	char *text;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	find(&m, ranks_of_hosts, rates, &err);
	pd_machine_print(&m, out);
	fclose(out);
	ok(line ? strstr(text, line) != NULL : !strstr(text, "hosts:"), "%s", line ? line : "one host has no line");
	free(text);
	pd_machine_release(&m);
}

#define HOSTS(...) (const int[]){ __VA_ARGS__, 0 }
#define RATES(...) (const double[]){ __VA_ARGS__ }

int main(void)
{
	has(HOSTS(4), RATES(9000, 9000, 9000), "4", "one host");
	has(HOSTS(2), RATES(1), "2", "a host whose inside is slow is a host all the same");
	has(HOSTS(1, 1, 1, 1), RATES(11.9, 12, 11.7), "4", "four hosts of one rank, links as they vary");
	has(HOSTS(2, 2, 2), RATES(9000, 12, 9000, 12, 9000), "2,3", "three hosts of two");
	has(HOSTS(2, 2), RATES(12, 12, 12), "2,2", "the inside is a level, be it no faster");
	has(HOSTS(1, 1, 1, 1), RATES(120, 12, 118), "2,2", "two racks of two hosts");
	has(HOSTS(1, 1, 1, 1, 1, 1), RATES(120, 119, 60, 121, 122), "3,2", "two racks of three");
	has(HOSTS(2, 2, 2, 2), RATES(9000, 120, 9000, 12, 9000, 118, 9000), "2,2,2",
	    "racks of hosts of ranks");
	has(HOSTS(1, 1, 1, 1, 1, 1, 1, 1), RATES(1000, 100, 1000, 10, 1000, 100, 1000), "2,2,2",
	    "racks of racks");
	refused(HOSTS(2, 1), RATES(9000, 12), "between rank 1 on a and rank 2 on b",
		"hosts with different numbers of ranks");
	refused(HOSTS(1, 1, 1, 1), RATES(12, 120, 120), "rank 1 on b and rank 2 on c",
		"a host whose link is slower");
	refused(HOSTS(1, 1, 1, 1, 1), RATES(120, 12, 120, 12), "rank 3 on d and rank 4 on e",
		"a rack that is not full");
	has_hosts(HOSTS(2, 2, 2), RATES(9000, 12, 9000, 12, 9000), "\nhosts: ranks 0-1 a, 2-3 b, 4-5 c\n");
	has_hosts(HOSTS(1, 1, 1, 1), RATES(120, 12, 118), "\nhosts: ranks 0 a, 1 b, 2 c, 3 d\n");
	has_hosts(HOSTS(4), RATES(9000, 9000, 9000), NULL);
	peers_are(7, 3, "..###..", "of seven ranks, one meets its neighbours");
	peers_are(8, 2, "#####.#.", "of eight, those 1, 2 and 4 away, by which they may be grouped");
	return done_testing();
}
