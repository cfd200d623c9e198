/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/peers.h"

#include "base/mem.h"

/* Returns the replica that a rank is of a stage, or -1. */
static int replica_of(const struct pd_schedule *schedule, int rank, int stage)
{
	const struct pd_stage *s = &schedule->plan->stages[stage];

	for (int i = 0; i < s->replicas; i++)
		if (s->ranks[i] == rank)
			return i;
	return -1;
}

/* Tells whether a link connects the ranks: microbatch n is at replica n mod r of each stage. */
static bool link_connects(const struct pd_schedule *schedule, const struct pd_link *link, int a,
			  int b)
{
	int i = replica_of(schedule, a, link->from), j = replica_of(schedule, b, link->to);
	int from = schedule->plan->stages[link->from].replicas;
	int to = schedule->plan->stages[link->to].replicas;

	return i >= 0 && j >= 0 && (i - j) % pd_gcd(from, to) == 0;
}

/* In round k of an agree a rank sends to the one 2^k above it (lib/worker/global_norm.c). */
static bool agree_connects(const struct pd_schedule *schedule, int a, int b)
{
	int ranks = schedule->plan->rank_count, far = (b - a + ranks) % ranks;

	for (int k = 0; k < pd_schedule_norm_rounds(schedule->plan); k++)
		if (far == 1 << k)
			return true;
	return false;
}

static bool sends_to(const struct pd_schedule *schedule, int a, int b)
{
	for (int i = 0; i < schedule->wiring->link_count; i++)
		if (link_connects(schedule, &schedule->wiring->links[i], a, b))
			return true;
	return pd_plan_agrees(schedule->plan) && agree_connects(schedule, a, b);
}

bool pd_schedule_are_peers(const struct pd_schedule *schedule, int a, int b)
{
	if (sends_to(schedule, a, b) || sends_to(schedule, b, a))
		return true;
	if (a == b)
		return false;
	for (int s = 0; s < schedule->stage_count; s++)
		if (replica_of(schedule, a, s) >= 0 && replica_of(schedule, b, s) >= 0)
			return true;
	/* Layers that share parameters may be on any two ranks. */
	return pd_plan_has_tied_weights(schedule->plan);
}
