/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/collective.h"

#include "base/mem.h"
#include "base/piece.h"

#include <stdlib.h>
#include <string.h>

/* The events of what passes between this member and another one. */
struct pair {
	struct pd_event part_out, part_in;      /* mine of its piece, its of mine */
	struct pd_event sum_out, sum_in;        /* the sum of my piece, of its */
};

struct pd_collective {
	bool chained;
	struct pd_transport *transport;
	struct pd_device *device;
	struct pd_stream *stream;
	int n, me;
	int *ranks;
	size_t floats, piece_most;      /* of the longest piece */
	float *staging;                 /* n - 1 times piece_most: parts of my piece */
	struct pair *pairs;             /* by member; that of me is never used.  Chained: by piece */
	struct pd_event *sums;          /* chained, by piece: mine is added */
	/*
	 * What is added up to the sum of my piece, in groups of PD_SUM_SOURCES: the parts by
	 * member; each group but the first begins with what the one before made, which is
	 * where member 0's part was.
	 */
	const float **sources;
	int source_count;
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
	return pd_piece_begin(c->floats, c->n, i);
}

/* Where a member's part of my piece is, or comes. */
static float *part(const struct pd_collective *c, int member)
{
	return member == c->me ? c->buf + piece_begin(c, c->me)
			       : c->staging + (size_t)(member - (member > c->me)) * c->piece_most;
}

static void arrange_sources(struct pd_collective *c)
{
	c->source_count = 0;
	for (int i = 0; i < c->n; i++) {
		if (i > 0 && c->source_count % PD_SUM_SOURCES == 0)
			c->sources[c->source_count++] = part(c, 0);
		c->sources[c->source_count++] = part(c, i);
	}
}

static int groups(const struct pd_collective *c)
{
	return (c->source_count + PD_SUM_SOURCES - 1) / PD_SUM_SOURCES;
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
					bool chained, size_t floats, struct pd_error *err)
{
	struct pd_collective *c = pd_zalloc(sizeof(*c));

	c->chained = chained;
	c->transport = transport;
	c->device = device;
	c->stream = stream;
	c->n = n;
	c->me = me;
	c->floats = floats;
	c->ranks = pd_calloc((size_t)n, sizeof(*c->ranks));
	memcpy(c->ranks, ranks, (size_t)n * sizeof(*ranks));
	c->pairs = pd_calloc((size_t)n, sizeof(*c->pairs));
	c->sums = pd_calloc((size_t)n, sizeof(*c->sums));
	c->sources = pd_calloc(2 * (size_t)n, sizeof(*c->sources));
	c->piece_most = pd_piece_most(floats, n);
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
	free(c->sums);
	free(c->sources);
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

	if (post(c, false, other, tag_base, part(c, other), mine_floats, NULL, &pair->part_in) < 0 ||
	    post(c, true, other, tag_base, its, its_floats, c->after, &pair->part_out) < 0 ||
	    post(c, true, other, tag_base + 1, mine, mine_floats, &c->summed,
		 &pair->sum_out) < 0 ||
	    post(c, false, other, tag_base + 1, its, its_floats, c->after, &pair->sum_in) < 0)
		return -1;
	return 0;
}

static int sum_group(struct pd_collective *c, int group)
{
	int first = group * PD_SUM_SOURCES, left = c->source_count - first;
	bool last = left <= PD_SUM_SOURCES;

	return c->device->ops->sum(c->stream, part(c, last ? c->me : 0), c->sources + first,
				   last ? left : PD_SUM_SOURCES, piece_floats(c, c->me),
				   last ? &c->summed : NULL);
}

/* Where what the members before this one made of a piece comes. */
static float *before_me(const struct pd_collective *c, int piece)
{
	return c->staging + (size_t)(piece % (c->n - 1)) * c->piece_most;
}

/*
 * A piece on its way along the chain and back.  The last piece takes the place in staging that
 * the first had.  The sum comes to where what goes on has left.
 */
static int post_piece(struct pd_collective *c, int piece, uint64_t tag_base)
{
	struct pair *pair = &c->pairs[piece];
	struct pd_event *sum = &c->sums[piece];
	size_t floats = piece_floats(c, piece);
	float *at = c->buf + piece_begin(c, piece);
	uint64_t tag = tag_base + 2 * (uint64_t)piece;
	bool first = c->me == 0, last = c->me == c->n - 1;

	if (!first && post(c, false, c->me - 1, tag, before_me(c, piece), floats,
			   piece == c->n - 1 ? &c->sums[0] : NULL, &pair->part_in) < 0)
		return -1;
	if (!last && (post(c, true, c->me + 1, tag, at, floats, first ? c->after : sum,
			   &pair->part_out) < 0 ||
		      post(c, false, c->me + 1, tag + 1, at, floats, &pair->part_out,
			   &pair->sum_in) < 0))
		return -1;
	return first ? 0 : post(c, true, c->me - 1, tag + 1, at, floats,
				last ? sum : &pair->sum_in, &pair->sum_out);
}

