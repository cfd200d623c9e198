/* SPDX-License-Identifier: Apache-2.0 */
#include "reduce/script.h"

#include "base/mem.h"
#include "device/submit.h"

#include <stdlib.h>

#define NARROW_BYTES sizeof(uint16_t)

size_t pd_script_row_staging_bytes(enum pd_reducer_kind kind, const struct pd_reduction_config *config)
{
	struct pd_members members = { config->topology, config->ranks, config->members,
				      config->rounding.dtype };

	return (size_t)pd_reducers[kind]->staging_bytes(&members,
							(int64_t)(config->floats * sizeof(float)));
}

struct pd_script *pd_script_new(const struct pd_reduction_ops *ops, size_t staging_bytes,
				const struct pd_reduction_config *config, struct pd_error *err)
{
	struct pd_script *s = pd_zalloc(sizeof(*s));

	s->base.ops = ops;
	s->base.polls = true;
	s->config = *config;
	s->staging_bytes = staging_bytes;
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

/* Makes room for an event, and for all with lower numbers. */
static void make_event(struct pd_script *s, int ev)
{
	if (ev < 0 || (size_t)ev < s->event_count)
		return;
	s->event_count = (size_t)ev + 1;
	s->events = pd_grow(s->events, &s->event_room, s->event_count, sizeof(*s->events));
}

void pd_script_transfer(struct pd_script *s, const struct pd_script_transfer *transfer)
{
	s->transfers = pd_grow(s->transfers, &s->transfer_room, s->transfer_count + 1,
			       sizeof(*s->transfers));
	s->transfers[s->transfer_count++] = *transfer;
	make_event(s, transfer->ev);
}

static void add_step(struct pd_script *s, int ev, int sum)
{
	s->steps = pd_grow(s->steps, &s->step_room, s->step_count + 1, sizeof(*s->steps));
	s->steps[s->step_count++] = (struct pd_script_step){ ev, sum };
	make_event(s, ev);
}

void pd_script_wait(struct pd_script *s, int ev)
{
	add_step(s, ev, -1);
}

void pd_script_add(struct pd_script *s, const struct pd_script_sum *sum, int ev)
{
	add_step(s, ev, (int)s->sum_count);
	s->sums = pd_grow(s->sums, &s->sum_room, s->sum_count + 1, sizeof(*s->sums));
	s->sums[s->sum_count++] = (struct pd_script_kept_sum){ sum->to, s->source_count, sum->floats, sum->n };
	s->sources = pd_grow(s->sources, &s->source_room, s->source_count + (size_t)sum->n,
			     sizeof(*s->sources));
	for (int i = 0; i < sum->n; i++)
		s->sources[s->source_count++] = sum->from[i];
}

static void convert(struct pd_script *s, enum pd_script_place from, enum pd_script_place to, int ev)
{
	if (pd_script_narrows(s))
		pd_script_add(s, &(struct pd_script_sum){ .to = { to }, .n = 1, .floats = s->config.floats,
				  .from = &(struct pd_script_at){ from } }, ev);
}

void pd_script_round(struct pd_script *s, int ev)
{
	convert(s, PD_SCRIPT_BUFFER, PD_SCRIPT_TRAVELS, ev);
}

void pd_script_widen(struct pd_script *s, int ev)
{
	convert(s, PD_SCRIPT_TRAVELS, PD_SCRIPT_BUFFER, ev);
}

void pd_script_end_first_part(struct pd_script *s)
{
	s->first_part = s->step_count;
}

void pd_script_close(struct pd_reduction *r)
{
	struct pd_script *s = (struct pd_script *)r;

	if (s->staging && !s->config.staging)
		s->config.device->ops->memory.free(s->config.device, s->staging);
	free(s->events);
	free(s->transfers);
	free(s->steps);
	free(s->sums);
	free(s->sources);
	free(s);
}

static struct pd_event *event_of(const struct pd_script *s, int number)
{
	return number == PD_SCRIPT_NOW ? NULL : number == PD_SCRIPT_READY ? (struct pd_event *)s->after
							: &s->events[number];
}

/* Are the numbers there of 16 bits? */
static bool narrow(const struct pd_script *s, enum pd_script_place place)
{
	return pd_script_narrows(s) &&
	       (place == PD_SCRIPT_TRAVELS || place == PD_SCRIPT_STAGED_NARROW);
}

static void *place_of(const struct pd_script *s, struct pd_script_at at)
{
	if (at.place == PD_SCRIPT_STAGED || at.place == PD_SCRIPT_STAGED_NARROW)
		return (char *)s->staging + at.at * (narrow(s, at.place) ? NARROW_BYTES : sizeof(float));
	return narrow(s, at.place) ? (void *)(s->rounded + at.at * NARROW_BYTES) : s->buf + at.at;
}

static int post(struct pd_script *s, const struct pd_script_transfer *t, uint64_t tag_base)
{
	struct pd_transport *transport = s->config.transport;
	void *at = place_of(s, (struct pd_script_at){ t->place, t->at });
	int peer = s->config.ranks[t->peer];
	const struct pd_event *after = event_of(s, t->after);
	uint64_t tag = tag_base + (uint64_t)t->tag;
	size_t bytes = t->floats * (narrow(s, t->place) ? NARROW_BYTES : sizeof(float));

	if (bytes == 0)
		return 0;
	s->base.sent_bytes += t->send ? (int64_t)bytes : 0;
	s->base.messages += !t->send ? 0 : t->messages > 0 ? t->messages : 1;
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
	for (size_t i = 0; i < s->transfer_count; i++)
		if (s->transfers[i].floats > 0)
			pd_event_arm(&s->events[s->transfers[i].ev]);
	for (size_t i = 0; i < s->step_count; i++)
		if (s->steps[i].sum >= 0 && s->steps[i].ev >= 0)
			pd_event_arm(&s->events[s->steps[i].ev]);
	for (size_t i = 0; i < s->transfer_count; i++)
		if (post(s, &s->transfers[i], tag_base) < 0)
			return -1;
	return 0;
}

static int add(struct pd_script *s, const struct pd_script_kept_sum *sum, struct pd_event *ev)
{
	const struct pd_script_at *from = s->sources + sum->first_source;
	struct pd_mixed_sum mixed = {
		.rounding = s->config.rounding, .dst = place_of(s, sum->to),
		.n = sum->n, .narrow = narrow(s, sum->to.place), .count = sum->floats,
	};

	for (int i = 0; i < sum->n; i++) {
		mixed.src[i] = place_of(s, from[i]);
		mixed.narrow_sources |= (uint32_t)narrow(s, from[i].place) << i;
	}
	if (pd_script_narrows(s))
		return pd_submit_mixed_sum(s->config.stream, &mixed, ev);
	return pd_submit_sum(s->config.stream, mixed.dst, (const float *const *)mixed.src,
			     sum->floats > 0 ? sum->n : 0, sum->floats, ev);
}

/* The last thing is nothing, with `done`. */
static int issue(struct pd_script *s)
{
	struct pd_stream *stream = s->config.stream;
	const struct pd_script_step *step = &s->steps[s->step];
	struct pd_event *ev;

	if (s->step == s->step_count)
		return pd_submit_sum(stream, s->buf, NULL, 0, 0, s->done);
	ev = event_of(s, step->ev);
	if (step->sum >= 0)
		return add(s, &s->sums[step->sum], ev);
	if (ev && !s->base.waits && !pd_event_done(ev))
		return PD_AGAIN;
	return ev ? pd_submit_wait(stream, ev) : 0;
}

static size_t steps_upto(const struct pd_script *s, enum pd_reduction_part upto)
{
	return upto == PD_REDUCTION_ALL ? s->step_count + 1 : s->first_part;
}

bool pd_script_issued(const struct pd_reduction *r, enum pd_reduction_part upto)
{
	const struct pd_script *s = (const struct pd_script *)r;

	return !s->done || s->step >= steps_upto(s, upto);
}

int pd_script_progress(struct pd_reduction *r, enum pd_reduction_part upto)
{
	struct pd_script *s = (struct pd_script *)r;
	size_t end = steps_upto(s, upto);
	int n = 0;

	for (; s->done && s->step < end; s->step++, n++) {
		int verdict = issue(s);

		if (verdict == PD_AGAIN)
			break;
		if (verdict < 0)
			return -1;
	}
	return n;
}

static int64_t earlier(const struct pd_script *s, int ev, int64_t ns)
{
	return ev >= 0 && s->events[ev].start_ns < ns ? s->events[ev].start_ns : ns;
}

int64_t pd_script_started_ns(const struct pd_reduction *r)
{
	const struct pd_script *s = (const struct pd_script *)r;
	int64_t ns = s->done->start_ns;

	for (size_t i = 0; i < s->transfer_count; i++)
		if (s->transfers[i].send && s->transfers[i].floats > 0)
			ns = earlier(s, s->transfers[i].ev, ns);
	for (size_t i = 0; i < s->step_count; i++)
		if (s->steps[i].sum >= 0 && s->sums[s->steps[i].sum].floats > 0)
			ns = earlier(s, s->steps[i].ev, ns);
	return ns;
}

size_t pd_script_staging_bytes(const struct pd_reduction *r)
{
	return ((const struct pd_script *)r)->staging_bytes;
}
