/* SPDX-License-Identifier: Apache-2.0 */
#include "reduce/dense.h"

#include "base/mem.h"
#include "base/piece.h"
#include "reduce/direct.h"

#include <stdlib.h>

#define CUTS_UNDER_WAY 2        /* of a share to each receiver, where transfers share a link */

/* The events of what passes between this member and another one of its group, in one part of many. */
struct pair {
	struct pd_event part_out, part_in;      /* mine of its pieces, its of mine */
	struct pd_event sum_out, sum_in;        /* the sums of my pieces, of its */
};

/* Of a piece that this member owns. */
struct owned {
	int piece;
	struct pd_event before, on;     /* comes from the group before; goes on to the next */
	struct pd_event sum, back;      /* the sum comes from the next group; goes back */
	struct pd_event added;          /* my group's parts are in it */
};

struct dense {
	struct pd_reduction base;
	struct pd_allreduce how;
	struct pd_transport *transport;
	struct pd_device *device;
	struct pd_stream *stream;
	const int *ranks;
	size_t floats, piece_most;      /* of the longest piece */
	int me, group, first, size;     /* my group, its first member, how many it has */
	int owned_first, owned_count;   /* my pieces */
	int cuts;                       /* transfers of the longest share: one, or its pieces */
	int sums, steps;                /* for each of these; in all */
	struct pd_rounding rounding;
	size_t each;                    /* bytes of a number that travels, but for parts of sums */
	/*
	 * Staging: what comes from the group before; the others' parts of my pieces, member by
	 * member, times piece_most; and in 16 bits what the whole buffer is rounded to.
	 */
	float *staging;
	bool owns_staging;
	char *parts, *rounded;
	struct pd_event narrowed;       /* the buffer is rounded */
	struct pair *pairs;             /* by member of the group and cut; those of me are never used */
	struct owned *owned;            /* in the order in which they go */
	struct pd_event summed;         /* they are sums of all; of one group, the last is added */

	/* the one under way */
	float *buf;
	const struct pd_event *after;
	struct pd_event *done;
	int step;                       /* next thing for the stream; see issue() */
};

/* Where piece i begins; the one behind the last begins at the end. */
static size_t piece_begin(const struct dense *c, int i)
{
	return pd_piece_begin(c->floats, c->how.pieces, i);
}

static size_t piece_floats(const struct dense *c, int i)
{
	return piece_begin(c, i + 1) - piece_begin(c, i);
}

/* Where the pieces begin that member i of my group owns, and how much that is. */
static size_t share_begin(const struct dense *c, int i)
{
	return piece_begin(c, pd_allreduce_piece_begin(&c->how, c->size, i));
}

/* Tells whether there are no other groups: shares then travel cut by cut. */
static bool alone(const struct dense *c)
{
	return c->how.groups == 1;
}

/* Where a cut of the share of member i begins; those of a share with fewer pieces are empty at the end. */
static size_t cut_begin(const struct dense *c, int i, int cut)
{
	int piece = pd_allreduce_piece_begin(&c->how, c->size, i) + cut;
	int end = pd_allreduce_piece_begin(&c->how, c->size, i + 1);

	return piece_begin(c, cut == c->cuts || piece > end ? end : piece);
}

static size_t cut_floats(const struct dense *c, int i, int cut)
{
	return cut_begin(c, i, cut + 1) - cut_begin(c, i, cut);
}

static struct pair *pair_of(const struct dense *c, int member, int cut)
{
	return &c->pairs[member * c->cuts + cut];
}

static bool is_first(const struct dense *c)
{
	return c->group == 0;
}

static bool is_last(const struct dense *c)
{
	return c->group == c->how.groups - 1;
}

static bool narrows(const struct dense *c)
{
	return c->rounding.dtype != PD_F32;
}

static int before_places(const struct dense *c)
{
	return c->owned_count > 1 ? c->owned_count - 1 : 1;
}

/* Where my gradients are that travel, and the sums that come back. */
static char *travels(const struct dense *c, size_t at)
{
	return (narrows(c) ? c->rounded : (char *)c->buf) + at * c->each;
}

/* Where what the groups before made of one of my pieces comes. */
static float *before_me(const struct dense *c, int i)
{
	return c->staging + (size_t)(i % before_places(c)) * c->piece_most;
}

