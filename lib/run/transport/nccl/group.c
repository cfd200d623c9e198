/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups of ranks that sum by ncclAllReduce.
 *
 * A group has a communicator of its own, and a stream that does nothing else.  NCCL matches the calls
 * of a communicator by order, which is that of the calls of all_reduce().  The first of a group makes
 * the communicator's id and sends it to the others in host memory.
 *
 * NCCL connects ranks for an algorithm when a sum first takes it, and chooses algorithms by bytes.  So
 * some sums are tried in the set-up, of few bytes and of many, and the largest that there will be.
 */
#include "run/transport/nccl/connection.h"

#include "base/mem.h"
#include "engine/device/submit.h"

#include <stdlib.h>

#define ID_TAG (UINT64_C(1) << (PD_TRANSPORT_TAG_BITS - 1))     /* words have smaller ones */
#define TRIED_FLOATS ((size_t)1 << 22)
/* Beside those of connections (nccl.c): only one group's kernel is on a GPU at a time, or few are. */
#define CTAS 16

/* Brings the id to this rank, or from it to the others. */
static int share_id(struct nccl_group *group, const int *ranks, int count, struct pd_error *err)
{
	struct nccl_comm *comm = &group->comm;
	struct nccl *n = comm->owner;
	struct pd_transport *host = n->host;

	if (comm->number == 0 && pd_nccl_id(&comm->id, err) < 0)
		return -1;
	for (int i = comm->number == 0; i < (comm->number == 0 ? count : 1); i++) {
		int status;

		pd_event_arm(&group->told);
		status = comm->number == 0
			? host->ops->send(host, ranks[i], ID_TAG, &comm->id, sizeof(comm->id), NULL,
					  &group->told)
			: host->ops->recv(host, ranks[i], ID_TAG, &comm->id, sizeof(comm->id), NULL,
					  &group->told);
		if (status < 0) {
			*err = n->gate->err;
			return -1;
		}
		if (pd_nccl_await(n, ranks[i], &group->told, err) < 0)
			return -1;
	}
	return 0;
}

static int try_sums(struct nccl_group *group, const struct pd_group_trial *trial,
		    struct pd_error *err)
{
	struct pd_device *device = group->comm.owner->device;
	struct pd_group_sum sum = { .group = &group->base };
	const struct pd_call call = { .post = pd_nccl_post_sum, .check = pd_nccl_check_sum,
				      .context = &sum };
	int status = 0;

	sum.buf = device->ops->memory.alloc(device, TRIED_FLOATS * sizeof(float), err);
	if (!sum.buf)
		return -1;
	for (sum.floats = 1; sum.floats <= TRIED_FLOATS && status == 0; sum.floats *= 4)
		status = pd_nccl_try(&group->comm, &call, err);
	device->ops->memory.free(device, sum.buf);
	if (status == 0 && trial->room && trial->floats > TRIED_FLOATS) {
		sum.buf = trial->room;
		sum.floats = trial->floats;
		status = pd_nccl_try(&group->comm, &call, err);
	}
	return status;
}

static int all_reduce(struct pd_group *base, struct pd_group_sum *sum, struct pd_event *done)
{
	struct nccl_group *group = (struct nccl_group *)base;
	struct nccl *n = group->comm.owner;
	const struct pd_call call = { .post = pd_nccl_post_sum, .check = pd_nccl_check_sum,
				      .context = sum };

	if (n->broken) {
		struct pd_error err;

		pd_error_failed(&err, "rank %d: NCCL's transfers have ended", n->rank);
		pd_event_fail(done, &err, n->gate);
		return -1;
	}
	sum->group = base;
	if (sum->after && !sum->waits) {
		int status = pd_submit_wait(group->comm.stream, (struct pd_event *)sum->after);

		if (status != 0)
			return status;
	}
	sum->waits = true;
	return pd_submit_call(group->comm.stream, &call, done);
}

struct pd_group *pd_nccl_group(struct pd_transport *base, const int *ranks, int count,
			       const struct pd_group_trial *trial, struct pd_error *err)
{
	struct nccl *n = (struct nccl *)base;
	struct nccl_group *group = pd_zalloc(sizeof(*group));

	group->base.all_reduce = all_reduce;
	group->comm = (struct nccl_comm){ .way = "with", .size = count, .ctas = CTAS };
	while (ranks[group->comm.number] != n->rank)
		group->comm.number++;
	group->comm.peer = ranks[group->comm.number == 0];
	if (pd_nccl_comm_open(&group->comm, n, err) < 0) {
		free(group);
		return NULL;
	}
	group->next = n->groups;
	n->groups = group;
	if (share_id(group, ranks, count, err) < 0 || pd_nccl_join(&group->comm, err) < 0 ||
	    try_sums(group, trial, err) < 0)
		return NULL;
	return &group->base;
}

void pd_nccl_groups_close(struct nccl *n)
{
	for (struct nccl_group *group = n->groups; group; group = group->next)
		pd_nccl_comm_close(&group->comm);
}

void pd_nccl_groups_free(struct nccl *n)
{
	while (n->groups) {
		struct nccl_group *group = n->groups;

		n->groups = group->next;
		pthread_mutex_destroy(&group->comm.lock);
		free(group);
	}
}
