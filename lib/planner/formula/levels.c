/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dynamic programme of PipeDream (SOSP 2019, section 3.1) over states, with the terms of
 * several formulas (terms.h).
 *
 * V_k(i, j) is the least time of the part of the network between states i and j, i inside j,
 * on one whole component of level k.  V_0(i, j) is its compute time.  With first(x, m) and
 * later(x, m) what a stage costs whose inside takes x on m components, and cut(s, m) what its
 * bounds cost,
 *
 *     A_k(i, j, m) = min( first(V_{k-1}(i, j), m),
 *                         min over i < s < j, 1 <= m' < m of
 *                         max( A_k(i, s, m - m'), later(V_{k-1}(s, j), m'),
 *                              cut(s, m'), cut(j, m') ) )
 *     V_k(i, j) = A_k(i, j, M_k)
 *
 * where < is "inside and not equal".  The answer is A_L(none, all, m): with all components of
 * the outermost level, or with the fewest that reach the least time.  (The paper's equation
 * has chains of layers and lacks the case of one stage, which is in its text.  The released
 * program has states too, but splits by their numbers, whether or not one is inside the
 * other.)
 *
 * A_k is needed for one i at a time, so all that is kept is V_k: one number per pair of
 * states and level.  What keeps it fast:
 *   - With D devices in a component of level k - 1, a pipeline on m of them takes at least
 *     its compute time over m D.
 *   - A_k(i, s, m) grows with s, nearly, and V_{k-1}(s, j) falls.  With the least of the first
 *     for s and all later states, and the least of the second for s and all earlier ones, it
 *     is so exactly, and for each m' the s that can do better than the best so far are
 *     neighbours: mostly none.
 */
#include "planner/formula/levels.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct level {
	struct pd_level_terms at;
	int m;                          /* components of the level below */
	double devices;                 /* devices in each of those */
	double *first, *later;          /* [m]: time of an all-reduce of m replicas per byte */
	double *value;                  /* V_k by pair; none for the outermost level */
	double *least;                  /* the least value of a state and all before it */
};

struct state {
	double compute, parameters, cut;
	double most_parameters;         /* of this and all before */
};

struct search {
	const struct pd_states *states;
	bool straight;                  /* no stage has replicas */
	int levels, n;                  /* n states */
	struct state *at;               /* per state */
	double *zero;                   /* V_0 by pair */
	struct level level[PD_MAX_LEVELS + 1];         /* 1 to levels */
};

/* The last stage of a pipeline: the state behind which it begins, and its components. */
struct choice {
	int split;                      /* -1: the pipeline is one stage */
	int last;
};

struct row {
	double *time;                   /* [m][state] */
	double *least;                  /* the least of a state and all later ones so far */
	struct choice *choice;	/* one for each, or NULL */
};

/* Returns the place of the pairs i < j of one j, which lie side by side. */
static size_t pair(int j)
{
	return (size_t)j * (size_t)(j - 1) / 2;
}

static const double *values_below(const struct search *search, int k)
{
	return k == 1 ? search->zero : search->level[k - 1].value;
}

/* The best value of a cell so far, and the last stage that gives it. */
struct best {
	double time;
	struct choice choice;
};

