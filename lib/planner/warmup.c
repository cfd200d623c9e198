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
 * long as that costs nothing, and of stages that recompute as many as that then takes to do
 * without.
 */
#include "planner/warmup.h"

#include "base/mem.h"
#include "planner/candidate.h"
#include "planner/cost.h"
#include "planner/flow.h"
#include "planner/links.h"
#include "planner/predict.h"
#include "planner/recompute.h"
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

/* One less on each stage that does not fit; whether there was any. */
static bool take_back(struct pd_plan *plan, const struct pd_warmup_room *room)
{
	bool fewer = false;

	for (int s = 0; s < plan->stage_count; s++) {
		struct pd_stage *stage = &plan->stages[s];
		/* under vertical-sync stages keep what the first one is ahead */
		bool first = plan->weights == PD_WEIGHTS_VERTICAL_SYNC;

		if (stage->memory_bytes <= room->limit_bytes)
			continue;
		if (!stage->warmup && first)
			stage = &plan->stages[0];
		if (stage->warmup > 0) {
			stage->warmup--;
			fewer = true;
			/* it may fit without; with one in flight there is nothing to win by it */
			if (room->recompute ||
			    (!stage->warmup && plan->schedule == PD_SCHEDULE_1F1B))
				stage->recompute = false;
		}
	}
	return fewer;
}

/* The schedule of as many as fit, or NULL. */
static struct pd_schedule *fit(struct pd_plan *plan, struct pd_warmup_room *room)
{
	struct pd_error err;

	if (plan->weights == PD_WEIGHTS_2BW) {
		int64_t most = plan->microbatches / plan->stages[0].replicas;

		if (plan->stages[0].warmup > most)
			plan->stages[0].warmup = (int)most;
	}
	for (;;) {
		struct pd_schedule *schedule;
		bool fits, again = false;

		descend(plan);
		schedule = pd_schedule_new(plan, &err);
		if (!schedule)
			return NULL;
		pd_predict_memory(plan, schedule);
		fits = pd_candidate_fullest(plan, NULL) <= room->limit_bytes;
		if (!fits && room->recompute)
			again = pd_recompute_more(plan, schedule, room->limit_bytes);
		if (fits)
			return schedule;
		pd_schedule_free(schedule);
		room->tight = true;
		if (!again && !take_back(plan, room))
			return NULL;
	}
}

bool pd_warmup_fit(struct pd_plan *plan, struct pd_warmup_room *room)
{
	struct pd_schedule *schedule = fit(plan, room);

	pd_schedule_free(schedule);
	return schedule != NULL;
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
		for (int64_t n = 0; n < MOST_PAIRS && n < (int64_t)a->replicas * b->replicas; n++)
			most = pd_max64(most, pd_topology_transfer_ns(&plan->topology,
					a->ranks[n % a->replicas], b->ranks[n % b->replicas],
					link->bytes));
	}
	return pd_min64(most, PD_COST_MAX);
}

/* What the windows say, for a period. */
struct window {
	int64_t *pass_ns, *update_ns, *transfer_ns;     /* per stage: t, A, C */
	int64_t *once_ns;       /* t where no stage recomputes but those that must */
	int64_t *sends_ns;      /* of A, what a replica sends, at least */
	int64_t busiest_ns;     /* of links */
};

/* What recomputes takes longer. */
static void window_pass(struct window *window, const struct pd_plan *plan)
{
	for (int s = 0; s < plan->stage_count; s++)
		window->pass_ns[s] = plan->stages[s].forward_ns *
				     (plan->stages[s].recompute ? 2 : 1) +
				     plan->stages[s].backward_ns;
}

