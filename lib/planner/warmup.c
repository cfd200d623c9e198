/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Warm-ups as a choice.
 *
 * Published planners take the warm-up of a stage as given, one minibatch for each rank behind
 * it: enough to keep all busy if transfers took no time and replicas did not wait for each
 * other.  They do, and more minibatches in flight hide it, at the price of the memory that they
 * take.
 *
 * For a period P the least warm-ups follow from the cycles of flow.c.  Let lead_s = w_s r_s,
 * t_s = forward + backward, A_s the all-reduce and update, C_s the transfer to s + 1.  What
 * comes back to s from the stages behind it takes, with
 *
 *     X_s = t_s + 2 C_s + G_{s+1},     G_s = max( lead_s P + t_s,  X_s ),     G_S = 0,
 *
 * at least X_s (the cycle that turns at e takes lead_e P less, for as many minibatches overtake
 * it there), so
 *
 *     (lead_s + r_s) P >= X_s + A_s
 *
 * and lead_s >= lead_{s+1}, or the pipeline would deadlock.  Replicas that update together
 * begin together: minibatches come to s + 1 in bursts of r_s, of which the last comes back last
 * and the first goes on after that.  So what is ahead for r_s minibatches without replicas is
 * ahead for one, in the worst case: lead_s + 1 in place of lead_s + r_s.  Both are tried, what
 * SOSP 2019 takes too, and the estimate decides; then warm-ups are given back one at a time as
 * long as that costs nothing.
 */
#include "planner/warmup.h"

#include "base/mem.h"
#include "planner/candidate.h"
#include "planner/cost.h"
#include "planner/flow.h"
#include "planner/links.h"
#include "schedule/schedule.h"
#include "trace/steady.h"

#include <stdlib.h>
#include <string.h>

#define MOST_PAIRS 64           /* of replicas of two stages, looked at for the slowest way */
#define MOST_STEPS 16           /* warm-ups that are tried to be given back */
#define LARGE 100000            /* stages times minibatches in flight: then one guess is taken */

int pd_warmup_most(const struct pd_plan *plan, int stage)
{
	int64_t behind = 0, r = plan->stages[stage].replicas;

	for (int s = stage + 1; s < plan->stage_count; s++)
		behind += plan->stages[s].replicas;
	return behind ? (int)pd_ceil_div(2 * behind, r) + 1 : 0;
}

/* No stage lets in more than the one before. */
static void descend(struct pd_plan *plan)
{
	for (int s = 1; s < plan->stage_count; s++) {
		const struct pd_stage *before = &plan->stages[s - 1];
		int64_t lead = (int64_t)before->warmup * before->replicas;

		if ((int64_t)plan->stages[s].warmup * plan->stages[s].replicas > lead)
			plan->stages[s].warmup = (int)(lead / plan->stages[s].replicas);
	}
}

bool pd_warmup_fit(struct pd_plan *plan, int64_t limit_bytes)
{
	struct pd_error err;

	if (plan->weights == PD_WEIGHTS_2BW) {
		int64_t most = plan->microbatches / plan->stages[0].replicas;

		if (plan->stages[0].warmup > most)
			plan->stages[0].warmup = (int)most;
	}
	for (;;) {
		bool fits = true, fewer = false;

		descend(plan);
		if (!pd_candidate_weigh(plan, &err))
			return false;
		for (int s = 0; s < plan->stage_count; s++) {
			struct pd_stage *stage = &plan->stages[s];
			/* under vertical-sync stages keep what the first one is ahead */
			bool first = plan->weights == PD_WEIGHTS_VERTICAL_SYNC;

			if (stage->memory_bytes <= limit_bytes)
				continue;
			fits = false;
			if (!stage->warmup && first)
				stage = &plan->stages[0];
			if (stage->warmup > 0) {
				stage->warmup--;
				fewer = true;
			}
		}
		if (fits || !fewer)
			return fits;
	}
}

static int64_t estimate(const struct pd_plan *plan)
{
	struct pd_error err;
	struct pd_schedule *schedule = pd_schedule_new(plan, &err);
	int64_t ns;

	if (!schedule)
		return PD_COST_MAX;
	ns = pd_flow_bound_ns(schedule);
	pd_schedule_free(schedule);
	return ns;
}

/* To the stage behind, at its slowest. */
static int64_t transfer_ns(const struct pd_plan *plan, const struct pd_wiring *wiring, int s)
{
	int64_t most = 0;

	for (int i = 0; i < wiring->out_count[s]; i++) {
		const struct pd_link *link = &wiring->links[wiring->out[s][i]];
		const struct pd_stage *a = &plan->stages[s], *b = &plan->stages[link->to];

		if (link->to != s + 1)
			continue;
		for (int n = 0; n < MOST_PAIRS && n < a->replicas * b->replicas; n++)
			most = pd_max64(most, pd_topology_transfer_ns(&plan->topology,
					a->ranks[n % a->replicas], b->ranks[n % b->replicas],
					link->bytes));
	}
	return most;
}

/* What the windows say, for a period. */
struct window {
	int64_t *pass_ns, *update_ns, *transfer_ns;     /* per stage: t, A, C */
};

