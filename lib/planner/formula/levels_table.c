/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the recurrence of levels.c. */
#include "planner/formula/levels_table.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

/* Returns the place of the pairs i < j of one j, which lie side by side. */
static size_t pair(int j)
{
	return (size_t)j * (size_t)(j - 1) / 2;
}

static const double *values_below(const struct levels_search *search, int k)
{
	return k == 1 ? search->zero : search->level[k - 1].value;
}

/* Returns the first s in [low, high) with compute[s] > more, or high. */
static int first_above(const struct levels_search *search, int low, int high, double more)
{
	while (low < high) {
		int middle = low + (high - low) / 2;

		if (search->compute[middle] > more)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

/* The best value of a cell so far, and the last stage that gives it. */
struct best {
	double time;
	struct levels_choice choice;
};

/* Returns the first s in [low, high) behind which a last stage may take less than `time`. */
static int first_split(const struct levels_search *search, int k, int j, int last, int low,
		       int high, double time)
{
	const struct levels_level *level = &search->level[k];
	const double *least = k == 1 ? NULL : &search->level[k - 1].least[pair(j)];

	while (low < high) {
		int s = low + (high - low) / 2;
		double inside = least ? least[s] : search->compute[j] - search->compute[s];
		double bytes = search->parameters[j] - search->most_parameters[s];

		if (pd_terms_stage(&level->at, inside, level->later[last] * fmax(bytes, 0),
				   last) < time)
			high = s;
		else
			low = s + 1;
	}
	return low;
}

/* Returns the first s in [low, high) before which everything takes `time` or more. */
static int end_of_splits(const double *least, int low, int high, double time)
{
	while (low < high) {
		int s = low + (high - low) / 2;

		if (least[s] >= time)
			high = s;
		else
			low = s + 1;
	}
	return low;
}

/* Tries all s for one number of replicas of the last stage. */
static void try_splits(const struct levels_search *search, int k, int i, int j, int m, int last,
		       const struct row *row, struct best *best)
{
	const struct levels_level *level = &search->level[k];
	const struct pd_level_terms *at = &level->at;
	const double *below = &values_below(search, k)[pair(j)];
	size_t of_before = (size_t)(m - last) * (size_t)search->n;
	const double *before = &row->time[of_before];
	double allreduce = level->later[last], cut = pd_terms_cut(at, 1, last);
	int end = end_of_splits(&row->least[of_before], i + 1, j, best->time);

	for (int s = first_split(search, k, j, last, i + 1, end, best->time); s < end; s++) {
		double time;

		if (before[s] >= best->time || below[s] == HUGE_VAL)
			continue;
		time = pd_terms_stage(at, below[s], allreduce * (search->parameters[j] -
								 search->parameters[s]), last);
		if (cut * search->cut[s] > time)
			time = cut * search->cut[s];
		if (before[s] > time)
			time = before[s];
		if (time < best->time)
			*best = (struct best){ time, { s, last } };
	}
}

static struct best cell(const struct levels_search *search, int k, int i, int j, int m,
			const struct row *row, double limit)
{
	const struct levels_level *level = &search->level[k];
	const struct pd_level_terms *at = &level->at;
	bool straight = search->question->straight;
	double inside = values_below(search, k)[pair(j) + (size_t)i], time;
	struct best best = { limit, { -2, 0 } };

	if (inside < HUGE_VAL && !(straight && m > 1)) {
		time = pd_terms_stage(at, inside, level->first[m] *
				      (search->parameters[j] - search->parameters[i]), m);
		if (time < best.time)
			best = (struct best){ time, { -1, m } };
	}
	if (search->compute[j] - search->compute[i] >= best.time * m * level->devices)
		m = 0;          /* no pipeline is better */
	for (int last = 1; last < m && last < (straight ? 2 : m); last++) {
		if (at->terms->by_receiver && j < search->n - 1 &&
		    pd_terms_cut(at, search->cut[j], last) >= best.time)
			continue;
		if (at->terms->by_receiver && j < search->n - 1) {
			struct best tried = best;
			double out = pd_terms_cut(at, search->cut[j], last);

			try_splits(search, k, i, j, m, last, row, &tried);
			if (tried.time < best.time) {
				best = tried;
				best.time = fmax(tried.time, out);
			}
			continue;
		}
		try_splits(search, k, i, j, m, last, row, &best);
	}
	if (best.choice.split == -2)
		best.time = HUGE_VAL;
	return best;
}

/* Stores the value of states i and j; j is the last of the row so far. */
static void put(const struct row *row, size_t first, int i, int j, double time)
{
	double *least = &row->least[first];

	row->time[first + (size_t)j] = least[j] = time;
	while (--j > i && least[j] > time)
		least[j] = time;
}

void pd_levels_fill(const struct levels_search *search, int k, int i, int end, struct row *row,
		     double limit)
{
	size_t n = (size_t)search->n;

	for (int j = i + 1; j <= end; j++)
		for (int m = 1; m <= search->level[k].m; m++) {
			struct best best = { HUGE_VAL, { -2, 0 } };

			if (search->zero[pair(j) + (size_t)i] < HUGE_VAL)
				best = cell(search, k, i, j, m, row, limit);
			put(row, (size_t)m * n, i, j, best.time);
			if (row->choice)
				row->choice[(size_t)m * n + (size_t)j] = best.choice;
		}
}

void pd_levels_row_init(const struct levels_search *search, int k, struct row *row, bool choices)
{
	size_t cells = (size_t)(search->level[k].m + 1) * (size_t)search->n;

	row->time = pd_calloc(cells, sizeof(*row->time));
	row->least = pd_calloc(cells, sizeof(*row->least));
	row->choice = choices ? pd_calloc(cells, sizeof(*row->choice)) : NULL;
}

void pd_levels_row_release(struct row *row)
{
	free(row->time);
	free(row->least);
	free(row->choice);
}

/*
 * Tells whether a stage of the outermost level can begin behind state i: the layers before need at
 * least so many components, and the rest are for what follows.
 */
static bool can_begin(const struct levels_search *search, int i)
{
	const struct levels_level *top = &search->level[search->levels];
	double each = top->limit * top->devices, all = search->compute[search->n - 1];
	double before = fmax(1, ceil(search->compute[i] / each));

	return !(before >= top->m || all - search->compute[i] > each * (top->m - before));
}

/* Computes V_k for all pairs that are of use. */
static void fill_level(struct levels_search *search, int k)
{
	const struct levels_level *level = &search->level[k];
	double most = level->limit * level->m * level->devices;
	int n = search->n;
	struct row row;

	pd_levels_row_init(search, k, &row, false);
	for (int i = 0; i < n - 1; i++) {
		int end = i ? first_above(search, i + 1, n, search->compute[i] + most) - 1
			    : n - 1;

		if (i && k == search->levels - 1 && !can_begin(search, i))
			end = i;
		pd_levels_fill(search, k, i, end, &row,
			 i ? level->limit : fmax(level->limit, level->whole_limit));
		for (int j = i + 1; j < n; j++) {
			double time = j > end ? HUGE_VAL :
				row.time[(size_t)level->m * (size_t)n + (size_t)j];

			level->value[pair(j) + (size_t)i] = time;
			level->least[pair(j) + (size_t)i] = i ?
				fmin(time, level->least[pair(j) + (size_t)i - 1]) : time;
		}
	}
	pd_levels_row_release(&row);
}

double pd_levels_above(double time)
{
	return time * (1 + 1e-9) + 1e-6;
}

/*
 * Sets how much longer than the plan a part may take, by the replicas that it can have above: all
 * for the whole network, and all but one of some level for a part.
 */
static void set_limits(struct levels_search *search, double time)
{
	double whole = pd_levels_above(time), part = search->question->straight ? whole : 0;

	search->level[search->levels].limit = search->level[search->levels].whole_limit = whole;
	for (int k = search->levels; k > 1 && !search->question->straight; k--) {
		part = fmax(part * search->level[k].m, whole * (search->level[k].m - 1));
		whole *= search->level[k].m;
		search->level[k - 1].limit = part;
		search->level[k - 1].whole_limit = whole;
	}
	for (int k = search->levels; k > 1 && search->question->straight; k--)
		search->level[k - 1].limit = search->level[k - 1].whole_limit = whole;
}

void pd_levels_init(struct levels_search *search, const struct pd_levels *question,
			const int *state, int n)
{
	const struct pd_states *states = question->states;
	double devices = 1;

	*search = (struct levels_search){
		.question = question, .levels = question->topology->levels, .n = n,
		.state = state,
		.compute = pd_calloc((size_t)n, sizeof(double)),
		.parameters = pd_calloc((size_t)n, sizeof(double)),
		.cut = pd_calloc((size_t)n, sizeof(double)),
		.most_parameters = pd_calloc((size_t)n, sizeof(double)),
		.zero = pd_calloc(pair(n), sizeof(double)),
	};
	for (int s = 0; s < n; s++) {
		search->compute[s] = (double)states->compute_ns[state[s]];
		search->parameters[s] = (double)states->parameter_bytes[state[s]];
		search->cut[s] = (double)states->cut_bytes[state[s]];
		search->most_parameters[s] = fmax(search->parameters[s],
						  s ? search->most_parameters[s - 1] : 0);
		for (int i = 0; i < s; i++)
			search->zero[pair(s) + (size_t)i] =
				pd_states_within(states, state[i], state[s])
				? search->compute[s] - search->compute[i] : HUGE_VAL;
	}
	for (int k = 1; k <= search->levels; k++) {
		struct levels_level *level = &search->level[k];

		level->at = pd_level_terms(question->kind, question->topology, k - 1);
		level->m = (int)question->topology->level[k - 1].count;
		level->devices = devices;
		devices *= level->m;
		level->first = pd_calloc((size_t)level->m + 1, sizeof(double));
		level->later = pd_calloc((size_t)level->m + 1, sizeof(double));
		for (int m = 1; m <= level->m; m++) {
			level->first[m] = pd_terms_allreduce(&level->at, m, true);
			level->later[m] = pd_terms_allreduce(&level->at, m, false);
		}
		if (k < search->levels) {
			level->value = pd_calloc(pair(n), sizeof(double));
			level->least = pd_calloc(pair(n), sizeof(double));
		}
	}
}

void pd_levels_release(struct levels_search *search)
{
	free(search->compute);
	free(search->parameters);
	free(search->cut);
	free(search->most_parameters);
	free(search->zero);
	for (int k = 1; k <= search->levels; k++) {
		free(search->level[k].first);
		free(search->level[k].later);
		free(search->level[k].value);
		free(search->level[k].least);
	}
}

double pd_levels_solve(struct levels_search *search, double limit, int *m_p)
{
	int L = search->levels;
	double least = HUGE_VAL;
	struct row row;

	set_limits(search, limit);
	for (int k = 1; k < L; k++)
		fill_level(search, k);
	pd_levels_row_init(search, L, &row, false);
	pd_levels_fill(search, L, 0, search->n - 1, &row, search->level[L].limit);
	for (int m = search->level[L].at.terms->all_used ? search->level[L].m : 1;
	     m <= search->level[L].m; m++) {
		double time = row.time[(size_t)m * (size_t)search->n + (size_t)search->n - 1];

		if (time < least) {
			least = time;
			*m_p = m;
		}
	}
	pd_levels_row_release(&row);
	return least;
}
