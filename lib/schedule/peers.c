/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/peers.h"

#include "base/mem.h"
#include "memory/buckets.h"
#include "plan/sparse.h"
#include "sums/reducer.h"

#include <stdlib.h>

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

/* In round k of an agree a rank sends to the one 2^k above it (lib/engine/worker/global_norm.c). */
static void add_agree(const struct pd_schedule *schedule, int rank, bool *peers)
{
	int ranks = schedule->plan->rank_count;

	for (int k = 0; k < pd_schedule_norm_rounds(schedule->plan); k++) {
		int far = 1 << k;

		if (far < ranks)
			peers[(rank + far) % ranks] = peers[(rank + ranks - far) % ranks] = true;
	}
}

/* Has the stage a state, which its first replica gives the others (lib/run/rank/share.c)? */
static bool has_state(const struct pd_plan *plan, const struct pd_stage *s)
{
	for (int l = s->first_layer; l < s->first_layer + s->layer_count; l++)
		if (plan->profile->layers[l].state_bytes > 0)
			return true;
	return false;
}

/* Sets the replicas with whom one exchanges gradients, of each bucket of the stage, or its state. */
static void find_met(const struct pd_schedule *schedule, int stage, int replica, bool *met)
{
	const struct pd_plan *plan = schedule->plan;
	const struct pd_stage *s = &plan->stages[stage];
	struct pd_members members = pd_plan_members(plan, stage);
	int count = pd_plan_bucket_count(plan, stage);
	struct pd_bucket *buckets = pd_calloc((size_t)count, sizeof(*buckets));

	pd_plan_buckets(plan, stage, buckets);
	for (int i = 0; i < count && s->replicas > 1; i++)
		pd_reducer_meets(plan->reducer, &members, replica, pd_profile_summed_bytes(
			plan->profile, plan->gradient_dtype, buckets[i].bytes), met);
	/* Sparse sums grow with the minibatches that they warm up, and with them how they are made. */
	for (int i = 0; i < s->replicas; i++)
		met[i] |= pd_plan_is_sparse(plan, stage) ||
			  ((i == 0 || replica == 0) && has_state(plan, s));
	free(buckets);
}

static void add_sums(const struct pd_schedule *schedule, int stage, int replica, bool *peers)
{
	const struct pd_stage *s = &schedule->plan->stages[stage];
	bool *met = pd_calloc((size_t)s->replicas, sizeof(*met));

	find_met(schedule, stage, replica, met);
	for (int i = 0; i < s->replicas; i++)
		peers[s->ranks[i]] |= met[i] && i != replica;
	free(met);
}

void pd_schedule_peers(const struct pd_schedule *schedule, int rank, bool *peers)
{
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
	for (int s = 0; s < schedule->stage_count; s++) {
		int replica = replica_of(schedule, rank, s);

		if (replica >= 0)
			add_sums(schedule, s, replica, peers);
	}
}