static void window_init(struct window *window, const struct pd_plan *plan)
{
	struct pd_wiring *wiring = pd_wiring_new(plan);
	size_t stages = (size_t)plan->stage_count;

	window->pass_ns = pd_calloc(3 * stages, sizeof(int64_t));
	window->update_ns = window->pass_ns + stages;
	window->transfer_ns = window->update_ns + stages;
	for (int s = 0; s < plan->stage_count; s++) {
		const struct pd_stage *stage = &plan->stages[s];

		window->pass_ns[s] = stage->forward_ns * (stage->recompute ? 2 : 1) +
				     stage->backward_ns;
		window->update_ns[s] = stage->allreduce_ns;
		for (int l = stage->first_layer; l < stage->first_layer + stage->layer_count; l++)
			window->update_ns[s] += plan->profile->layers[l].update_ns;
		window->transfer_ns[s] = transfer_ns(plan, wiring, s);
	}
	pd_wiring_free(wiring);
}

static void set_least(struct pd_plan *plan, const struct window *window, int64_t period,
		      bool together)
{
	int64_t behind = 0, lead = 0;

	if (period < 1)
		period = 1;
	for (int s = plan->stage_count - 1; s >= 0; s--) {
		struct pd_stage *stage = &plan->stages[s];
		int64_t r = stage->replicas, back, need;
		int most = pd_warmup_most(plan, s);

		back = window->pass_ns[s] + 2 * window->transfer_ns[s] + behind;
		need = pd_ceil_div(back + window->update_ns[s], period) -
			(together && window->update_ns[s] > 0 ? 1 : r);
		need = s == plan->stage_count - 1 ? 0 : pd_max64(need, lead);
		stage->warmup = (int)pd_ceil_div(need, r);
		if (stage->warmup > most)
			stage->warmup = (int)pd_max64(most, pd_ceil_div(lead, r));
		lead = stage->warmup * r;
		behind = pd_max64(lead * period + window->pass_ns[s], back);
	}
}

struct choice {
	struct pd_plan *plan;
	int64_t limit_bytes, best_ns;
	int *best;                      /* warm-ups */
	int64_t work;
};

/* Tries those that the plan has now. */
static void try(struct choice *choice, bool settle_for_equal)
{
	struct pd_plan *plan = choice->plan;
	int64_t ns;

	if (!pd_warmup_fit(plan, choice->limit_bytes))
		return;
	ns = estimate(plan);
	choice->work += plan->stage_count * (4 * pd_steady_in_flight(plan) + 16);
	if (choice->best_ns >= 0 && ns >= choice->best_ns + settle_for_equal)
		return;
	choice->best_ns = ns;
	for (int s = 0; s < plan->stage_count; s++)
		choice->best[s] = plan->stages[s].warmup;
}

static void restore(struct choice *choice)
{
	for (int s = 0; s < choice->plan->stage_count; s++)
		choice->plan->stages[s].warmup = choice->best[s];
}

static void give_back(struct choice *choice)
{
	struct pd_plan *plan = choice->plan;
	int steps = 0;

	for (int s = 0; s + 1 < plan->stage_count; s++) {
		int64_t next;

		do {
			restore(choice);
			next = (int64_t)plan->stages[s + 1].warmup * plan->stages[s + 1].replicas;
			plan->stages[s].warmup--;
			if ((int64_t)plan->stages[s].warmup * plan->stages[s].replicas < next ||
			    steps++ >= MOST_STEPS)
				break;
			try(choice, true);
		} while (choice->best[s] == plan->stages[s].warmup);
	}
}

/* What the slowest stage takes by itself. */
static int64_t slowest_ns(const struct pd_plan *plan, const struct window *window)
{
	int64_t most = 0;

	for (int s = 0; s < plan->stage_count; s++)
		most = pd_max64(most, pd_ceil_div(window->pass_ns[s] + window->update_ns[s],
						  plan->stages[s].replicas));
	return most;
}

/* By what is expected of several; more than usual only where that is worth the memory. */
static void compare_some(struct choice *choice, const struct window *window)
{
	struct pd_plan *plan = choice->plan;
	int64_t usual, period;

	for (int s = 0; s < plan->stage_count; s++)
		plan->stages[s].warmup = pd_plan_warmup(plan, s);
	try(choice, false);
	if (choice->best_ns <= 0 || plan->stage_count == 1)
		return;
	usual = choice->best_ns;
	for (int s = 0; s < plan->stage_count; s++)
		plan->stages[s].warmup = pd_warmup_most(plan, s);
	choice->best_ns -= usual / PD_WARMUP_WORTH;
	try(choice, false);
	period = choice->best_ns;
	if (period == usual - usual / PD_WARMUP_WORTH)
		choice->best_ns = usual;
	else
		for (int together = 0; together < 2; together++) {
			set_least(plan, window, period, together);
			try(choice, true);
		}
	give_back(choice);
}

int64_t pd_warmup_choose(struct pd_plan *plan, int64_t limit_bytes, int64_t *work)
{
	struct choice choice = { plan, limit_bytes, -1, NULL, 0 };
	struct window window;

	choice.best = pd_calloc((size_t)plan->stage_count, sizeof(int));
	window_init(&window, plan);
	if ((int64_t)plan->stage_count * plan->rank_count <= LARGE) {
		compare_some(&choice, &window);
	} else {
		set_least(plan, &window, slowest_ns(plan, &window), true);
		try(&choice, false);
	}
	restore(&choice);
	if (!pd_warmup_fit(plan, limit_bytes))
		choice.best_ns = -1;
	if (work)
		*work += choice.work;
	free(window.pass_ns);
	free(choice.best);
	return choice.best_ns;
}
