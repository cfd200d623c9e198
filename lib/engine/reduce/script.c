/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/reduce/script.h"

#include "base/mem.h"
#include "engine/device/submit.h"

#include <stdlib.h>

_Static_assert(PD_SCRIPT_SOURCES <= PD_SUM_SOURCES, "a device sums up what a script has in one sum");

struct player {
	struct pd_reduction base;
	struct pd_reduction_config config;
	struct pd_script script;
	float *staging;
	char *rounded;                  /* in 16 bits: what the buffer is rounded to */
	size_t staging_bytes;           /* with that at its end */
	struct pd_event *events;
	/* the one under way */
	float *buf;
	const struct pd_event *after;
	struct pd_event *done;
	size_t step;
};

static void player_close(struct pd_reduction *r)
{
	struct player *s = (struct player *)r;

	if (s->staging && !s->config.staging)
		s->config.device->ops->memory.free(s->config.device, s->staging);
	free(s->events);
	pd_script_release(&s->script);
	free(s);
}

static struct pd_event *event_of(const struct player *s, int number)
{
	return number == PD_SCRIPT_NOW ? NULL : number == PD_SCRIPT_READY ? (struct pd_event *)s->after
							: &s->events[number];
}

/* Are the numbers there of 16 bits? */
static bool narrow(const struct player *s, enum pd_script_place place)
{
	return pd_script_width(&s->script, place) < sizeof(float);
}

/* In virtual time staging that nobody counts is nowhere. */
static void *place_of(const struct player *s, struct pd_script_at at)
{
	size_t offset = at.at * pd_script_width(&s->script, at.place);

	if (at.place == PD_SCRIPT_STAGED || at.place == PD_SCRIPT_STAGED_NARROW)
		return (void *)((uintptr_t)s->staging + offset);
	return (narrow(s, at.place) ? s->rounded : (char *)s->buf) + offset;
}

static int post(struct player *s, const struct pd_script_transfer *t, uint64_t tag_base)
{
	struct pd_transport *transport = s->config.transport;
	void *at = place_of(s, t->at);
	int peer = s->config.ranks[t->peer];
	const struct pd_event *after = event_of(s, t->after);
	uint64_t tag = tag_base + (uint64_t)t->tag;
	size_t bytes = t->floats * pd_script_width(&s->script, t->at.place);

	if (bytes == 0)
		return 0;
	s->base.sent_bytes += t->send ? (int64_t)bytes : 0;
	s->base.messages += !t->send ? 0 : t->messages > 0 ? t->messages : 1;
	return t->send ? transport->ops->send(transport, peer, tag, at, bytes, after,
					      &s->events[t->ev])
		       : transport->ops->recv(transport, peer, tag, at, bytes, after,
					      &s->events[t->ev]);
}

static size_t steps_upto(const struct player *s, enum pd_reduction_part upto)
{
	return upto == PD_REDUCTION_ALL ? s->script.step_count + 1 : s->script.first_part;
}

static bool player_issued(const struct pd_reduction *r, enum pd_reduction_part upto)
{
	const struct player *s = (const struct player *)r;

	return !s->done || s->step >= steps_upto(s, upto);
}

static int player_start(struct pd_reduction *r, float *buf, uint64_t tag_base,
		    const struct pd_event *after, struct pd_event *done)
{
	struct player *s = (struct player *)r;
	const struct pd_script *script = &s->script;

	if (!player_issued(r, PD_REDUCTION_ALL))
		pd_bug("an all-reduce begins before the last one is done");
	s->buf = buf;
	s->after = after;
	s->done = done;
	s->step = 0;
	s->base.sent_bytes = s->base.messages = 0;
	for (size_t i = 0; i < script->transfer_count; i++)
		if (script->transfers[i].floats > 0)
			pd_event_arm(&s->events[script->transfers[i].ev]);
	for (size_t i = 0; i < script->step_count; i++)
		if (script->steps[i].adds && script->steps[i].ev >= 0)
			pd_event_arm(&s->events[script->steps[i].ev]);
	for (size_t i = 0; i < script->transfer_count; i++)
		if (post(s, &script->transfers[i], tag_base) < 0)
			return -1;
	return 0;
}

