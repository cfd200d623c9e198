/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running statistics of a stage with replicas are those of replica 0.  The other replicas read them
 * only in evaluations, and take them over when a training phase ends.
 */
#include "run/internal.h"

#include "base/mem.h"

#include <stdlib.h>

#define TAG_STATE ((UINT64_C(1) << 47) | (UINT64_C(1) << 46))

/* Begins this rank's transfers for stage number i. */
static int begin(struct rank *rank, int i)
{
	struct rank_part *part = &rank->parts[i];
	const struct pd_stage *stage = &rank->job->plan->stages[part->stage];
	const struct pd_transport_ops *transport = rank->transport->ops;
	size_t bytes = rank->device->ops->net.sizes(part->net)->state_bytes;
	void *state = pd_worker_arena(rank->worker, i, PD_ARENA_state);
	uint64_t tag = TAG_STATE + (uint64_t)i;
	int count = rank->replica ? 1 : stage->replicas - 1;

	part->share_count = 0;
	if (stage->replicas == 1 || bytes == 0)
		return 0;
	if (!part->shares)
		part->shares = pd_calloc((size_t)count, sizeof(*part->shares));
	for (; part->share_count < count; part->share_count++) {
		struct pd_event *event = &part->shares[part->share_count];

		pd_event_arm(event);
		if ((rank->replica
		     ? transport->recv(rank->transport, stage->ranks[0], tag, state, bytes, NULL, event)
		     : transport->send(rank->transport, stage->ranks[1 + part->share_count], tag,
				       state, bytes, NULL, event)) < 0)
			return -1;
	}
	return 0;
}

int rank_share_state(struct rank *rank, struct pd_error *err)
{
	bool pending = false, failed = false;

	for (int i = 0; i < rank->part_count && !rank->sharing && !failed; i++)
		failed = begin(rank, i) < 0;
	rank->sharing = true;
	for (int i = 0; i < rank->part_count; i++)
		for (int k = 0; k < rank->parts[i].share_count; k++) {
			const struct pd_event *event = &rank->parts[i].shares[k];

			pending |= !pd_event_done(event);
			failed |= pd_event_done(event) && pd_event_failed(event);
		}
	if (failed)
		return pd_gate_failed(&rank->gate, err, "transport");
	rank->sharing = pending;
	return !pending;
}
