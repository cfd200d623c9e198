/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/search/window.h"

#include "base/mem.h"
#include "planner/price/cost.h"
#include "planner/price/links.h"
#include "planner/search/warmup.h"

#include <stdlib.h>
#include <string.h>

#define MOST_PAIRS 64           /* pairs of replicas of two stages, of which the slowest counts */

/* Returns the time of the slowest transfer to the next stage. */
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

void pd_window_pass(struct pd_window *window, const struct pd_plan *plan)
{
	for (int s = 0; s < plan->stage_count; s++)
		window->pass_ns[s] = plan->stages[s].forward_ns *
				     (plan->stages[s].recompute ? 2 : 1) +
				     plan->stages[s].backward_ns;
}

/*
 * Returns the least time for which a replica sends for an update, if each of its minibatches has
 * one.
 */
static int64_t own_sends_ns(const struct pd_plan *plan, int s)
{
	const struct pd_stage *stage = &plan->stages[s];
	struct pd_members members = pd_plan_members(plan, s);
	struct pd_reduce *reduces;
	int64_t least = INT64_MAX;

	if (stage->replicas == 1 || plan->microbatches > 1 ||
	    (plan->weights != PD_WEIGHTS_STASH && plan->weights != PD_WEIGHTS_VERTICAL_SYNC))
		return 0;
	reduces = pd_calloc((size_t)stage->replicas, sizeof(*reduces));
	pd_links_allreduce(&members, pd_stage_parameter_bytes(plan, s), reduces);
	for (int i = 0; i < stage->replicas; i++)
		least = pd_min64(least, pd_max64(reduces[i].sends_ns, reduces[i].rest_ns));
	free(reduces);
	return least;
}

void pd_window_init(struct pd_window *window, const struct pd_plan *plan)
{
	struct pd_wiring *wiring = pd_wiring_new(plan);
	size_t stages = (size_t)plan->stage_count;

	window->pass_ns = pd_calloc(5 * stages, sizeof(int64_t));
	window->update_ns = window->pass_ns + stages;
	window->transfer_ns = window->update_ns + stages;
	window->once_ns = window->transfer_ns + stages;
	window->sends_ns = window->once_ns + stages;
	window->busiest_ns = pd_links_busiest_ns(plan, wiring);
	pd_window_pass(window, plan);
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

void pd_window_release(struct pd_window *window)
{
	free(window->pass_ns);
}

void pd_window_set_least(struct pd_plan *plan, const struct pd_window *window, int64_t period,
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

int64_t pd_window_floor_ns(const struct pd_plan *plan, const struct pd_window *window)
{
	int64_t most = window->busiest_ns;

	for (int s = 0; s < plan->stage_count; s++)
		most = pd_max64(most, (window->once_ns[s] + window->sends_ns[s]) /
				plan->stages[s].replicas);
	return most;
}

int64_t pd_window_slowest_ns(const struct pd_plan *plan, const struct pd_window *window)
{
	int64_t most = 0;

	for (int s = 0; s < plan->stage_count; s++)
		most = pd_max64(most, pd_ceil_div(window->pass_ns[s] + window->update_ns[s],
						  plan->stages[s].replicas));
	return most;
}
