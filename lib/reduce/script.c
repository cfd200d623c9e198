/* SPDX-License-Identifier: Apache-2.0 */
#include "reduce/script.h"

#include "base/mem.h"

#include <stdlib.h>

#define NARROW_BYTES sizeof(uint16_t)

struct pd_script *pd_script_new(const struct pd_reduction_ops *ops,
				enum pd_reducer_kind kind, const struct pd_reduction_config *config,
				int events, int transfers, int steps, struct pd_error *err)
{
	struct pd_members members = { config->topology, config->ranks, config->members,
				      config->rounding.dtype };
	struct pd_script *s = pd_zalloc(sizeof(*s));

	s->base.ops = ops;
	s->base.polls = true;
	s->config = *config;
	s->staging_bytes = (size_t)pd_reducers[kind]->staging_bytes(
		&members, (int64_t)(config->floats * sizeof(float)));
	s->events = pd_calloc((size_t)events, sizeof(*s->events));
	s->event_count = events;
	s->transfers = pd_calloc((size_t)transfers, sizeof(*s->transfers));
	s->steps = pd_calloc((size_t)steps + 2, sizeof(*s->steps));
	s->staging = config->staging;
	if (s->staging_bytes > 0 && !s->staging) {
		s->staging = config->device->ops->memory.alloc(config->device, s->staging_bytes,
							       err);
		if (!s->staging) {
			pd_script_close(&s->base);
			return NULL;
		}
	}
	if (s->staging && pd_script_narrows(s))
		s->rounded = (char *)s->staging + s->staging_bytes - config->floats * NARROW_BYTES;
	return s;
}

void pd_script_transfer(struct pd_script *s, const struct pd_script_transfer *transfer)
{
	s->transfers[s->transfer_count++] = *transfer;
}

void pd_script_wait(struct pd_script *s, int ev)
{
	s->steps[s->step_count++] = (struct pd_script_step){ .ev = ev };
}

void pd_script_add(struct pd_script *s, const struct pd_script_sum *sum, int ev)
{
	s->steps[s->step_count++] = (struct pd_script_step){ .adds = true, .sum = *sum, .ev = ev };
}

static void convert(struct pd_script *s, enum pd_script_place from, enum pd_script_place to, int ev)
{
	if (pd_script_narrows(s))
		pd_script_add(s, &(struct pd_script_sum){ .to = to, .from = { from }, .n = 1,
							  .floats = s->config.floats }, ev);
}

void pd_script_round(struct pd_script *s, int ev)
{
	s->rounds = ev;
	convert(s, PD_SCRIPT_BUFFER, PD_SCRIPT_TRAVELS, ev);
}

void pd_script_widen(struct pd_script *s, int ev)
{
	convert(s, PD_SCRIPT_TRAVELS, PD_SCRIPT_BUFFER, ev);
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

/* Are the numbers there of 16 bits? */
static bool narrow(const struct pd_script *s, enum pd_script_place place)
{
	return pd_script_narrows(s) &&
	       (place == PD_SCRIPT_TRAVELS || place == PD_SCRIPT_STAGED_NARROW);
}

static void *place_of(const struct pd_script *s, enum pd_script_place place, size_t at,
		      size_t staged)
{
	if (place == PD_SCRIPT_STAGED || place == PD_SCRIPT_STAGED_NARROW)
		return (char *)s->staging + staged * (narrow(s, place) ? NARROW_BYTES : sizeof(float));
	return narrow(s, place) ? (void *)(s->rounded + at * NARROW_BYTES) : s->buf + at;
}

static int post(struct pd_script *s, const struct pd_script_transfer *t, uint64_t tag_base)
{
	struct pd_transport *transport = s->config.transport;
	void *at = place_of(s, t->place, t->at, t->at);
	int peer = s->config.ranks[t->peer];
	const struct pd_event *after = event_of(s, t->after);
	uint64_t tag = tag_base + (uint64_t)t->tag;
	size_t bytes = t->floats * (narrow(s, t->place) ? NARROW_BYTES : sizeof(float));

	if (bytes == 0)
		return 0;
	s->base.sent_bytes += t->send ? (int64_t)bytes : 0;
	s->base.messages += t->send;
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
	s->base.sent_bytes = s->base.messages = 0;
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

static int add(struct pd_script *s, const struct pd_script_sum *sum, struct pd_event *ev)
{
	const struct pd_math_ops *math = &s->config.device->ops->math;
	struct pd_mixed_sum mixed = {
		.rounding = s->config.rounding, .dst = place_of(s, sum->to, sum->at, sum->staged),
		.n = sum->n, .narrow = narrow(s, sum->to), .count = sum->floats,
	};

	for (int i = 0; i < sum->n; i++) {
		mixed.src[i] = place_of(s, sum->from[i], sum->at, sum->staged);
		mixed.narrow_sources |= (uint32_t)narrow(s, sum->from[i]) << i;
	}
	if (pd_script_narrows(s))
		return math->mixed_sum(s->config.stream, &mixed, ev);
	return math->sum(s->config.stream, mixed.dst, (const float *const *)mixed.src,
			 sum->floats > 0 ? sum->n : 0, sum->floats, ev);
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
	if (step->adds)
		return add(s, &step->sum, &s->events[step->ev]);
	ev = event_of(s, step->ev);
	if (ev && !s->base.waits && !pd_event_done(ev))
		return PD_AGAIN;
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
	int64_t started_ns = pd_script_narrows(s) ? s->events[s->rounds].start_ns : INT64_MAX;

	for (int i = 0; i < s->transfer_count; i++) {
		const struct pd_script_transfer *t = &s->transfers[i];

		if (t->send && t->floats > 0 && s->events[t->ev].start_ns < started_ns)
			started_ns = s->events[t->ev].start_ns;
	}
	return started_ns < INT64_MAX ? started_ns : s->done->start_ns;
}

size_t pd_script_staging_bytes(const struct pd_reduction *r)
{
	return ((const struct pd_script *)r)->staging_bytes;
}
