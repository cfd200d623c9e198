/* SPDX-License-Identifier: Apache-2.0 */
#include "run/measure/machine.h"

#include "base/mem.h"
#include "base/opt.h"

#include <stdlib.h>

#define SAME 0.75                       /* bandwidths of one level are at least so much of the next */

static int descending(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x < *y) - (*x > *y);
}

static bool inside(const struct pd_machine *m, int gap)
{
	return pd_seat_beside(&m->seats[gap], &m->seats[gap + 1]);
}

/* The bandwidths at which levels between hosts begin, the fastest first; returns how many. */
static int find_steps(const struct pd_machine *m, double steps[PD_MAX_LEVELS], struct pd_error *err)
{
	double *sorted = pd_calloc((size_t)m->ranks, sizeof(*sorted));
	int n = 0, count = 0;

	for (int i = 0; i < m->ranks - 1; i++)
		if (!inside(m, i))
			sorted[n++] = m->gaps[i].bytes_per_s;
	qsort(sorted, (size_t)n, sizeof(*sorted), descending);
	for (int i = 0; i < n && count <= PD_MAX_LEVELS; i++)
		if (i == 0 || sorted[i] < SAME * sorted[i - 1]) {
			if (count < PD_MAX_LEVELS)
				steps[count] = sorted[i];
			count++;
		}
	free(sorted);
	return count < PD_MAX_LEVELS ? count
	       : pd_error_no(err, "more than %d levels of links", PD_MAX_LEVELS - 1);
}

static void set_levels(struct pd_machine *m, const double *steps, int count, bool any_inside)
{
	for (int i = 0; i < m->ranks - 1; i++) {
		int level = count - 1;

		while (!inside(m, i) && level > 0 && m->gaps[i].bytes_per_s > steps[level])
			level--;
		m->gaps[i].level = inside(m, i) ? 0 : level + any_inside;
	}
}

/* The level that must be between rank i and rank i + 1, where the sizes of components are these. */
static int level_at(int i, const int *sizes, int levels)
{
	int level = levels - 1;

	while (level > 0 && (i + 1) % sizes[level - 1] != 0)
		level--;
	return level;
}

static int refuse(const struct pd_machine *m, int i, struct pd_error *err)
{
	char rate[32];

	return pd_error_no(err, "hosts or groups of hosts are not alike: between rank %d on %s and rank "
			   "%d on %s (%s) another level of links begins than after the ranks before",
			   i, m->seats[i].host, i + 1, m->seats[i + 1].host,
			   pd_show_rate((int64_t)m->gaps[i].bytes_per_s, rate));
}

/* Components of a level have as many ranks as the first one has. */
static int set_counts(struct pd_machine *m, int levels, struct pd_error *err)
{
	int sizes[PD_MAX_LEVELS];

	for (int level = 0; level < levels; level++) {
		int i = 0;

		while (i < m->ranks - 1 && m->gaps[i].level <= level)
			i++;
		sizes[level] = i + 1;
	}
	for (int i = 0; i < m->ranks - 1; i++)
		if (m->gaps[i].level != level_at(i, sizes, levels))
			return refuse(m, i, err);
	for (int level = 0; level < levels; level++)
		if (m->ranks % sizes[level] != 0)
			return refuse(m, m->ranks - m->ranks % sizes[level] - 1, err);
	m->topology.levels = levels;
	m->topology.devices = m->ranks;
	for (int level = 0; level < levels; level++)
		m->topology.level[level].count = sizes[level] / (level ? sizes[level - 1] : 1);
	return 0;
}

bool pd_machine_meet(int ranks, int a, int b)
{
	return a == b || ranks % (a < b ? b - a : a - b) == 0;
}

int pd_machine_find_levels(struct pd_machine *m, struct pd_error *err)
{
	double steps[PD_MAX_LEVELS];
	int count = find_steps(m, steps, err);
	bool any_inside = false;

	if (count < 0)
		return -1;
	for (int i = 0; i < m->ranks - 1; i++)
		any_inside |= inside(m, i);
	set_levels(m, steps, count, any_inside);
	return set_counts(m, count + any_inside, err);
}