/* What a replica sends for an update, if each of its minibatches has one; at least. */
static int64_t own_sends_ns(const struct pd_plan *plan, int s)
{
	const struct pd_stage *stage = &plan->stages[s];
	struct pd_reduce *reduces;
	int64_t least = INT64_MAX;

	if (stage->replicas == 1 || plan->microbatches > 1 ||
	    (plan->weights != PD_WEIGHTS_STASH && plan->weights != PD_WEIGHTS_VERTICAL_SYNC))
		return 0;
	reduces = pd_calloc((size_t)stage->replicas, sizeof(*reduces));
	pd_links_allreduce(&plan->topology, stage->ranks, stage->replicas,
			   pd_stage_parameter_bytes(plan, s), reduces);
	for (int i = 0; i < stage->replicas; i++)
		least = pd_min64(least, pd_max64(reduces[i].sends_ns, reduces[i].rest_ns));
	free(reduces);
	return least;
}

static void window_init(struct window *window, const struct pd_plan *plan)
{
	struct pd_wiring *wiring = pd_wiring_new(plan);
	size_t stages = (size_t)plan->stage_count;

	window->pass_ns = pd_calloc(5 * stages, sizeof(int64_t));
	window->update_ns = window->pass_ns + stages;
	window->transfer_ns = window->update_ns + stages;
	window->once_ns = window->transfer_ns + stages;
	window->sends_ns = window->once_ns + stages;
	window->busiest_ns = pd_links_busiest_ns(plan, wiring);
	window_pass(window, plan);
	memcpy(window->once_ns, window->pass_ns, stages * sizeof(int64_t));
	for (int s = 0; s < plan->stage_count; s++) {
		const struct pd_stage *stage = &plan->stages[s];

		window->sends_ns[s] = own_sends_ns(plan, s);
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
		int64_t r = stage->replicas, back, need, warmup;
		int most = pd_warmup_most(plan, s);

		back = pd_min64(window->pass_ns[s] + 2 * window->transfer_ns[s] + behind,
				PD_COST_MAX);
		need = pd_ceil_div(back + window->update_ns[s], period) -
			(together && window->update_ns[s] > 0 ? 1 : r);
		need = s == plan->stage_count - 1 ? 0 : pd_max64(need, lead);
		warmup = pd_ceil_div(need, r);
		if (warmup > most)
			warmup = pd_max64(most, pd_ceil_div(lead, r));
		stage->warmup = (int)warmup;
		lead = warmup * r;
		behind = pd_min64(pd_times(lead, period), PD_COST_MAX) + window->pass_ns[s];
		behind = pd_max64(behind, back);
	}
}

/* The warm-up of a stage, and whether it recomputes. */
struct way {
	int warmup;
	bool recompute;
};

/* No estimate is below it, whatever the warm-ups: the busiest link, and what a replica does. */
static int64_t without_warmups_ns(const struct pd_plan *plan, const struct window *window)
{
	int64_t most = window->busiest_ns;

	for (int s = 0; s < plan->stage_count; s++)
		most = pd_max64(most, (window->once_ns[s] + window->sends_ns[s]) /
				plan->stages[s].replicas);
	return most;
}

/*
 * The same with the warm-ups that the plan has: also the cycles of flow.c that climb from s to e
 * and come back, with the transfers that have one way only.
 */
static int64_t least_ns(const struct pd_plan *plan, const struct window *window)
{
	int64_t most = without_warmups_ns(plan, window);

	for (int s = 0; s < plan->stage_count; s++) {
		const struct pd_stage *first = &plan->stages[s];
		int64_t lead = ((int64_t)first->warmup + 1) * first->replicas, time = 0;

		for (int e = s; e < plan->stage_count; e++) {
			const struct pd_stage *last = &plan->stages[e];
			int64_t tokens = lead - (int64_t)last->warmup * last->replicas;

			time += window->once_ns[e];
			if (tokens > 0)
				most = pd_max64(most, time / tokens);
			if (last->replicas == 1 && e + 1 < plan->stage_count &&
			    last[1].replicas == 1)
				time = pd_min64(time + 2 * window->transfer_ns[e], PD_COST_MAX);
		}
	}
	return most;
}