/* Where the parts of another member of my group come. */
static char *parts_of(const struct dense *c, int member)
{
	int others = member - (member > c->me - c->first);

	return c->parts + (size_t)others * (size_t)c->owned_count * c->piece_most * c->each;
}

/* Where a member's part of one of my pieces is. */
static void *part(const struct dense *c, int member, int i)
{
	int mine = c->me - c->first;
	size_t begin = piece_begin(c, c->owned[i].piece);

	return member == mine ? travels(c, begin)
			      : parts_of(c, member) + (begin - share_begin(c, mine)) * c->each;
}

/* What is added up, in this order, to one of my pieces. */
static void *source(const struct dense *c, int i, int n)
{
	if (is_first(c))
		return part(c, n, i);
	return n == 0 ? before_me(c, i) : part(c, n - 1, i);
}

static int source_count(const struct dense *c)
{
	return c->size + !is_first(c);
}

/*
 * Sums that make one; the first member of a chain has nothing to add, but its rounded gradients go on
 * in f32.
 */
static int count_sums(const struct dense *c)
{
	int more = source_count(c) - PD_SUM_SOURCES;

	if (source_count(c) == 1 && c->how.groups > 1 && !narrows(c))
		return 0;
	return more <= 0 ? 1 : 1 + (more + PD_SUM_SOURCES - 2) / (PD_SUM_SOURCES - 1);
}

/* What is waited for before any sum: the others' parts of all my pieces. */
static int waits_ahead(const struct dense *c)
{
	return alone(c) ? 0 : c->size;
}

/* Of a piece: its parts and that mine have left, or what comes from the group before; and sums. */
static int waits_of_piece(const struct dense *c)
{
	return alone(c) ? c->size : !is_first(c);
}

static int steps_of_piece(const struct dense *c)
{
	return waits_of_piece(c) + c->sums;
}

/* My pieces that go from owner to owner. */
static int chained(const struct dense *c)
{
	return c->how.groups > 1 ? c->owned_count : 0;
}

/* Those of which others in my group get the sum. */
static int gathered(const struct dense *c)
{
	return c->size > 1 ? chained(c) : 0;
}

/* The steps after which all that I send may leave. */
static int count_sum_steps(const struct dense *c)
{
	return 2 * narrows(c) + waits_ahead(c) + c->owned_count * steps_of_piece(c) +
	       (gathered(c) > 0 ? gathered(c) + 1 : 0);
}

static int count_steps(const struct dense *c)
{
	return count_sum_steps(c) + 3 * (c->size * c->cuts + chained(c)) + 1;
}

static size_t dense_staging_bytes(const struct pd_reduction *r)
{
	const struct dense *c = (const struct dense *)r;

	return (size_t)pd_allreduce_staging_bytes(&c->how, (int64_t)(c->floats * sizeof(float)),
						  c->rounding.dtype);
}

/*
 * The first of each owner in the largest groups, then the second of each: all groups have them on
 * their way in the same order, also where a smaller group's owners have those of several.
 */
static void arrange(struct dense *c)
{
	const struct pd_allreduce *how = &c->how;
	int most = (how->members + how->groups - 1) / how->groups, n = 0;
	int end = c->owned_first + c->owned_count;
	int from = pd_allreduce_owner(how, most, c->owned_first);
	int to = pd_allreduce_owner(how, most, end - 1);

	for (int k = 0; n < c->owned_count; k++)
		for (int i = from; i <= to; i++) {
			int piece = pd_allreduce_piece_begin(how, most, i) + k;

			if (piece >= c->owned_first && piece < end &&
			    piece < pd_allreduce_piece_begin(how, most, i + 1))
				c->owned[n++].piece = piece;
		}
}

static void dense_close(struct pd_reduction *r)
{
	struct dense *c = (struct dense *)r;

	if (c->owns_staging)
		c->device->ops->memory.free(c->device, c->staging);
	free(c->pairs);
	free(c->owned);
	free(c);
}