static int add(struct player *s, const struct pd_script_step *step, struct pd_event *ev)
{
	const struct pd_script_at *from = s->script.sources + step->first;
	struct pd_mixed_sum mixed = {
		.rounding = s->config.rounding, .dst = place_of(s, step->to),
		.n = step->n, .narrow = narrow(s, step->to.place), .count = step->floats,
	};

	for (int i = 0; i < step->n; i++) {
		mixed.src[i] = place_of(s, from[i]);
		mixed.narrow_sources |= (uint32_t)narrow(s, from[i].place) << i;
	}
	if (pd_script_narrows(&s->script))
		return pd_submit_mixed_sum(s->config.stream, &mixed, ev);
	return pd_submit_sum(s->config.stream, mixed.dst, (const float *const *)mixed.src,
			     step->floats > 0 ? step->n : 0, step->floats, ev);
}

/* The last thing is nothing, with `done`. */
static int issue(struct pd_reduction *r)
{
	struct player *s = (struct player *)r;
	struct pd_stream *stream = s->config.stream;
	const struct pd_script_step *step = &s->script.steps[s->step];
	struct pd_event *ev;

	if (s->step == s->script.step_count)
		return pd_submit_sum(stream, s->buf, NULL, 0, 0, s->done);
	ev = event_of(s, step->ev);
	if (step->adds)
		return add(s, step, ev);
	if (ev && !s->base.may_wait && !pd_event_done(ev))
		return PD_AGAIN;
	return ev ? pd_submit_wait(stream, ev) : 0;
}

static int player_progress(struct pd_reduction *r, enum pd_reduction_part upto)
{
	struct player *s = (struct player *)r;

	return s->done ? pd_reduction_advance(r, &s->step, steps_upto(s, upto), issue) : 0;
}

static int64_t earlier(const struct player *s, int ev, int64_t ns)
{
	return ev >= 0 && s->events[ev].start_ns < ns ? s->events[ev].start_ns : ns;
}

static int64_t player_started_ns(const struct pd_reduction *r)
{
	const struct player *s = (const struct player *)r;
	const struct pd_script *script = &s->script;
	int64_t ns = s->done->start_ns;

	for (size_t i = 0; i < script->transfer_count; i++)
		if (script->transfers[i].send && script->transfers[i].floats > 0)
			ns = earlier(s, script->transfers[i].ev, ns);
	for (size_t i = 0; i < script->step_count; i++)
		if (script->steps[i].adds && script->steps[i].floats > 0)
			ns = earlier(s, script->steps[i].ev, ns);
	return ns;
}

static size_t player_staging_bytes(const struct pd_reduction *r)
{
	return ((const struct player *)r)->staging_bytes;
}

static const struct pd_reduction_ops player_ops = {
	.close = player_close, .start = player_start, .progress = player_progress, .issued = player_issued,
	.started_ns = player_started_ns, .staging_bytes = player_staging_bytes,
};

struct pd_reduction *pd_script_open(const struct pd_script *script, size_t staging_bytes,
				    const struct pd_reduction_config *config, struct pd_error *err)
{
	struct player *s = pd_zalloc(sizeof(*s));

	s->base.ops = &player_ops;
	s->base.polls = true;
	s->config = *config;
	s->script = *script;
	s->events = pd_calloc(script->event_count, sizeof(*s->events));
	s->staging_bytes = staging_bytes;
	s->staging = config->staging;
	if (staging_bytes > 0 && !s->staging)
		s->staging = config->device->ops->memory.alloc(config->device, staging_bytes, err);
	if (staging_bytes > 0 && !s->staging) {
		player_close(&s->base);
		return NULL;
	}
	if (s->staging && pd_script_narrows(script))
		s->rounded = (char *)s->staging + staging_bytes -
			     config->floats * pd_script_width(script, PD_SCRIPT_TRAVELS);
	return &s->base;
}