/* Returns the first s in [low, high) behind which a last stage may take less than `time`. */
static int first_split(const struct search *search, int k, int j, int last, int low,
		       int high, double time)
{
	const struct level *level = &search->level[k];
	const double *least = k == 1 ? NULL : &search->level[k - 1].least[pair(j)];

	while (low < high) {
		int s = low + (high - low) / 2;
		double inside = least ? least[s] : search->at[j].compute - search->at[s].compute;
		double bytes = search->at[j].parameters - search->at[s].most_parameters;

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
static void try_splits(const struct search *search, int k, int i, int j, int m, int last,
		       const struct row *row, struct best *best)
{
	const struct level *level = &search->level[k];
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
		time = pd_terms_stage(at, below[s], allreduce * (search->at[j].parameters -
								 search->at[s].parameters), last);
		if (cut * search->at[s].cut > time)
			time = cut * search->at[s].cut;
		if (before[s] > time)
			time = before[s];
		if (time < best->time)
			*best = (struct best){ time, { s, last } };
	}
}

static struct best cell(const struct search *search, int k, int i, int j, int m,
			const struct row *row)
{
	const struct level *level = &search->level[k];
	const struct pd_level_terms *at = &level->at;
	double inside = values_below(search, k)[pair(j) + (size_t)i], time;
	struct best best = { HUGE_VAL, { -2, 0 } };

	if (inside < HUGE_VAL && !(search->straight && m > 1)) {
		time = pd_terms_stage(at, inside, level->first[m] *
				      (search->at[j].parameters - search->at[i].parameters), m);
		if (time < best.time)
			best = (struct best){ time, { -1, m } };
	}
	if (search->at[j].compute - search->at[i].compute >= best.time * m * level->devices)
		m = 0;          /* no pipeline is better */
	for (int last = 1; last < m && last < (search->straight ? 2 : m); last++) {
		double out = at->released && j < search->n - 1
			? pd_terms_cut(at, search->at[j].cut, last) : 0;
		struct best tried = best;

		if (out >= best.time)
			continue;
		try_splits(search, k, i, j, m, last, row, &tried);
		if (tried.time < best.time)
			best = (struct best){ fmax(tried.time, out), tried.choice };
	}
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

static void fill_row(const struct search *search, int k, int i, int end, struct row *row)
{
	size_t n = (size_t)search->n;

	for (int j = i + 1; j <= end; j++)
		for (int m = 1; m <= search->level[k].m; m++) {
			struct best best = { HUGE_VAL, { -2, 0 } };

			if (search->zero[pair(j) + (size_t)i] < HUGE_VAL)
				best = cell(search, k, i, j, m, row);
			put(row, (size_t)m * n, i, j, best.time);
			if (row->choice)
				row->choice[(size_t)m * n + (size_t)j] = best.choice;
		}
}

static void row_init(const struct search *search, int k, struct row *row, bool choices)
{
	size_t cells = (size_t)(search->level[k].m + 1) * (size_t)search->n;

	row->time = pd_calloc(cells, sizeof(*row->time));
	row->least = pd_calloc(cells, sizeof(*row->least));
	row->choice = choices ? pd_calloc(cells, sizeof(*row->choice)) : NULL;
}

static void row_release(struct row *row)
{
	free(row->time);
	free(row->least);
	free(row->choice);
}

/* Computes V_k for all pairs. */
static void fill_level(struct search *search, int k)
{
	const struct level *level = &search->level[k];
	int n = search->n;
	struct row row;

	row_init(search, k, &row, false);
	for (int i = 0; i < n - 1; i++) {
		fill_row(search, k, i, n - 1, &row);
		for (int j = i + 1; j < n; j++) {
			double time = row.time[(size_t)level->m * (size_t)n + (size_t)j];

			level->value[pair(j) + (size_t)i] = time;
			level->least[pair(j) + (size_t)i] = i ?
				fmin(time, level->least[pair(j) + (size_t)i - 1]) : time;
		}
	}
	row_release(&row);
}

static void search_init(struct search *search, const struct pd_states *states,
			const struct pd_topology *topology, enum pd_cost_kind kind, bool straight)
{
	int n = states->count;
	double devices = 1;

	*search = (struct search){
		.states = states, .straight = straight, .levels = topology->levels, .n = n,
		.at = pd_calloc((size_t)n, sizeof(*search->at)),
		.zero = pd_calloc(pair(n), sizeof(double)),
	};
	for (int s = 0; s < n; s++) {
		double parameters = (double)states->parameter_bytes[s];

		search->at[s] = (struct state){
			(double)states->compute_ns[s], parameters, (double)states->cut_bytes[s],
			fmax(parameters, s ? search->at[s - 1].most_parameters : 0) };
		for (int i = 0; i < s; i++)
			search->zero[pair(s) + (size_t)i] =
				pd_states_within(states, i, s)
				? search->at[s].compute - search->at[i].compute : HUGE_VAL;
	}
	for (int k = 1; k <= search->levels; k++) {
		struct level *level = &search->level[k];

		level->at = pd_level_terms(kind, topology, k - 1);
		level->m = (int)topology->level[k - 1].count;
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

static void search_release(struct search *search)
{
	free(search->at);
	free(search->zero);
	for (int k = 1; k <= search->levels; k++) {
		free(search->level[k].first);
		free(search->level[k].later);
		free(search->level[k].value);
		free(search->level[k].least);
	}
}

static double solve(struct search *search, int *m_p)
{
	int L = search->levels;
	double least = HUGE_VAL;
	struct row row;

	for (int k = 1; k < L; k++)
		fill_level(search, k);
	row_init(search, L, &row, false);
	fill_row(search, L, 0, search->n - 1, &row);
	for (int m = search->level[L].at.released ? search->level[L].m : 1;
	     m <= search->level[L].m; m++) {
		double time = row.time[(size_t)m * (size_t)search->n + (size_t)search->n - 1];

		if (time < least) {
			least = time;
			*m_p = m;
		}
	}
	row_release(&row);
	return least;
}

/* Ranks at which copies of a part begin; copy c does minibatch b with b mod n = c. */
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

struct answer {
	struct pd_partition *partition;
	int *ends;                      /* states */
};

static void add_stage(const struct search *search, struct answer *answer, int j,
		      const struct copies *copies)
{
	struct pd_partition *partition = answer->partition;
	int n = partition->stage_count++;

	answer->ends[n] = j;
	partition->replicas[n] = copies->n;
	partition->ranks[n] = pd_calloc((size_t)copies->n, sizeof(int));
	memcpy(partition->ranks[n], copies->base, (size_t)copies->n * sizeof(int));
}

/*
 * Follows A_k(i, j, m) back, whose copies begin at the given ranks.  The minibatches of a copy go
 * round its parts in turn.  So a stage's replicas are numbered with the outer component varying
 * fastest, and a minibatch stays inside its component.
 */
static void walk(const struct search *search, struct answer *answer, int k, int i, int j,
		 int m, const struct copies *copies)
{
	const struct level *level = &search->level[k];
	struct choice *parts;
	struct row row;
	int count = 0, used = 0;

	if (!k) {
		add_stage(search, answer, j, copies);
		return;
	}
	row_init(search, k, &row, true);
	fill_row(search, k, i, j, &row);
	parts = pd_calloc((size_t)m, sizeof(*parts));
	for (int end = j, left = m; left > 0;) {       /* from the last stage to the first */
		struct choice c = row.choice[(size_t)left * (size_t)search->n + (size_t)end];

		if (c.split == -2)
			pd_bug("planner: level %d has no plan for states %d to %d", k, i, end);
		parts[count++] = (struct choice){ end, c.last };
		left -= c.last;
		end = c.split;
	}
	row_release(&row);
	for (int from = i; count-- > 0; from = parts[count].split) {
		struct copies inner = shift(copies, used * (int64_t)level->devices,
					    parts[count].last, (int64_t)level->devices);

		walk(search, answer, k - 1, from, parts[count].split,
		     k > 1 ? search->level[k - 1].m : 1, &inner);
		used += parts[count].last;
		free(inner.base);
	}
	free(parts);
}

static struct pd_partition *lay_out(const struct search *search, int m, double time)
{
	struct answer answer = { .partition = pd_zalloc(sizeof(*answer.partition)) };
	struct pd_partition *partition = answer.partition;
	struct copies one = { 1, (int[]){ 0 } };
	size_t most = (size_t)search->n;

	answer.ends = pd_calloc(most, sizeof(*answer.ends));
	partition->cost_ns = pd_terms_round(time);
	partition->replicas = pd_calloc(most, sizeof(*partition->replicas));
	partition->ranks = pd_calloc(most, sizeof(*partition->ranks));
	walk(search, &answer, search->levels, 0, search->n - 1, m, &one);
	pd_states_layers(search->states, answer.ends, partition->stage_count,
			 &partition->layers, &partition->order);
	free(answer.ends);
	return partition;
}

struct pd_partition *pd_levels_search(const struct pd_states *states, const struct pd_topology *topology,
				      enum pd_cost_kind kind, bool straight, double *time_p)
{
	struct pd_partition *partition = NULL;
	struct search search;
	double time;
	int m = 0;

	search_init(&search, states, topology, kind, straight);
	time = solve(&search, &m);
	if (time < HUGE_VAL)
		partition = lay_out(&search, m, time);
	if (time_p)
		*time_p = time;
	search_release(&search);
	return partition;
}