struct pd_reduction *pd_dense_open(const struct pd_reduction_config *config,
				   const struct pd_allreduce *how, struct pd_error *err)
{
	struct dense *c = pd_zalloc(sizeof(*c));
	size_t staging_bytes;
	int end, me = config->me;

	c->base.ops = &pd_reduction_dense;
	c->how = *how;
	c->transport = config->transport;
	c->device = config->device;
	c->stream = config->stream;
	c->ranks = config->ranks;
	c->me = me;
	c->floats = config->floats;
	c->rounding = config->rounding;
	c->each = pd_dtype_bytes(c->rounding.dtype);
	c->piece_most = pd_piece_most(c->floats, how->pieces);
	c->group = pd_allreduce_group_of(how, me);
	c->first = pd_allreduce_group_begin(how, c->group);
	c->size = pd_allreduce_group_begin(how, c->group + 1) - c->first;
	c->owned_first = pd_allreduce_piece_begin(how, c->size, me - c->first);
	end = pd_allreduce_piece_begin(how, c->size, me - c->first + 1);
	c->owned_count = end - c->owned_first;
	c->cuts = alone(c) && !config->transport->ops->one_at_a_time
		? (how->pieces + c->size - 1) / c->size : 1;
	c->sums = count_sums(c);
	c->steps = count_steps(c);
	c->pairs = pd_calloc((size_t)c->size * (size_t)c->cuts, sizeof(*c->pairs));
	c->owned = pd_calloc((size_t)c->owned_count, sizeof(*c->owned));
	arrange(c);
	staging_bytes = dense_staging_bytes(&c->base);
	c->staging = config->staging;
	if (staging_bytes > 0 && !c->staging) {
		c->staging = c->device->ops->memory.alloc(c->device, staging_bytes, err);
		if (!c->staging) {
			dense_close(&c->base);
			return NULL;
		}
		c->owns_staging = true;
	}
	c->parts = (char *)(c->staging + (is_first(c) ? 0 : (size_t)before_places(c) * c->piece_most));
	c->rounded = (char *)c->staging + staging_bytes - (narrows(c) ? c->floats * c->each : 0);
	return &c->base;
}

static struct pd_reduction *dense_open(const struct pd_reduction_config *config,
				       struct pd_error *err)
{
	struct pd_allreduce how = pd_allreduce_choose(config->topology, config->ranks,
						      config->members,
						      (int64_t)(config->floats * sizeof(float)));
	struct pd_reduction *r = pd_dense_open(config, &how, err);

	return r && how.groups == 1 ? pd_direct_over(r, config) : r;
}

/* Sends, as so many messages, or receives where `sends` is 0. */
static int post(struct dense *c, int sends, int member, uint64_t tag, void *at,
		size_t bytes, const struct pd_event *after, struct pd_event *ev)
{
	const struct pd_transport_ops *ops = c->transport->ops;

	if (bytes == 0)
		return 0;
	c->base.sent_bytes += sends ? (int64_t)bytes : 0;
	c->base.messages += sends;
	pd_event_arm(ev);
	return sends ? ops->send(c->transport, c->ranks[member], tag, at, bytes, after, ev)
		    : ops->recv(c->transport, c->ranks[member], tag, at, bytes, after, ev);
}

/* After which this member's gradients may leave. */
static const struct pd_event *ready(const struct dense *c)
{
	return narrows(c) ? &c->narrowed : c->after;
}

/* Returns the k-th member of the group behind this one. */
static int member_behind(const struct dense *c, int k)
{
	return (c->me - c->first + k) % c->size;
}

/* A cut that goes to the k-th member behind this one, and the same from the k-th before it. */
struct turn {
	int k, cut;
};

/*
 * Returns what is exchanged as number i in a group without others: each cut goes to all members before
 * the next does.
 *
 * Where transfers share a link a few are under way
 * at once, so that a receiver nearly always has somebody who sends to it, and no receiver is far behind
 * the others.  If each member sent to one at a time, in the same order of rounds, they
 * would fall out of step: two would send to one receiver at half its rate, and nobody to another.
 *
 * Where a link has one transfer at a time members do not fall out of step, and that order of rounds is
 * best, one whole share after the other.  A share counts there as the messages that its pieces are
 * elsewhere.
 */
static struct turn turn_of(const struct dense *c, int i)
{
	int others = c->size - 1;

	return (struct turn){ 1 + i % others, i / others };
}

/* Returns how many messages a transfer of a member's share stands for. */
static int messages_of(const struct dense *c, int member)
{
	return alone(c) && c->cuts == 1 ? pd_allreduce_piece_begin(&c->how, c->size, member + 1) -
					  pd_allreduce_piece_begin(&c->how, c->size, member) : 1;
}

