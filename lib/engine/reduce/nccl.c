/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transport's own all-reduce (struct pd_group): NCCL's, whose algorithm and order of additions
 * follow from how the GPUs are connected.
 */
#include "engine/reduce/nccl.h"

#include "base/mem.h"
#include "engine/device/submit.h"

#include <stdlib.h>

/* The sum is issued on the stream of the transport; then on that of the reducers a wait, and done. */
enum step { SUM, WAIT, TELL, ALL };

struct own {
	struct pd_reduction base;
	struct pd_reduction_config config;
	struct pd_group *group;
	struct pd_group_sum sum;
	struct pd_event summed, *done;
	size_t step;
};

static void own_close(struct pd_reduction *r)
{
	free(r);
}

static int own_start(struct pd_reduction *r, float *buf, uint64_t tag_base,
		     const struct pd_event *after, struct pd_event *done)
{
	struct own *own = (struct own *)r;

	own->sum = (struct pd_group_sum){ .buf = buf, .floats = own->config.floats, .after = after };
	own->done = done;
	own->step = SUM;
	pd_event_arm(&own->summed);
	return 0;
}

static int issue(struct pd_reduction *r)
{
	struct own *own = (struct own *)r;

	switch (own->step) {
	case SUM:
		return own->group->all_reduce(own->group, &own->sum, &own->summed);
	case WAIT:
		return pd_submit_wait(own->config.stream, &own->summed);
	default:
		return pd_submit_sum(own->config.stream, own->sum.buf, NULL, 0, 0, own->done);
	}
}

static size_t last(enum pd_reduction_part upto)
{
	return upto == PD_REDUCTION_ALL ? ALL : WAIT;
}

static bool own_issued(const struct pd_reduction *r, enum pd_reduction_part upto)
{
	const struct own *own = (const struct own *)r;

	return !own->done || own->step >= last(upto);
}

static int own_progress(struct pd_reduction *r, enum pd_reduction_part upto)
{
	struct own *own = (struct own *)r;

	return own->done ? pd_reduction_advance(r, &own->step, last(upto), issue) : 0;
}

static int64_t own_started_ns(const struct pd_reduction *r)
{
	return ((const struct own *)r)->summed.start_ns;
}

/* NCCL's memory is not counted. */
static size_t own_staging_bytes(const struct pd_reduction *r)
{
	return 0;
}

static const struct pd_reduction_ops own_ops = {
	.close = own_close, .start = own_start, .progress = own_progress,
	.issued = own_issued, .started_ns = own_started_ns, .staging_bytes = own_staging_bytes,
};

struct pd_reduction *pd_reduction_nccl_open(const struct pd_reduction_config *config, struct pd_error *err)
{
	struct pd_transport *transport = config->transport;
	const struct pd_group_trial trial = { .room = config->room, .floats = config->floats };
	struct pd_group *group = transport->ops->group(transport, config->ranks, config->members,
						       &trial, err);
	struct own *own;

	if (!group)
		return NULL;
	own = pd_zalloc(sizeof(*own));
	own->base.ops = &own_ops;
	own->config = *config;
	own->group = group;
	return &own->base;
}
