/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What forwards change in a stage with replicas (its state, but for frozen parameters), where a training phase
 * ends.
 *
 * Running statistics are those of replica 0; the other replicas read them only in evaluations, and
 * take them over.  The state of a lane is that of the replica that has the lane's microbatches:
 * replica 0 first takes over the lanes of each other one, through its own arena.  So all replicas
 * then have the same state, and replica 0 has what a checkpoint needs.
 */
#include "run/rank/internal.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define TAG_STATE ((UINT64_C(1) << 47) | (UINT64_C(1) << 46))

static const struct pd_stage *stage_of(const struct rank *rank, const struct rank_part *part)
{
	return &rank->job->plan->stages[part->stage];
}

/* Steps before the last, in which the other replicas take over the state of replica 0. */
static int gathers(const struct rank *rank, const struct rank_part *part)
{
	if (!pd_plan_carries(rank->job->plan, part->stage))
		return 0;
	return rank->replica ? 1 : stage_of(rank, part)->replicas - 1;
}

/* Transfers the state to a replica, or from it. */
static int transfer(struct rank *rank, int i, int replica, bool sends)
{
	struct rank_part *part = &rank->parts[i];
	const struct pd_transport_ops *transport = rank->transport->ops;
	struct pd_event *event = &part->shares[part->share_count++];
	size_t bytes = rank->device->ops->net.sizes(part->net)->moved_bytes;
	void *state = pd_worker_arena(rank->worker, i, PD_ARENA_state);
	int peer = stage_of(rank, part)->ranks[replica];
	uint64_t tag = TAG_STATE + (uint64_t)i;

	pd_event_arm(event);
	return sends ? transport->send(rank->transport, peer, tag, state, bytes, NULL, event)
		     : transport->recv(rank->transport, peer, tag, state, bytes, NULL, event);
}

/* Begins the transfers of a step. */
static int begin(struct rank *rank, int i, int step)
{
	struct rank_part *part = &rank->parts[i];
	int replicas = stage_of(rank, part)->replicas;
	bool last = step == gathers(rank, part);

	part->share_count = 0;
	if (!part->shares)
		part->shares = pd_calloc((size_t)replicas, sizeof(*part->shares));
	if (rank->replica || !last)
		return transfer(rank, i, rank->replica ? 0 : step + 1, rank->replica && !last);
	for (int replica = 1; replica < replicas; replica++)
		if (transfer(rank, i, replica, true) < 0)
			return -1;
	return 0;
}

/*
 * Returns the replica that had a lane's microbatches.  They are dealt from the phase's first one on,
 * whose lanes depend on its number since training began.
 */
static int replica_of_lane(const struct rank *rank, int64_t lane, int replicas)
{
	int64_t batch_size = rank->job->plan->profile->batch_size;

	return (int)((lane / batch_size + replicas - rank->phase.first % replicas) % replicas);
}

/* Takes what replica number `replica` has made of one named state, which is in the arena. */
static void take_rows(const struct rank *rank, const struct pd_named *named, int replicas,
		      int replica, float *to, const float *from)
{
	int64_t lanes = rank->job->plan->profile->model->layers[named->layer].lanes;
	int64_t row = lanes > 0 ? named->elements / lanes : 0;

	if (replica == 0)
		memcpy(to, from, (size_t)named->elements * sizeof(*to));
	for (int64_t lane = 0; lane < lanes; lane++)
		if (replica_of_lane(rank, lane, replicas) == replica)
			memcpy(to + lane * row, from + lane * row, (size_t)row * sizeof(*to));
}

/* Takes what is in the arena to the host, or, after the last replica's, brings all of it back. */
static int take_arena(struct rank *rank, int i, int replica, struct pd_error *err)
{
	struct rank_part *part = &rank->parts[i];
	const struct pd_net_ops *net = &rank->device->ops->net;
	void *state = pd_worker_arena(rank->worker, i, PD_ARENA_state);
	int replicas = stage_of(rank, part)->replicas, status = 0;
	const struct pd_named *named;
	int count = net->named(part->net, &named);
	size_t total = 0, at = 0;
	float *one;

	for (int n = 0; n < count; n++)
		total += named[n].part == PD_PART_STATE ? (size_t)named[n].elements : 0;
	if (!part->gathered)
		part->gathered = pd_calloc(total, sizeof(*part->gathered));
	one = pd_calloc(total, sizeof(*one));
	for (int n = 0; n < count && status == 0; n++) {
		if (named[n].part != PD_PART_STATE)
			continue;
		status = net->export(part->net, n, PD_FULL, state, one);
		take_rows(rank, &named[n], replicas, replica, part->gathered + at, one);
		if (status == 0 && replica == replicas - 1)
			status = net->import(part->net, n, PD_FULL, state, part->gathered + at);
		at += (size_t)named[n].elements;
	}
	free(one);
	return status < 0 ? pd_error_failed(err, "the state of lanes cannot be gathered") : 0;
}

/* Goes on with stage number i.  1: done; 0: waits; -1: failed. */
static int share(struct rank *rank, int i, struct pd_error *err)
{
	struct rank_part *part = &rank->parts[i];

	if (stage_of(rank, part)->replicas == 1 ||
	    rank->device->ops->net.sizes(part->net)->moved_bytes == 0)
		return 1;
	while (part->share_step <= gathers(rank, part)) {
		for (int k = 0; k < part->share_count; k++) {
			if (!pd_event_done(&part->shares[k]))
				return 0;
			if (pd_event_failed(&part->shares[k]))
				return pd_gate_failed(&rank->gate, err, "transport");
		}
		if (part->share_count > 0)
			part->share_step++;
		if (gathers(rank, part) > 0 && !rank->replica && part->share_step <= gathers(rank, part) &&
		    take_arena(rank, i, part->share_step, err) < 0)
			return -1;
		if (part->share_step <= gathers(rank, part) && begin(rank, i, part->share_step) < 0)
			return pd_gate_failed(&rank->gate, err, "transport");
	}
	return 1;
}

int rank_share_state(struct rank *rank, struct pd_error *err)
{
	int verdict = 1;

	for (int i = 0; i < rank->part_count && verdict >= 0; i++) {
		int one = share(rank, i, err);

		verdict = one < verdict ? one : verdict;
	}
	for (int i = 0; i < rank->part_count && verdict == 1; i++)
		rank->parts[i].share_step = rank->parts[i].share_count = 0;
	return verdict;
}