/*
 * Returns the end of that which has to leave before number i may: of parts, or of sums.  NULL: nothing
 * has to.  Nothing waits for what is empty.
 */
static const struct pd_event *may_leave(const struct dense *c, int i, bool sums)
{
	bool shared = !c->transport->ops->one_at_a_time;
	int before = i - 1 - (shared ? CUTS_UNDER_WAY * (c->size - 1) : 0);

	if (!alone(c) || (sums && shared))
		return NULL;
	for (; before >= 0; before--) {
		struct turn turn = turn_of(c, before);
		int to = member_behind(c, turn.k);
		struct pair *pair = pair_of(c, to, turn.cut);

		if (cut_floats(c, sums ? c->me - c->first : to, turn.cut) > 0)
			return sums ? &pair->sum_out : &pair->part_out;
	}
	return NULL;
}

static int post_parts(struct dense *c, struct turn turn, uint64_t tag, const struct pd_event *after)
{
	int mine = c->me - c->first, cut = turn.cut;
	int to = member_behind(c, turn.k), from = member_behind(c, c->size - turn.k);
	size_t at = cut_begin(c, mine, cut) - share_begin(c, mine);

	if (post(c, 0, c->first + from, tag, parts_of(c, from) + at * c->each,
		 cut_floats(c, mine, cut) * c->each, NULL, &pair_of(c, from, cut)->part_in) < 0)
		return -1;
	return post(c, messages_of(c, to), c->first + to, tag, travels(c, cut_begin(c, to, cut)),
		    cut_floats(c, to, cut) * c->each, after ? after : ready(c),
		    &pair_of(c, to, cut)->part_out);
}

/*
 * A sum may come to where my part of it is: it can only be made when that has left.  With other groups
 * sums have to wait until my pieces are through, for which others wait in turn: a long transfer would
 * hold up short ones.
 */
static int post_sums(struct dense *c, struct turn turn, uint64_t tag, const struct pd_event *after)
{
	int mine = c->me - c->first, cut = turn.cut;
	int to = member_behind(c, turn.k), from = member_behind(c, c->size - turn.k);
	int with = c->cuts == 1 || cut >= c->owned_count ? c->owned_count - 1 : cut;
	const struct pd_event *made = alone(c) ? &c->owned[with].added : &c->summed;

	if (post(c, messages_of(c, mine), c->first + to, tag, travels(c, cut_begin(c, mine, cut)),
		 cut_floats(c, mine, cut) * c->each, after ? after : made,
		 &pair_of(c, to, cut)->sum_out) < 0)
		return -1;
	return post(c, 0, c->first + from, tag, travels(c, cut_begin(c, from, cut)),
		    cut_floats(c, from, cut) * c->each, alone(c) ? ready(c) : &c->summed,
		    &pair_of(c, from, cut)->sum_in);
}

static int post_group(struct dense *c, uint64_t tag_base)
{
	int count = c->cuts * (c->size - 1);

	for (int i = 0; i < 2 * count; i++) {
		bool sums = i >= count;
		struct turn turn = turn_of(c, i % count);
		uint64_t tag = tag_base + 2 * (uint64_t)turn.cut + sums;

		if ((sums ? post_sums : post_parts)(c, turn, tag,
						    may_leave(c, i % count, sums)) < 0)
			return -1;
	}
	return 0;
}

/*
 * One of my pieces on its way along the groups and back.  They are taken in one after the other, so
 * that what goes back gets to its links between them; the last one takes the place in staging that
 * the first had.  The sum comes to where what goes on has left.
 */
