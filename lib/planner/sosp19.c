/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dynamic programme of PipeDream (SOSP 2019, section 3.1).
 *
 * The machine has L levels; a component of level k is m_k components of level k - 1 joined
 * by links of bandwidth B_k; a component of level 0 is a device.  With T_l the compute
 * time, a_l the activation bytes and w_l the parameter bytes of layer l:
 *
 *     T^k(i->j, m) = 1/m max( A^{k-1}(i->j, m_{k-1}),
 *                             2 (m - 1) sum_{l = i..j} |w_l| / B_k )
 *     A^k(i->j, m) = min( T^k(i->j, m),
 *                         min over i <= s < j, 1 <= m' < m of
 *                         max( A^k(i->s, m - m'),  2 a_s / B_k,  T^k(s+1->j, m') ) )
 *     A^0(i->j, 1) = sum_{l = i..j} T_l,      A^k(i->j, 1) = A^{k-1}(i->j, m_{k-1})
 *
 * and the answer is A^L(0->N, m_L).  The case of one stage is not in the paper's equation
 * but in its text.
 *
 * Where this departs, and why:
 *   - T_l includes the optimizer's step, which a replica takes once for each of its
 *     minibatches.
 *   - Networks need not be chains: layers are in topological order, a_s is what crosses the
 *     cut, each tensor once, and a cut does not separate layers that share parameters.
 *   - Divisions round up, so a time is an integer.
 *   - A^L(0->N, m) for m < m_L is a plan as well, and the smallest m that reaches the least
 *     time is taken: the paper burns what it does not need.  Components inside the
 *     outermost level are used whole, as in the paper.
 *   - The paper charges the all-reduce to every minibatch, though the gradients of m of
 *     them are reduced at once.  The cost "sosp19" keeps that; "simulated" does not, and
 *     adds the all-reduce to the compute time, because this runtime does not overlap them:
 *         T^k(i->j, m) = 1/m ( A^{k-1}(i->j, m_{k-1}) + 2 (m - 1)/m sum |w_l| / B_k )
 *   - The paper's prototype took the warm-up of a stage for granted; whoever calls checks
 *     the bytes of each rank afterwards.
 *
 * With D devices in a component of level k - 1, A^{k-1}(s->j) is at least the compute time
 * over D.  That leaves few s to look at (compare flat.c).
 */
#include "planner/search.h"

#include "base/mem.h"

#include <stdlib.h>

struct level {
	const struct pd_level *link;
	int m;                          /* components of the level below */
	int64_t devices;                /* in each of those */
	int64_t *value;                 /* A^k(i->j, m), by pair and m */
	int pairs;                      /* i = 0 alone at the outermost level */
};

struct search {
	const struct pd_costs *costs;
	bool straight;
	int U, levels;
	struct level level[PD_MAX_LEVELS + 1];  /* 1 to levels */
};

/* Units i to j - 1, 0 <= i < j <= U. */
static size_t pair(const struct search *search, const struct level *level, int i, int j)
{
	size_t U = (size_t)search->U, a = (size_t)i;

	return level->pairs == search->U ? (size_t)(j - 1)
					 : a * U - a * (a + 1) / 2 + (size_t)(j - 1);
}

static int64_t *cell(const struct search *search, int k, int i, int j, int m)
{
	const struct level *level = &search->level[k];

	return &level->value[pair(search, level, i, j) * (size_t)level->m + (size_t)(m - 1)];
}

/* A^k(i->j, m_k) */
static int64_t whole(const struct search *search, int k, int i, int j)
{
	if (!k)
		return search->costs->compute_ns[j] - search->costs->compute_ns[i];
	return *cell(search, k, i, j, search->level[k].m);
}

/* T^k(i->j, m) */
static int64_t stage(const struct search *search, int k, int i, int j, int m)
{
	const struct pd_costs *costs = search->costs;
	const struct pd_level *link = search->level[k].link;
	struct pd_work work = { .compute_ns = whole(search, k - 1, i, j) };

	if (work.compute_ns == PD_NEVER || (search->straight && m > 1))
		return PD_NEVER;
	work.parameter_ns = pd_bytes_ns(costs->parameter_bytes[j] - costs->parameter_bytes[i],
					link->bandwidth_bytes_per_s);
	return pd_work_ns(costs->kind, &work, link, m);
}

