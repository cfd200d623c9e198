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

/* Sets those that exchange something over a link: microbatch n is at replica n mod r of each stage. */
static void add_link(const struct pd_schedule *schedule, int rank, int own, int other, bool *peers)
{
	const struct pd_stage *there = &schedule->plan->stages[other];
	int i = replica_of(schedule, rank, own);
	int step = pd_gcd(schedule->plan->stages[own].replicas, there->replicas);

	for (int j = 0; i >= 0 && j < there->replicas; j++)
		if ((i - j) % step == 0)
			peers[there->ranks[j]] = true;
}

/* In round k of an agree a rank sends to the one 2^k above it (lib/worker/global_norm.c). */
static void add_agree(const struct pd_schedule *schedule, int rank, bool *peers)
{
	int ranks = schedule->plan->rank_count;

	for (int k = 0; k < pd_schedule_norm_rounds(schedule->plan); k++) {
		int far = 1 << k;

		if (far < ranks)
			peers[(rank + far) % ranks] = peers[(rank + ranks - far) % ranks] = true;
	}
}

void pd_schedule_peers(const struct pd_schedule *schedule, int rank, bool *peers)
{
	bool self;

	/* Layers that share parameters may be on any two ranks. */
	for (int r = 0; r < schedule->plan->rank_count; r++)
		peers[r] = pd_plan_has_tied_weights(schedule->plan) && r != rank;
	for (int i = 0; i < schedule->wiring->link_count; i++) {
		const struct pd_link *link = &schedule->wiring->links[i];

		add_link(schedule, rank, link->from, link->to, peers);
		add_link(schedule, rank, link->to, link->from, peers);
	}
	if (pd_plan_agrees(schedule->plan))
		add_agree(schedule, rank, peers);
	self = peers[rank];
	for (int s = 0; s < schedule->stage_count; s++) {
		const struct pd_stage *stage = &schedule->plan->stages[s];

		if (replica_of(schedule, rank, s) < 0)
			continue;
		for (int j = 0; j < stage->replicas; j++)
			peers[stage->ranks[j]] = true;
	}
	peers[rank] = self;
}