static int post_owned(struct dense *c, int i, uint64_t tag_base)
{
	struct owned *owned = &c->owned[i];
	int piece = owned->piece;
	int before = is_first(c) ? -1 : pd_allreduce_owner_in(&c->how, c->group - 1, piece);
	int next = is_last(c) ? -1 : pd_allreduce_owner_in(&c->how, c->group + 1, piece);
	bool again = i > 0 && i == c->owned_count - 1;
	size_t floats = piece_floats(c, piece), bytes = floats * sizeof(float);
	float *goes_on = c->buf + piece_begin(c, piece);
	char *back = travels(c, piece_begin(c, piece));
	uint64_t tag = tag_base + 2 * (uint64_t)piece;
	const struct pd_event *room = again ? &c->owned[0].added
				    : i > 0 ? &c->owned[i - 1].before : NULL;

	if (before >= 0 && post(c, 0, before, tag, before_me(c, i), bytes, room,
				&owned->before) < 0)
		return -1;
	if (next >= 0 && (post(c, 1, next, tag, goes_on, bytes,
			       c->sums > 0 ? &owned->added : c->after, &owned->on) < 0 ||
			  post(c, 0, next, tag + 1, back, floats * c->each, &owned->on,
			       &owned->sum) < 0))
		return -1;
	return before < 0 ? 0 : post(c, 1, before, tag + 1, back, floats * c->each,
				     next < 0 ? &owned->added : &owned->sum, &owned->back);
}

/*
 * Sum number k of those that make one of my pieces.  In f32 the last but goes to where the first
 * source was, in 16 bits to the buffer, and is the first one of the next; so does what goes on to the
 * next group, while the sum of all is rounded.
 */
static int add(struct dense *c, int i, int k)
{
	const struct pd_math_ops *math = &c->device->ops->math;
	int piece = c->owned[i].piece, next = k * (PD_SUM_SOURCES - 1) + (k > 0);
	float *at = c->buf + piece_begin(c, piece);
	bool last = k == c->sums - 1;
	struct pd_event *ev = !last ? NULL : &c->owned[i].added;
	struct pd_mixed_sum sum = {
		.rounding = c->rounding, .narrow = last && is_last(c),
		.count = piece_floats(c, piece),
	};

	if (k > 0)
		sum.src[sum.n++] = narrows(c) ? at : source(c, i, 0);
	for (; sum.n < PD_SUM_SOURCES && next < source_count(c); next++) {
		sum.narrow_sources |= (uint32_t)(is_first(c) || next > 0) << sum.n;
		sum.src[sum.n++] = source(c, i, next);
	}
	sum.dst = sum.narrow ? part(c, c->me - c->first, i)
		: narrows(c) || last ? at : source(c, i, 0);
	return narrows(c) ? math->mixed_sum(c->stream, &sum, ev)
			  : math->sum(c->stream, sum.dst, (const float *const *)sum.src, sum.n,
				      sum.count, ev);
}

/* Rounds the buffer to what travels, or brings back the sums that came. */
static int convert(struct dense *c, bool narrow, struct pd_event *ev)
{
	struct pd_mixed_sum sum = {
		.rounding = c->rounding, .dst = narrow ? (void *)c->rounded : c->buf,
		.src = { narrow ? (void *)c->buf : c->rounded }, .n = 1, .narrow = narrow,
		.narrow_sources = !narrow, .count = c->floats,
	};

	return c->device->ops->math.mixed_sum(c->stream, &sum, ev);
}

static int wait_for(struct dense *c, const struct pd_event *ev)
{
	return ev ? c->device->ops->stream.wait(c->stream, (struct pd_event *)ev) : 0;
}

/* What leaves and comes, by kind: cut by cut of each member of the group, then piece by piece. */
static int wait_left(struct dense *c, int step)
{
	int pairs = c->size * c->cuts, each = pairs + chained(c), kind = step / each, i = step % each;
	struct pair *pair;
	struct owned *owned;

	if (i < pairs && i / c->cuts == c->me - c->first)
		return 0;
	if (i < pairs) {
		pair = &c->pairs[i];
		return wait_for(c, kind == 0 ? &pair->part_out :
				   kind == 1 ? &pair->sum_out : &pair->sum_in);
	}
	owned = &c->owned[i - pairs];
	return wait_for(c, kind == 0 ? &owned->on : kind == 1 ? &owned->back : &owned->sum);
}

/* Waits for a member's part, and for mine until my gradients are ready. */
static int wait_part(struct dense *c, int member, int cut)
{
	return wait_for(c, c->first + member == c->me ? c->after : &pair_of(c, member, cut)->part_in);
}

/*
 * Thing number `step` for the stream: in 16 bits, wait until my parts are ready and round them; with
 * other groups wait for the parts of this one, and until mine are ready;
 * for each piece, wait for its parts and until mine have left, or for what comes from the group before,
 * and add up; where others wait for more than that, wait for the sums of my pieces and note that; wait
 * for the parts that leave, the sums that leave, those that come; at last nothing, or the sums widened,
 * with `done`.
 */
