/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/reduce/sparse.h"

#include "base/mem.h"
#include "engine/device/submit.h"

#include <stdlib.h>

/* The steps that go on the stream, in this order. */
enum step { WAIT, CHOOSE, PACK, SUM, UNPACK, ALL };

struct sparse {
	struct pd_reduction base;
	struct pd_reduction_config config;
	struct pd_sparse_bucket bucket;
	float *memory;                  /* the packed chunks, then the reducer's staging */
	int64_t packed_floats, staging_floats;
	int64_t sent;                   /* chunks that travel; -1: no reducer was opened */
	struct pd_reduction *inner;     /* NULL: no chunk ends in the bucket */
	struct pd_event packed, summed;
	/* the one under way */
	const struct pd_event *after;
	struct pd_event *done;
	int step;
};

static void sparse_close(struct pd_reduction *r)
{
	struct sparse *s = (struct sparse *)r;

	if (s->inner)
		s->inner->ops->close(s->inner);
	if (s->memory)
		s->config.device->ops->memory.free(s->config.device, s->memory);
	free(s);
}

int pd_sparse_at(struct pd_reduction *r, int64_t minibatch, struct pd_error *err)
{
	struct sparse *s = (struct sparse *)r;
	const struct pd_plan *plan = s->bucket.plan;
	int64_t sent = pd_plan_chunks_sent(plan, s->bucket.range.count, minibatch);

	if (sent == s->sent)
		return 0;
	if (s->inner)
		s->inner->ops->close(s->inner);
	s->inner = NULL;
	s->base.polls = true;
	s->sent = s->bucket.chunks.sent = sent;
	if (sent == 0)
		return 0;
	s->config.floats = (size_t)pd_plan_floats_sent(plan, &s->bucket.range,
						       s->bucket.chunks.floats, minibatch);
	s->config.staging = s->memory + s->packed_floats;
	s->inner = pd_reduction_open(plan->reducer, &s->config, err);
	if (!s->inner)
		return -1;
	s->base.polls = s->inner->polls;
	return 0;
}

int64_t pd_sparse_sent_bytes(const struct pd_reduction *r)
{
	const struct sparse *s = (const struct sparse *)r;

	return s->inner ? (int64_t)(s->config.floats * sizeof(float)) : 0;
}

static int sparse_start(struct pd_reduction *r, float *buf, uint64_t tag_base,
			const struct pd_event *after, struct pd_event *done)
{
	struct sparse *s = (struct sparse *)r;
	int status = 0;

	s->bucket.chunks.gradients = buf;
	s->bucket.chunks.packed = s->memory;
	s->after = after;
	s->done = done;
	s->step = WAIT;
	pd_event_arm(&s->packed);
	pd_event_arm(&s->summed);
	if (s->inner)
		status = s->inner->ops->start(s->inner, s->memory, tag_base, &s->packed, &s->summed);
	s->base.sent_bytes = s->inner ? s->inner->sent_bytes : 0;
	s->base.messages = s->inner ? s->inner->messages : 0;
	return status;
}

static int do_chunks(struct sparse *s, enum pd_chunk_step step, struct pd_event *ev)
{
	struct pd_chunks what = s->bucket.chunks;

	what.step = step;
	return pd_submit_chunks(s->config.stream, &what, ev);
}

static int issue(struct sparse *s)
{
	switch (s->step) {
	case WAIT:
		if (s->after && s->base.polls && !s->base.may_wait && !pd_event_done(s->after))
			return PD_AGAIN;
		return s->after ? pd_submit_wait(
					  s->config.stream, (struct pd_event *)s->after) : 0;
	case CHOOSE:
		return do_chunks(s, PD_CHUNKS_CHOOSE, NULL);
	case PACK:
		return do_chunks(s, PD_CHUNKS_PACK, &s->packed);
	default:
		return do_chunks(s, PD_CHUNKS_UNPACK, s->done);
	}
}

static int sparse_progress(struct pd_reduction *r, enum pd_reduction_part upto)
{
	struct sparse *s = (struct sparse *)r;
	int n = 0, end = upto == PD_REDUCTION_ALL ? ALL : UNPACK;

	while (s->done && s->step < end) {
		int verdict = 0;

		if (s->step == SUM && s->inner) {
			s->inner->may_wait = s->base.may_wait;
			verdict = s->inner->ops->progress(s->inner, upto);
			n += verdict > 0 ? verdict : 0;
			if (verdict < 0 || !s->inner->ops->issued(s->inner, PD_REDUCTION_ALL))
				return verdict < 0 ? -1 : n;
		} else if (s->step != SUM) {
			verdict = issue(s);
			if (verdict == PD_AGAIN)
				return n;
			if (verdict < 0)
				return -1;
		}
		s->step++;
		n++;
	}
	return n;
}

static bool sparse_issued(const struct pd_reduction *r, enum pd_reduction_part upto)
{
	const struct sparse *s = (const struct sparse *)r;

	if (!s->done || s->step >= (upto == PD_REDUCTION_ALL ? ALL : UNPACK))
		return true;
	return upto == PD_REDUCTION_SUMS && s->step == SUM &&
	       (!s->inner || s->inner->ops->issued(s->inner, upto));
}

static int64_t sparse_started_ns(const struct pd_reduction *r)
{
	const struct sparse *s = (const struct sparse *)r;

	return s->inner ? s->inner->ops->started_ns(s->inner) : s->done->start_ns;
}

static size_t sparse_staging_bytes(const struct pd_reduction *r)
{
	const struct sparse *s = (const struct sparse *)r;

	return (size_t)(s->packed_floats + s->staging_floats) * sizeof(float);
}

static const struct pd_reduction_ops sparse_ops = {
	.close = sparse_close, .start = sparse_start, .progress = sparse_progress,
	.issued = sparse_issued, .started_ns = sparse_started_ns,
	.staging_bytes = sparse_staging_bytes,
};

struct pd_reduction *pd_sparse_open(const struct pd_reduction_config *config,
				    const struct pd_sparse_bucket *bucket, struct pd_error *err)
{
	struct sparse *s = pd_zalloc(sizeof(*s));
	void *(*alloc)(struct pd_device *device, size_t bytes, struct pd_error *err);
	size_t floats;

	s->base.ops = &sparse_ops;
	s->config = *config;
	s->bucket = *bucket;
	s->sent = -1;
	pd_plan_sparse_room(bucket->plan, bucket->stage, &bucket->range, bucket->chunks.floats,
			    &s->packed_floats, &s->staging_floats);
	s->bucket.chunks.first = bucket->range.first;
	s->bucket.chunks.count = bucket->range.count;
	s->bucket.chunks.members = config->members;
	floats = (size_t)(s->packed_floats + s->staging_floats);
	if (floats == 0)
		return &s->base;
	alloc = config->device->ops->memory.shared_alloc;
	alloc = alloc ? alloc : config->device->ops->memory.alloc;
	s->memory = alloc(config->device, floats * sizeof(float), err);
	if (s->memory)
		return &s->base;
	free(s);
	return NULL;
}
