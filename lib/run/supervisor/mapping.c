/* SPDX-License-Identifier: Apache-2.0 */
/* Compares where ranks are with where the plan has them. */
#include "run/supervisor/internal.h"

#include <stdio.h>

static const struct pd_seat *seat_of(const struct supervisor *s, int r)
{
	return s->launcher->ops->seat(s->launcher, r);
}

/*
 * Returns the first rank that is on the host of the one before it though not in the same component of
 * `size` devices, or in the same component though not on the same host; -1: hosts are components.
 */
static int first_astray(const struct supervisor *s, int64_t size)
{
	for (int r = 1; r < s->count; r++)
		if (pd_seat_beside(seat_of(s, r - 1), seat_of(s, r)) != ((r - 1) / size == r / size))
			return r;
	return -1;
}

/* Tells whether a host has ranks that do not follow one another. */
static bool comes_again(const struct supervisor *s)
{
	int firsts = 0;

	for (int r = 0; r < s->count; r++)
		firsts += r == 0 || !pd_seat_beside(seat_of(s, r - 1), seat_of(s, r));
	return firsts != seat_of(s, 0)->hosts;
}

/* Tells whether each host has the ranks of one component, at some level of the plan's topology. */
static bool is_as_planned(const struct supervisor *s)
{
	const struct pd_topology *topology = &s->job->plan->topology;
	int64_t size = 1;

	if (comes_again(s))
		return false;
	/* machines of one device each are no level of their own */
	if (topology->levels == 1 && first_astray(s, 1) < 0)
		return true;
	for (int level = 0; level < topology->levels; level++) {
		size *= topology->level[level].count;
		if (first_astray(s, size) < 0)
			return true;
	}
	return false;
}

static void describe_mapping(const struct supervisor *s, char *text, size_t size)
{
	const struct pd_topology *topology = &s->job->plan->topology;
	int64_t machine = topology->levels == 1 ? 1 : topology->level[0].count;
	int r = first_astray(s, machine);

	if (r < 0)
		snprintf(text, size, "the ranks of a host are not in a row: see --print-mapping");
	else if (pd_seat_beside(seat_of(s, r - 1), seat_of(s, r)))
		snprintf(text, size, "%.80s has ranks %d and %d on different machines, found both on "
			 "host %s", pd_plan_name(s->job->plan), r - 1, r, seat_of(s, r)->host);
	else
		snprintf(text, size, "%.80s has ranks %d and %d on one machine, found them on hosts "
			 "%s and %s", pd_plan_name(s->job->plan), r - 1, r, seat_of(s, r - 1)->host, seat_of(s, r)->host);
}

int supervisor_check_mapping(struct supervisor *s, struct pd_error *err)
{
	char text[360];

	if (seat_of(s, 0)->hosts == 1 || is_as_planned(s))
		return 0;
	describe_mapping(s, text, sizeof(text));
	if (!s->how->force)
		return pd_error_input(err, "%s; --force trains all the same, and predictions do not "
				      "hold", text);
	if (!s->how->quiet)
		pd_say("%s; predictions do not hold", text);
	return 0;
}

void supervisor_print_mapping(const struct supervisor *s)
{
	for (int r = 0; r < s->count; r++) {
		const struct pd_seat *seat = seat_of(s, r);
		int count = pd_schedule_chunks(s->schedule, r), stages[count];
		int replica = pd_schedule_stages(s->schedule, r, stages);
		json_t *list = json_array();
		json_t *line;

		for (int i = 0; i < count; i++)
			pd_json_add(list, json_integer(stages[i]));
		line = json_pack("{s:s, s:i, s:o, s:i, s:o, s:i}", "event", "rank", "rank", r,
				 "stages", list, "replica", replica, "host",
				 pd_json_shown(seat->host), "device", seat->device);
		json_dumpf(line, stdout, 0);
		putchar('\n');
		json_decref(line);
	}
}
