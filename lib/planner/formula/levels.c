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
 *   - A plan over the states of one long chain is found first, in the same way; its time T is
 *     a limit.  What V_k may be, then, is at most T times the replicas that the levels above
 *     can have, and everything above that is as good as never.
 *   - With D devices in a component of level k - 1, a pipeline on m of them takes at least
 *     its compute time over m D.
 *   - A_k(i, s, m) grows with s, nearly, and V_{k-1}(s, j) falls.  With the least of the first
 *     for s and all later states, and the least of the second for s and all earlier ones, it
 *     is so exactly, and for each m' the s that can do better than the best so far are
 *     neighbours: mostly none.
 */
#include "planner/formula/levels.h"

#include "base/mem.h"
#include "planner/formula/levels_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COARSE 96               /* states of the coarse plan that is found first */

/* Thins out a long chain of states into `chain`; returns how many it has. */
static int coarse(const struct pd_states *states, int *chain)
{
	int count = 0, at = 0, kept = 0;

	for (int s = 0; s < states->count; s++)
		if (pd_states_within(states, at, s))
			chain[count++] = at = s;
	for (int p = 0; count > COARSE && p < COARSE; p++)
		chain[kept++] = chain[(int64_t)p * (count - 1) / (COARSE - 1)];
	return count > COARSE ? kept : count;
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

static void add_stage(const struct levels_search *search, struct answer *answer, int j,
		      const struct copies *copies)
{
	struct pd_partition *partition = answer->partition;
	int n = partition->stage_count++;

	answer->ends[n] = search->state[j];
	partition->replicas[n] = copies->n;
	partition->ranks[n] = pd_calloc((size_t)copies->n, sizeof(int));
	memcpy(partition->ranks[n], copies->base, (size_t)copies->n * sizeof(int));
}

/*
 * Follows A_k(i, j, m) back, whose copies begin at the given ranks.  The minibatches of a copy go
 * round its parts in turn.  So a stage's replicas are numbered with the outer component varying
 * fastest, and a minibatch stays inside its component.
 */
static void walk(const struct levels_search *search, struct answer *answer, int k, int i, int j,
		 int m, double limit, const struct copies *copies)
{
	const struct levels_level *level = &search->level[k];
	struct levels_choice *parts;
	struct row row;
	int count = 0, used = 0;

	if (!k) {
		add_stage(search, answer, j, copies);
		return;
	}
	pd_levels_row_init(search, k, &row, true);
	pd_levels_fill(search, k, i, j, &row, limit);
	parts = pd_calloc((size_t)m, sizeof(*parts));
	for (int end = j, left = m; left > 0;) {       /* from the last stage to the first */
		struct levels_choice c = row.choice[(size_t)left * (size_t)search->n + (size_t)end];

		if (c.split == -2)
			pd_bug("planner: level %d has no plan for states %d to %d", k, i, end);
		parts[count++] = (struct levels_choice){ end, c.last };
		left -= c.last;
		end = c.split;
	}
	pd_levels_row_release(&row);
	for (int from = i; count-- > 0; from = parts[count].split) {
		struct copies inner = shift(copies, used * (int64_t)level->devices,
					    parts[count].last, (int64_t)level->devices);

		walk(search, answer, k - 1, from, parts[count].split,
		     k > 1 ? search->level[k - 1].m : 1, limit * parts[count].last, &inner);
		used += parts[count].last;
		free(inner.base);
	}
	free(parts);
}

static struct pd_partition *lay_out(const struct levels_search *search, int m, double time)
{
	struct answer answer = { .partition = pd_zalloc(sizeof(*answer.partition)) };
	struct pd_partition *partition = answer.partition;
	struct copies one = { 1, (int[]){ 0 } };
	size_t most = (size_t)search->n;

	answer.ends = pd_calloc(most, sizeof(*answer.ends));
	partition->cost_ns = pd_terms_round(time);
	partition->replicas = pd_calloc(most, sizeof(*partition->replicas));
	partition->ranks = pd_calloc(most, sizeof(*partition->ranks));
	walk(search, &answer, search->levels, 0, search->n - 1, m, pd_levels_above(time), &one);
	pd_states_layers(search->question->states, answer.ends, partition->stage_count,
			 &partition->layers, &partition->order);
	free(answer.ends);
	return partition;
}

struct pd_partition *pd_levels_search(const struct pd_levels *levels, double *time_p)
{
	const struct pd_states *states = levels->states;
	int *state = pd_calloc((size_t)states->count, sizeof(*state)), n, m = 0;
	struct pd_partition *partition = NULL;
	double time = HUGE_VAL;
	struct levels_search search;

	n = coarse(states, state);
	if (n < states->count) {
		pd_levels_init(&search, levels, state, n);
		time = pd_levels_solve(&search, HUGE_VAL, &m);
		pd_levels_release(&search);
	}
	for (int s = 0; s < states->count; s++)
		state[s] = s;
	pd_levels_init(&search, levels, state, states->count);
	time = pd_levels_solve(&search, time, &m);
	if (time < HUGE_VAL)
		partition = lay_out(&search, m, time);
	if (time_p)
		*time_p = time;
	pd_levels_release(&search);
	free(state);
	return partition;
}
