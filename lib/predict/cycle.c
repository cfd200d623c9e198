/* SPDX-License-Identifier: Apache-2.0 */
#include "predict/cycle.h"
#include "memory/again.h"


#define MOST_PAIRS 64           /* pairs of replicas of two stages, of which the slowest counts */

int64_t pd_stage_way_ns(const struct pd_plan *plan, const struct pd_wiring *wiring, int s)
{
	int64_t most = 0;

	for (int i = 0; i < wiring->out_count[s]; i++) {
		const struct pd_link *link = &wiring->links[wiring->out[s][i]];
		const struct pd_stage *a = &plan->stages[s], *b = &plan->stages[link->to];

		for (int64_t n = 0; link->to == s + 1 && n < MOST_PAIRS &&
				    n < (int64_t)a->replicas * b->replicas; n++) {
			int from = a->ranks[n % a->replicas], to = b->ranks[n % b->replicas];

			if (from != to)
				most = pd_max(most, pd_topology_transfer_ns(&plan->topology, from,
									    to, link->bytes));
		}
	}
	return pd_min(most, PD_COST_MAX);
}

static int64_t update_on(const struct pd_schedule *schedule, const struct pd_profile *profile, int s)
{
	const struct pd_stage *stage = &schedule->plan->stages[s];
	const struct pd_profile_layer *layers = profile->layers + stage->first_layer;
	bool apart = pd_schedule_versions(schedule, s) > 1;
	int64_t sum = 0;

	for (int l = 0; l < stage->layer_count; l++)
		sum += pd_profile_shared_ns(schedule->plan->profile, apart ? pd_profile_apart_ns(&layers[l])
					    : layers[l].update_ns, stage->replicas);
	return sum;
}

int64_t pd_stage_update_ns(const struct pd_schedule *schedule, int s)
{
	const struct pd_plan *plan = schedule->plan;
	int64_t most = 0;

	for (int k = 0; k < pd_plan_kinds(plan); k++)
		if (pd_plan_kinds(plan) == 1 || pd_plan_rank_of_kind(plan, s, k) >= 0)
			most = pd_max(most, update_on(schedule, pd_profile_of_kind(plan->profile, k), s));
	return most;
}

struct pd_stage_times pd_stage_times_on(const struct pd_schedule *schedule, const struct pd_stage_times *slowest,
					int s, int rank)
{
	const struct pd_plan *plan = schedule->plan;
	const struct pd_profile *profile = pd_plan_profile_of(plan, rank);
	const struct pd_stage *stage = &plan->stages[s];
	struct pd_stage_times times = *slowest;
	struct pd_again again;

	if (pd_plan_kinds(plan) == 1)
		return times;
	times.forward_ns = times.backward_ns = 0;
	for (int l = stage->first_layer; l < stage->first_layer + stage->layer_count; l++) {
		times.forward_ns += profile->layers[l].forward_ns;
		times.backward_ns += profile->layers[l].backward_ns;
	}
	again = pd_plan_again_on(plan, profile, s);
	times.again_ns = again.before_ns;
	times.backward_ns += again.within_ns;
	times.update_ns = update_on(schedule, profile, s);
	return times;
}

struct pd_stage_times *pd_stage_times_of(const struct pd_schedule *schedule)
{
	const struct pd_plan *plan = schedule->plan;
	struct pd_stage_times *times = pd_calloc((size_t)plan->stage_count, sizeof(*times));

	for (int s = 0; s < plan->stage_count; s++) {
		const struct pd_stage *stage = &plan->stages[s];
		struct pd_again again = pd_plan_again(plan, s);

		times[s] = (struct pd_stage_times){
			.forward_ns = stage->forward_ns,
			.backward_ns = stage->backward_ns + again.within_ns,
			.update_ns = pd_stage_update_ns(schedule, s),
			.again_ns = again.before_ns,
			.lead = (int64_t)schedule->warmup[s] * stage->replicas,
			.replicas = stage->replicas, .group = schedule->group[s],
			.way_ns = pd_stage_way_ns(plan, schedule->wiring, s),
			.reduce_ns = pd_schedule_sums_serially(schedule, s) ? stage->allreduce_ns : 0,
			.together = pd_schedule_has(plan->schedule, PD_FACT_MINIBATCHES)
				    ? plan->microbatches : 1,
		};
	}
	return times;
}

struct pd_cycle pd_cycle_slowest(const struct pd_stage_times *times, int count)
{
	struct pd_cycle most = { .tokens = 1 };

	for (int s = 0; s < count; s++) {
		const struct pd_stage_times *from = &times[s];
		__int128 time = ((__int128)from->update_ns + from->reduce_ns) * from->replicas *
				from->together / from->group, whole;
		int64_t down_ns = 0, up_ns = 0;         /* the slowest in the cycle */

		for (int e = s; e < count; e++) {
			const struct pd_stage_times *to = &times[e];
			int64_t tokens = from->lead + from->replicas - to->lead + from->together - 1;

			time += to->forward_ns + to->backward_ns;
			down_ns = pd_max(down_ns, to->forward_ns);
			up_ns = pd_max(up_ns, to->backward_ns + to->again_ns);
			whole = time + to->again_ns +
				(__int128)(from->together - 1) * ((__int128)down_ns + up_ns);
			if (tokens > 0 && (__int128)tokens * (most.period_ns + 1) <= whole)
				most = (struct pd_cycle){ s, e, tokens, pd_saturate(whole / tokens) };
			time += 2 * to->way_ns;
			down_ns = pd_max(down_ns, to->way_ns);
			up_ns = pd_max(up_ns, to->way_ns);
		}
	}
	return most;
}
