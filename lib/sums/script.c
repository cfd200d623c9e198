/* SPDX-License-Identifier: Apache-2.0 */
#include "sums/script.h"

#include "base/mem.h"

#include <stdlib.h>

void pd_script_release(struct pd_script *s)
{
	free(s->transfers);
	free(s->steps);
	free(s->sources);
}

/* Makes room for an event, and for all with lower numbers. */
static void make_event(struct pd_script *s, int ev)
{
	if (ev >= 0 && (size_t)ev >= s->event_count)
		s->event_count = (size_t)ev + 1;
}

static struct pd_script_transfer *add_transfer(struct pd_script *s, const struct pd_script_transfer *transfer)
{
	s->transfers = pd_grow(s->transfers, &s->transfer_room, s->transfer_count + 1,
			       sizeof(*s->transfers));
	s->transfers[s->transfer_count] = *transfer;
	make_event(s, transfer->ev);
	return &s->transfers[s->transfer_count++];
}

struct pd_script_transfer *pd_script_send(struct pd_script *s, int peer, int tag, struct pd_script_at at,
					  size_t floats, int after, int ev)
{
	return add_transfer(s, &(struct pd_script_transfer){ true, peer, tag, at, floats, after, ev });
}

struct pd_script_transfer *pd_script_receive(struct pd_script *s, int peer, int tag, struct pd_script_at at,
					     size_t floats, int after, int ev)
{
	return add_transfer(s, &(struct pd_script_transfer){ false, peer, tag, at, floats, after, ev });
}

static void add_step(struct pd_script *s, const struct pd_script_step *step)
{
	s->steps = pd_grow(s->steps, &s->step_room, s->step_count + 1, sizeof(*s->steps));
	s->steps[s->step_count++] = *step;
	make_event(s, step->ev);
}

void pd_script_wait(struct pd_script *s, int ev)
{
	if (!s->coarse)
		add_step(s, &(struct pd_script_step){ .ev = ev });
}

void pd_script_add(struct pd_script *s, struct pd_script_at to, const struct pd_script_at *from, int n,
		   size_t floats, int ev)
{
	if (s->coarse)
		return;
	add_step(s, &(struct pd_script_step){ ev, true, to, floats, s->source_count, n });
	s->sources = pd_grow(s->sources, &s->source_room, s->source_count + (size_t)n, sizeof(*s->sources));
	for (int i = 0; i < n; i++)
		s->sources[s->source_count++] = from[i];
}

/* In 16 bits brings the whole buffer from one place to another. */
static void convert(struct pd_script *s, enum pd_script_place from, enum pd_script_place to, int ev)
{
	if (pd_script_narrows(s))
		pd_script_add(s, (struct pd_script_at){ to }, &(struct pd_script_at){ from }, 1, s->floats, ev);
}

int pd_script_begin(struct pd_script *s, int rounded)
{
	pd_script_wait(s, PD_SCRIPT_READY);
	convert(s, PD_SCRIPT_BUFFER, PD_SCRIPT_TRAVELS, rounded);
	return pd_script_narrows(s) ? rounded : PD_SCRIPT_READY;
}

void pd_script_widen(struct pd_script *s, int ev)
{
	convert(s, PD_SCRIPT_TRAVELS, PD_SCRIPT_BUFFER, ev);
}

void pd_script_end_first_part(struct pd_script *s)
{
	s->first_part = s->step_count;
}

double pd_script_part(const struct pd_script *s, const struct pd_script_transfer *t)
{
	return t->part > 0 ? t->part : (double)(t->floats * pd_script_width(s, t->at.place)) /
				       (double)(s->floats * sizeof(float));
}