static int issue(struct dense *c)
{
	int each = steps_of_piece(c), own = gathered(c), step = c->step - 2 * narrows(c);

	if (step < 0)
		return step == -2 ? wait_for(c, c->after) : convert(c, true, &c->narrowed);
	if (step < waits_ahead(c))
		return wait_part(c, step, 0);
	step -= waits_ahead(c);
	if (step < c->owned_count * each) {
		int i = step / each, k = step % each;

		if (k < waits_of_piece(c))
			return alone(c) ? wait_part(c, k, c->cuts > 1 ? i : 0)
					: wait_for(c, &c->owned[i].before);
		return add(c, i, k - waits_of_piece(c));
	}
	step -= c->owned_count * each;
	if (own > 0 && step <= own)
		return step < own ? wait_for(c, &c->owned[step].sum)
				  : c->device->ops->math.sum(c->stream, c->buf, NULL, 0, 0,
							     &c->summed);
	step -= own > 0 ? own + 1 : 0;
	if (step < 3 * (c->size * c->cuts + chained(c)))
		return wait_left(c, step);
	if (narrows(c))
		return convert(c, false, c->done);
	return c->device->ops->math.sum(c->stream, c->buf, NULL, 0, 0, c->done);
}

/* Returns the steps up to the end of a part: until all that I send may leave, or all. */
static int steps_upto(const struct dense *c, enum pd_reduction_part upto)
{
	return upto == PD_REDUCTION_ALL ? c->steps : count_sum_steps(c);
}

static bool dense_issued(const struct pd_reduction *r, enum pd_reduction_part upto)
{
	const struct dense *c = (const struct dense *)r;

	return !c->done || c->step >= steps_upto(c, upto);
}

static int dense_progress(struct pd_reduction *r, enum pd_reduction_part upto)
{
	struct dense *c = (struct dense *)r;
	int n = 0, end = steps_upto(c, upto);

	if (!c->done)
		return 0;
	while (c->step < end) {
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

static int dense_start(struct pd_reduction *r, float *buf, uint64_t tag_base,
		       const struct pd_event *after, struct pd_event *done)
{
	struct dense *c = (struct dense *)r;

	if (!dense_issued(r, PD_REDUCTION_ALL))
		pd_bug("an all-reduce begins before the last one is done");
	c->buf = buf;
	c->after = after;
	c->done = done;
	c->step = 0;
	c->base.sent_bytes = c->base.messages = 0;
	pd_event_arm(&c->summed);
	if (narrows(c))
		pd_event_arm(&c->narrowed);
	for (int i = 0; i < c->owned_count && c->sums > 0; i++)
		pd_event_arm(&c->owned[i].added);
	if (post_group(c, tag_base) < 0)
		return -1;
	for (int i = 0; i < chained(c); i++)
		if (post_owned(c, i, tag_base) < 0)
			return -1;
	return 0;
}

static int64_t dense_started_ns(const struct pd_reduction *r)
{
	const struct dense *c = (const struct dense *)r;
	int64_t started_ns = narrows(c) ? c->narrowed.start_ns
		: c->sums > 0 ? c->owned[0].added.start_ns : INT64_MAX;

	for (int i = 0; i < c->size * c->cuts; i++)
		if (c->first + i / c->cuts != c->me && cut_floats(c, i / c->cuts, i % c->cuts) > 0 &&
		    c->pairs[i].part_out.start_ns < started_ns)
			started_ns = c->pairs[i].part_out.start_ns;
	for (int i = 0; i < c->owned_count && c->sums == 0; i++)
		if (piece_floats(c, c->owned[i].piece) > 0 && c->owned[i].on.start_ns < started_ns)
			started_ns = c->owned[i].on.start_ns;
	return started_ns < INT64_MAX ? started_ns : c->done->start_ns;
}

const struct pd_reduction_ops pd_reduction_dense = {
	.open = dense_open,
	.close = dense_close,
	.start = dense_start,
	.progress = dense_progress,
	.issued = dense_issued,
	.started_ns = dense_started_ns,
	.staging_bytes = dense_staging_bytes,
};
