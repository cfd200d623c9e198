/* SPDX-License-Identifier: Apache-2.0 */
#include "reduce/script.h"

#include "base/mem.h"

#include <stdlib.h>

struct pd_script *pd_script_new(const struct pd_reduction_ops *ops,
				const struct pd_reduction_config *config, size_t staging_floats,
				int events, int transfers, int steps, struct pd_error *err)
{
	struct pd_script *s = pd_zalloc(sizeof(*s));

	s->base.ops = ops;
	s->config = *config;
	s->staging_floats = staging_floats;
	s->events = pd_calloc((size_t)events, sizeof(*s->events));
	s->event_count = events;
	s->transfers = pd_calloc((size_t)transfers, sizeof(*s->transfers));
	s->steps = pd_calloc((size_t)steps, sizeof(*s->steps));
	s->staging = config->staging;
	if (staging_floats == 0 || s->staging)
		return s;
	s->staging = config->device->ops->memory.alloc(config->device,
						       staging_floats * sizeof(float), err);
	if (s->staging)
		return s;
	pd_script_close(&s->base);
	return NULL;
}

void pd_script_transfer(struct pd_script *s, const struct pd_script_transfer *transfer)
{
	s->transfers[s->transfer_count++] = *transfer;
}

void pd_script_wait(struct pd_script *s, int ev)
{
	s->steps[s->step_count++] = (struct pd_script_step){ .ev = ev };
}

void pd_script_add(struct pd_script *s, size_t at, size_t staged, size_t floats, int ev)
{
	s->steps[s->step_count++] = (struct pd_script_step){
		.adds = true, .at = at, .staged = staged, .floats = floats, .ev = ev,
	};
}

void pd_script_close(struct pd_reduction *r)
{
	struct pd_script *s = (struct pd_script *)r;

	if (s->staging && !s->config.staging)
		s->config.device->ops->memory.free(s->config.device, s->staging);
	free(s->events);
	free(s->transfers);
	free(s->steps);
	free(s);
}

static const struct pd_event *event_of(const struct pd_script *s, int number)
{
	return number == PD_SCRIPT_NOW ? NULL : number == PD_SCRIPT_READY ? s->after
							: &s->events[number];
}

static int post(struct pd_script *s, const struct pd_script_transfer *t, uint64_t tag_base)
{
	struct pd_transport *transport = s->config.transport;
	float *at = (t->staged ? s->staging : s->buf) + t->at;
	int peer = s->config.ranks[t->peer];
	const struct pd_event *after = event_of(s, t->after);
	uint64_t tag = tag_base + (uint64_t)t->tag;
	size_t bytes = t->floats * sizeof(float);

	if (bytes == 0)
		return 0;
	return t->send ? transport->ops->send(transport, peer, tag, at, bytes, after,
					      &s->events[t->ev])
		       : transport->ops->recv(transport, peer, tag, at, bytes, after,
					      &s->events[t->ev]);
}

int pd_script_start(struct pd_reduction *r, float *buf, uint64_t tag_base,
		    const struct pd_event *after, struct pd_event *done)
{
	struct pd_script *s = (struct pd_script *)r;

	if (!pd_script_issued(r, PD_REDUCTION_ALL))
		pd_bug("an all-reduce begins before the last one is done");
	s->buf = buf;
	s->after = after;
	s->done = done;
	s->step = 0;
	for (int i = 0; i < s->transfer_count; i++)
		if (s->transfers[i].floats > 0)
			pd_event_arm(&s->events[s->transfers[i].ev]);
	for (int i = 0; i < s->step_count; i++)
		if (s->steps[i].adds)
			pd_event_arm(&s->events[s->steps[i].ev]);
	for (int i = 0; i < s->transfer_count; i++)
		if (post(s, &s->transfers[i], tag_base) < 0)
			return -1;
	return 0;
}

/* The last thing is nothing, with `done`. */
static int issue(struct pd_script *s)
{
	const struct pd_device_ops *ops = s->config.device->ops;
	struct pd_stream *stream = s->config.stream;
	const struct pd_script_step *step = &s->steps[s->step];
	const struct pd_event *ev;

	if (s->step == s->step_count)
		return ops->math.sum(stream, s->buf, NULL, 0, 0, s->done);
	if (step->adds) {
		const float *from[] = { s->buf + step->at, s->staging + step->staged };

		return ops->math.sum(stream, s->buf + step->at, from, step->floats > 0 ? 2 : 0,
				     step->floats, &s->events[step->ev]);
	}
	ev = event_of(s, step->ev);
	return ev ? ops->stream.wait(stream, (struct pd_event *)ev) : 0;
}

static int steps_upto(const struct pd_script *s, enum pd_reduction_part upto)
{
	return upto == PD_REDUCTION_ALL ? s->step_count + 1 : s->sums;
}

bool pd_script_issued(const struct pd_reduction *r, enum pd_reduction_part upto)
{
	const struct pd_script *s = (const struct pd_script *)r;

	return !s->done || s->step >= steps_upto(s, upto);
}

int pd_script_progress(struct pd_reduction *r, enum pd_reduction_part upto)
{
	struct pd_script *s = (struct pd_script *)r;
	int n = 0, end = steps_upto(s, upto);

	for (; s->done && s->step < end; s->step++, n++) {
		int verdict = issue(s);

		if (verdict == PD_AGAIN)
			break;
		if (verdict < 0)
			return -1;
	}
	return n;
}

int64_t pd_script_started_ns(const struct pd_reduction *r)
{
	const struct pd_script *s = (const struct pd_script *)r;
	int64_t started_ns = INT64_MAX;

	for (int i = 0; i < s->transfer_count; i++) {
		const struct pd_script_transfer *t = &s->transfers[i];

		if (t->send && t->floats > 0 && s->events[t->ev].start_ns < started_ns)
			started_ns = s->events[t->ev].start_ns;
	}
	return started_ns < INT64_MAX ? started_ns : s->done->start_ns;
}

size_t pd_script_staging_bytes(const struct pd_reduction *r)
{
	return ((const struct pd_script *)r)->staging_floats * sizeof(float);
}