static int64_t cut_ns(const struct search *search, int k, int s)
{
	return pd_bytes_ns(2 * search->costs->cut_bytes[s],
			   search->level[k].link->bandwidth_bytes_per_s);
}

static int64_t split(const struct search *search, int k, int i, int s, int j, int m, int last)
{
	int64_t before = *cell(search, k, i, s, m - last), after;

	if (before == PD_NEVER)
		return PD_NEVER;
	after = stage(search, k, s, j, last);
	return pd_max64(pd_max64(before, cut_ns(search, k, s)), after);
}

/* The first s >= low with compute_ns[s] >= at. */
static int first_at(const struct pd_costs *costs, int low, int high, int64_t at)
{
	while (low < high) {
		int middle = low + (high - low) / 2;

		if (costs->compute_ns[middle] < at)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The s in i < s < j for which both sides can take at most `time`: low <= s < high. */
static void cuts(const struct search *search, int k, int i, int j, int m, int last, int64_t time,
		 int *low_p, int *high_p)
{
	const struct pd_costs *costs = search->costs;
	int64_t devices = search->level[k].devices, room;

	*low_p = i + 1;
	*high_p = j;
	if (pd_mul(time, last * devices, &room) && room < costs->compute_ns[j])
		*low_p = first_at(costs, i + 1, j, costs->compute_ns[j] - room);
	if (pd_mul(time, (m - last) * devices, &room) &&
	    pd_add(room, costs->compute_ns[i] + 1, &room))
		*high_p = first_at(costs, i + 1, j, room);
}

static int64_t best(const struct search *search, int k, int i, int j, int m)
{
	const int64_t *compute = search->costs->compute_ns;
	int64_t least, time;

	least = stage(search, k, i, j, m);
	for (int last = 1; last < (search->straight && m > 1 ? 2 : m); last++) {
		int low, high, even;

		/* first where both sides have work in proportion: a time to beat */
		even = first_at(search->costs, i + 1, j - 1, compute[i] +
				(compute[j] - compute[i]) / m * (m - last));
		if (j - i > 1) {
			time = split(search, k, i, even, j, m, last);
			if (time < least)
				least = time;
		}
		cuts(search, k, i, j, m, last, least - 1, &low, &high);
		for (int s = low; s < high; s++) {
			time = split(search, k, i, s, j, m, last);
			if (time < least)
				least = time;
		}
	}
	return least;
}

static void fill(const struct search *search, int k)
{
	int most = search->level[k].pairs == search->U ? 1 : search->U;

	for (int i = 0; i < most; i++)
		for (int j = i + 1; j <= search->U; j++)
			for (int m = 1; m <= search->level[k].m; m++)
				*cell(search, k, i, j, m) = best(search, k, i, j, m);
}

static bool set_up(struct search *search, const struct pd_topology *topology)
{
	int64_t devices = 1, total = 0;

	for (int k = 1; k <= search->levels; k++) {
		struct level *level = &search->level[k];
		int64_t U = search->U;

		level->link = &topology->level[k - 1];
		level->m = (int)level->link->count;
		level->devices = devices;
		level->pairs = (int)U;
		devices *= level->m;
		if (k < search->levels) {
			if (U > 65535)
				return false;
			level->pairs = (int)(U * (U + 1) / 2);
		}
		total += (int64_t)level->pairs * level->m * (int64_t)sizeof(int64_t);
	}
	if (total > PD_SOSP19_TABLE_BYTES)
		return false;
	for (int k = 1; k <= search->levels; k++)
		search->level[k].value = pd_calloc((size_t)search->level[k].pairs *
						   (size_t)search->level[k].m, sizeof(int64_t));
	return true;
}

/* Ranks at which copies of a range of units begin; copy c does minibatch b with b mod n = c. */
struct copies {
	int n;
	int *base;
};

static struct copies shift(const struct copies *copies, int64_t by, int m, int64_t apart)
{
	struct copies made = { copies->n * m,
			       pd_calloc((size_t)copies->n * (size_t)m, sizeof(int)) };

	for (int q = 0; q < m; q++)
		for (int c = 0; c < copies->n; c++)
			made.base[c + copies->n * q] = (int)(copies->base[c] + by + q * apart);
	return made;
}

static void add_stage(const struct search *search, struct pd_layout *layout, int i, int j,
		      const struct copies *copies)
{
	const int *first = search->costs->first;
	int n = layout->stage_count++;

	layout->layers[n] = first[j] - first[i];
	layout->replicas[n] = copies->n;
	layout->ranks[n] = pd_calloc((size_t)copies->n, sizeof(int));
	for (int c = 0; c < copies->n; c++)
		layout->ranks[n][c] = copies->base[c];
}

/*
 * Walks back through A^k(i->j, m), whose copies begin at the given ranks.  The minibatches
 * of one copy go round its parts in turn, so a stage's replicas are numbered with the
 * outer component varying fastest, and a minibatch stays inside its component.
 */
static void walk(const struct search *search, struct pd_layout *layout, int k, int i, int j, int m,
		 const struct copies *copies)
{
	const struct level *level = &search->level[k];
	int below = k > 1 ? search->level[k - 1].m : 1;
	struct copies inner;
	int64_t value;

	if (!k) {
		add_stage(search, layout, i, j, copies);
		return;
	}
	value = *cell(search, k, i, j, m);
	if (stage(search, k, i, j, m) == value) {
		inner = shift(copies, 0, m, level->devices);
		walk(search, layout, k - 1, i, j, below, &inner);
		free(inner.base);
		return;
	}
	for (int s = i + 1; s < j; s++)
		for (int last = 1; last < m; last++) {
			if (split(search, k, i, s, j, m, last) != value)
				continue;
			walk(search, layout, k, i, s, m - last, copies);
			inner = shift(copies, (m - last) * level->devices, last, level->devices);
			walk(search, layout, k - 1, s, j, below, &inner);
			free(inner.base);
			return;
		}
	pd_bug("planner: level %d has no plan for units %d to %d", k, i, j);
}

static struct pd_layout *answer(const struct search *search)
{
	struct pd_layout *layout;
	struct copies one = { 1, (int[]){ 0 } };
	int L = search->levels, m = 0;
	int64_t least = PD_NEVER;

	for (int n = 1; n <= search->level[L].m; n++)
		if (*cell(search, L, 0, search->U, n) < least) {
			least = *cell(search, L, 0, search->U, n);
			m = n;
		}
	if (least == PD_NEVER)
		return NULL;
	layout = pd_zalloc(sizeof(*layout));
	layout->cost_ns = least;
	layout->layers = pd_calloc((size_t)search->U, sizeof(*layout->layers));
	layout->replicas = pd_calloc((size_t)search->U, sizeof(*layout->replicas));
	layout->ranks = pd_calloc((size_t)search->U, sizeof(*layout->ranks));
	walk(search, layout, L, 0, search->U, m, &one);
	return layout;
}

struct pd_layout *pd_sosp19_search(const struct pd_costs *costs,
				   const struct pd_topology *topology, bool straight)
{
	struct search search = {
		.costs = costs,
		.straight = straight,
		.U = costs->unit_count,
		.levels = topology->levels,
	};
	struct pd_layout *layout = NULL;

	if (set_up(&search, topology)) {
		for (int k = 1; k <= search.levels; k++)
			fill(&search, k);
		layout = answer(&search);
	}
	for (int k = 1; k <= search.levels; k++)
		free(search.level[k].value);
	return layout;
}

int64_t pd_sosp19_data_parallel_ns(const struct pd_costs *costs,
				   const struct pd_topology *topology)
{
	struct pd_work work = { .compute_ns = costs->compute_ns[costs->unit_count] };

	for (int k = 0; k < topology->levels; k++) {
		const struct pd_level *link = &topology->level[k];

		work.parameter_ns = pd_bytes_ns(costs->parameter_bytes[costs->unit_count],
						link->bandwidth_bytes_per_s);
		work.compute_ns = pd_work_ns(costs->kind, &work, link, link->count);
	}
	return work.compute_ns;
}