struct choice {
	struct pd_plan *plan;
	const struct window *window;
	struct pd_warmup_room *room;
	int64_t best_ns;
	struct way *best, *asked;       /* asked: as it recomputes whatever its warm-ups */
	int64_t work;
};

/* Tries those that the plan has now. */
static void try(struct choice *choice, bool settle_for_equal)
{
	struct pd_plan *plan = choice->plan;
	struct pd_schedule *schedule;
	int64_t ns;

	for (int s = 0; s < plan->stage_count; s++)
		plan->stages[s].recompute = choice->asked[s].recompute;
	/* fewer that fit do not make it faster */
	if (choice->best_ns >= 0 &&
	    least_ns(plan, choice->window) >= choice->best_ns + settle_for_equal)
		return;
	schedule = fit(plan, choice->room);
	if (!schedule)
		return;
	ns = pd_flow_bound_ns(schedule);
	pd_schedule_free(schedule);
	choice->work += plan->stage_count * (4 * pd_steady_in_flight(plan) + 16);
	if (choice->best_ns >= 0 && ns >= choice->best_ns + settle_for_equal)
		return;
	choice->best_ns = ns;
	for (int s = 0; s < plan->stage_count; s++)
		choice->best[s] = (struct way){ plan->stages[s].warmup,
						plan->stages[s].recompute };
}

static void restore(struct choice *choice)
{
	for (int s = 0; s < choice->plan->stage_count; s++) {
		choice->plan->stages[s].warmup = choice->best[s].warmup;
		choice->plan->stages[s].recompute = choice->best[s].recompute;
	}
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
		} while (choice->best[s].warmup == plan->stages[s].warmup);
	}
}

/* Of a stage that recomputes as many fewer as it takes to do without. */
static void do_without(struct choice *choice)
{
	struct pd_plan *plan = choice->plan;
	int steps = 0;

	for (int s = 0; s < plan->stage_count && choice->room->recompute; s++)
		for (int less = 1; choice->best[s].recompute && less <= choice->best[s].warmup &&
		     steps++ < MOST_STEPS; less++) {
			restore(choice);
			plan->stages[s].warmup -= less;
			try(choice, false);
			if (!plan->stages[s].recompute)
				break;
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
static void compare_some(struct choice *choice, struct window *window)
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
	restore(choice);
	window_pass(window, plan);
	if (period == usual - usual / PD_WARMUP_WORTH)
		choice->best_ns = usual;
	else
		for (int together = 0; together < 2; together++) {
			set_least(plan, window, period, together);
			try(choice, true);
		}
	give_back(choice);
	do_without(choice);
}

/* Makes the plan the best; what is expected of it, or -1. */
static int64_t choose(struct choice *choice, struct window *window)
{
	struct pd_plan *plan = choice->plan;
	struct pd_warmup_room *room = choice->room;

	if (room->most_ns > 0 && without_warmups_ns(plan, window) > room->most_ns)
		return -1;
	if ((int64_t)plan->stage_count * plan->rank_count <= LARGE) {
		compare_some(choice, window);
	} else {
		set_least(plan, window, slowest_ns(plan, window), true);
		try(choice, false);
	}
	restore(choice);
	return pd_warmup_fit(plan, room) ? choice->best_ns : -1;
}

int64_t pd_warmup_choose(struct pd_plan *plan, struct pd_warmup_room *room, int64_t *work)
{
	struct window window;
	struct choice choice = { .plan = plan, .window = &window, .room = room, .best_ns = -1 };
	size_t stages = (size_t)plan->stage_count;
	int64_t ns;

	choice.best = pd_calloc(2 * stages, sizeof(*choice.best));
	choice.asked = choice.best + stages;
	for (size_t s = 0; s < stages; s++)
		choice.best[s].recompute = choice.asked[s].recompute = plan->stages[s].recompute;
	window_init(&window, plan);
	ns = choose(&choice, &window);
	*work += choice.work;
	free(window.pass_ns);
	free(choice.best);
	return ns;
}