static int start_chain(struct pd_collective *c, uint64_t tag_base)
{
	for (int p = 0; p < c->n && c->me > 0; p++) {
		c->sources[2 * p] = before_me(c, p);
		c->sources[2 * p + 1] = c->buf + piece_begin(c, p);
		pd_event_arm(&c->sums[p]);
	}
	for (int p = 0; p < c->n; p++)
		if (post_piece(c, p, tag_base) < 0)
			return -1;
	return 0;
}

/*
 * As below, chained: wait until mine is ready; for each piece, wait for what comes and add
 * mine; then, n at a time, wait for what goes on, the sums that leave, those that come.
 */
static int issue_chained(struct pd_collective *c)
{
	const struct pd_device_ops *ops = c->device->ops;
	int rest = c->step - 1 - 2 * c->n, piece = rest < 0 ? (c->step - 1) / 2 : rest % c->n;
	struct pair *pair = &c->pairs[piece];

	if (c->step == 0)
		return c->after ? ops->wait(c->stream, (struct pd_event *)c->after) : 0;
	if (rest < 0 && c->me == 0)
		return 0;
	if (rest < 0 && c->step % 2 == 1)
		return ops->wait(c->stream, &pair->part_in);
	if (rest < 0)
		return ops->sum(c->stream, c->buf + piece_begin(c, piece), c->sources + 2 * piece,
				2, piece_floats(c, piece), &c->sums[piece]);
	if (rest == 3 * c->n)
		return ops->sum(c->stream, c->buf, NULL, 0, 0, c->done);
	return ops->wait(c->stream, rest < c->n ? &pair->part_out :
			 rest < 2 * c->n ? &pair->sum_out : &pair->sum_in);
}

/*
 * Thing number `step` for the stream: wait for the parts, n things; add them up, one for
 * each group; then, n at a time, wait for the parts that leave, the sums that leave, those
 * that come; at last nothing, with `done`.
 */
static int issue(struct pd_collective *c)
{
	int rest = c->step - c->n - groups(c), member = c->step;
	struct pair *pair;
	struct pd_event *ev;

	if (c->step >= c->n && rest < 0)
		return sum_group(c, c->step - c->n);
	if (rest == 3 * c->n)
		return c->device->ops->sum(c->stream, c->buf, NULL, 0, 0, c->done);
	if (rest >= 0)
		member = rest % c->n;
	pair = &c->pairs[member];
	if (member == c->me)
		ev = rest < 0 ? (struct pd_event *)c->after : NULL;
	else if (rest < 0)
		ev = &pair->part_in;
	else
		ev = rest < c->n ? &pair->part_out :
		     rest < 2 * c->n ? &pair->sum_out : &pair->sum_in;
	return ev ? c->device->ops->wait(c->stream, ev) : 0;
}

static int steps(const struct pd_collective *c)
{
	if (c->chained)
		return 5 * c->n + 2;
	return 4 * c->n + groups(c) + 1;
}

bool pd_collective_issued(const struct pd_collective *c)
{
	return !c->done || c->step == steps(c);
}

int pd_collective_progress(struct pd_collective *c)
{
	int n = 0;

	if (!c->done)
		return 0;
	while (c->step < steps(c)) {
		int verdict = c->chained ? issue_chained(c) : issue(c);

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
	if (c->chained) {
		if (start_chain(c, tag_base) < 0)
			return -1;
		return pd_collective_progress(c) < 0 ? -1 : 0;
	}
	arrange_sources(c);
	pd_event_arm(&c->summed);
	/* not everybody to the same member first */
	for (int k = 1; k < c->n; k++)
		if (post_pair(c, (c->me + k) % c->n, tag_base) < 0)
			return -1;
	return pd_collective_progress(c) < 0 ? -1 : 0;
}

static int64_t chain_started_ns(const struct pd_collective *c)
{
	int first = 0;

	if (c->n == 1)
		return c->done->start_ns;
	if (c->me > 0)
		return c->sums[0].start_ns;
	while (first < c->n - 1 && piece_floats(c, first) == 0)
		first++;
	return c->pairs[first].part_out.start_ns;
}

int64_t pd_collective_started_ns(const struct pd_collective *c)
{
	int64_t started_ns = c->summed.start_ns;

	if (c->chained)
		return chain_started_ns(c);
	for (int i = 0; i < c->n; i++)
		if (i != c->me && piece_floats(c, i) > 0 &&
		    c->pairs[i].part_out.start_ns < started_ns)
			started_ns = c->pairs[i].part_out.start_ns;
	return started_ns;
}
