/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/collective.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define PIECE_ALIGN 16          /* floats: pieces begin at cache lines */

/* The events of what passes between this member and another one. */
struct pair {
	struct pd_event part_out, part_in;      /* mine of its piece, its of mine */
	struct pd_event sum_out, sum_in;        /* the sum of my piece, of its */
};

struct pd_collective {
	struct pd_transport *transport;
	struct pd_device *device;
	struct pd_stream *stream;
	int n, me;
	int *ranks;
	size_t floats, piece_most;      /* of the longest piece */
	float *staging;                 /* n - 1 times piece_most: parts of my piece */
	struct pair *pairs;             /* by member; that of me is never used */
	const float **parts;            /* of my piece, by member */
	struct pd_event summed;

	/* the one under way */
	float *buf;
	const struct pd_event *after;
	struct pd_event *done;
	int step;                       /* next thing for the stream; see issue() */
};

/* Where piece i begins; piece n begins at the end. */
static size_t piece_begin(const struct pd_collective *c, int i)
{
	size_t lines = (c->floats + PIECE_ALIGN - 1) / PIECE_ALIGN;
	size_t begin = (lines / (size_t)c->n * (size_t)i +
			lines % (size_t)c->n * (size_t)i / (size_t)c->n) * PIECE_ALIGN;

	return begin < c->floats ? begin : c->floats;
}

static size_t piece_floats(const struct pd_collective *c, int i)
{
	return piece_begin(c, i + 1) - piece_begin(c, i);
}

size_t pd_collective_staging_bytes(const struct pd_collective *c)
{
	return (size_t)(c->n - 1) * c->piece_most * sizeof(float);
}

struct pd_collective *pd_collective_new(struct pd_transport *transport, struct pd_device *device,
					struct pd_stream *stream, const int *ranks, int n, int me,
					size_t floats, struct pd_error *err)
{
	struct pd_collective *c = pd_zalloc(sizeof(*c));

	c->transport = transport;
	c->device = device;
	c->stream = stream;
	c->n = n;
	c->me = me;
	c->floats = floats;
	c->ranks = pd_calloc((size_t)n, sizeof(*c->ranks));
	memcpy(c->ranks, ranks, (size_t)n * sizeof(*ranks));
	c->pairs = pd_calloc((size_t)n, sizeof(*c->pairs));
	c->parts = pd_calloc((size_t)n, sizeof(*c->parts));
	for (int i = 0; i < n; i++)
		if (piece_floats(c, i) > c->piece_most)
			c->piece_most = piece_floats(c, i);
	if (pd_collective_staging_bytes(c) > 0) {
		c->staging = device->ops->alloc(device, pd_collective_staging_bytes(c), err);
		if (!c->staging) {
			pd_collective_free(c);
			return NULL;
		}
	}
	return c;
}

void pd_collective_free(struct pd_collective *c)
{
	if (!c)
		return;
	if (c->staging)
		c->device->ops->free(c->device, c->staging);
	free(c->ranks);
	free(c->pairs);
	free(c->parts);
	free(c);
}

static int post(struct pd_collective *c, bool send, int member, uint64_t tag, float *at,
		size_t floats, const struct pd_event *after, struct pd_event *ev)
{
	const struct pd_transport_ops *ops = c->transport->ops;
	size_t bytes = floats * sizeof(float);

	if (bytes == 0)
		return 0;
	pd_event_arm(ev);
	return send ? ops->send(c->transport, c->ranks[member], tag, at, bytes, after, ev)
		    : ops->recv(c->transport, c->ranks[member], tag, at, bytes, after, ev);
}

/*
 * All that passes between this member and `other`.  The sum of its piece may come to where
 * my part of it is: it can only be made when that has left.
 */
static int post_pair(struct pd_collective *c, int other, uint64_t tag_base)
{
	struct pair *pair = &c->pairs[other];
	float *mine = c->buf + piece_begin(c, c->me), *its = c->buf + piece_begin(c, other);
	size_t mine_floats = piece_floats(c, c->me), its_floats = piece_floats(c, other);
	float *part = c->staging + (size_t)(other - (other > c->me)) * c->piece_most;

	c->parts[other] = part;
	if (post(c, false, other, tag_base, part, mine_floats, NULL, &pair->part_in) < 0 ||
	    post(c, true, other, tag_base, its, its_floats, c->after, &pair->part_out) < 0 ||
	    post(c, true, other, tag_base + 1, mine, mine_floats, &c->summed,
		 &pair->sum_out) < 0 ||
	    post(c, false, other, tag_base + 1, its, its_floats, c->after, &pair->sum_in) < 0)
		return -1;
	return 0;
}

static int wait_for(struct pd_collective *c, struct pd_event *ev)
{
	return c->device->ops->wait(c->stream, ev);
}

/*
 * Thing number `step` for the stream: 0 to n-1, wait for the parts; n, add them up; then,
 * n at a time, wait for the parts that leave, the sums that leave, those that come; at last
 * nothing, with `done`.
 */
static int issue(struct pd_collective *c)
{
	const struct pd_device_ops *ops = c->device->ops;
	int phase = c->step <= c->n ? 0 : 1 + (c->step - c->n - 1) / c->n;
	int member = c->step <= c->n ? c->step : (c->step - c->n - 1) % c->n;
	struct pair *pair = &c->pairs[member % c->n];

	if (c->step == c->n)
		return ops->sum(c->stream, c->buf + piece_begin(c, c->me), c->parts, c->n,
				piece_floats(c, c->me), &c->summed);
	if (phase > 3)
		return ops->sum(c->stream, c->buf, NULL, 0, 0, c->done);
	if (member == c->me)
		return phase == 0 && c->after ? wait_for(c, (struct pd_event *)c->after) : 0;
	switch (phase) {
	case 0:
		return wait_for(c, &pair->part_in);
	case 1:
		return wait_for(c, &pair->part_out);
	case 2:
		return wait_for(c, &pair->sum_out);
	default:
		return wait_for(c, &pair->sum_in);
	}
}

static int steps(const struct pd_collective *c)
{
	return 4 * c->n + 2;
}

int pd_collective_progress(struct pd_collective *c)
{
	int n = 0;

	if (!c->done)
		return 0;
	while (c->step < steps(c)) {
		int verdict = issue(c);

		if (verdict == PD_AGAIN)
			break;
		if (verdict < 0)
			return -1;
		c->step++;
		n++;
	}
	return n;
}

int pd_collective_start(struct pd_collective *c, float *buf, uint64_t tag_base,
			const struct pd_event *after, struct pd_event *done)
{
	if (c->done && c->step < steps(c))
		pd_bug("an all-reduce begins before the last one is done");
	c->buf = buf;
	c->after = after;
	c->done = done;
	c->step = 0;
	c->parts[c->me] = buf + piece_begin(c, c->me);
	pd_event_arm(&c->summed);
	/* not everybody to the same member first */
	for (int k = 1; k < c->n; k++)
		if (post_pair(c, (c->me + k) % c->n, tag_base) < 0)
			return -1;
	return pd_collective_progress(c) < 0 ? -1 : 0;
}

int64_t pd_collective_started_ns(const struct pd_collective *c)
{
	int64_t started_ns = c->summed.start_ns;

	for (int i = 0; i < c->n; i++)
		if (i != c->me && piece_floats(c, i) > 0 &&
		    c->pairs[i].part_out.start_ns < started_ns)
			started_ns = c->pairs[i].part_out.start_ns;
	return started_ns;
}
