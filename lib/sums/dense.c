/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All gradients, added in the order of the members: g0 + g1 + ... + g(n-1), with the bits of one process that adds
 * them up so, whoever came first and whatever the groups and pieces (sums/allreduce.h).
 *
 * In one group each member sends and receives 2 (n-1)/n of the buffer, as in a ring, which could not keep that
 * order.  Nothing there waits for sums, as the 2 (n-1) steps of a ring do.  Long shares have several pieces, and
 * go piece by piece.  A sum takes twice as many tags as there are pieces.
 */
#include "sums/allreduce.h"

#include "base/buffer_pieces.h"
#include "base/mem.h"
#include "sums/direct.h"
#include "sums/traffic.h"

#include <stdlib.h>

#define CUTS_UNDER_WAY 2        /* of a share to each receiver, where transfers share a link */

/*
 * These events end what passes between this member and another one of its group, in one cut: my part of
 * its share, its part of mine; the sum of my share, of its.
 */
enum { PART_OUT, PART_IN, SUM_OUT, SUM_IN, PAIR_EVENTS };

/*
 * These end what is done with a piece that this member owns: it comes from the group before, goes on to
 * the next; the sum comes from the next group, goes back; my group's parts are in it.
 */
enum { BEFORE, ON, SUM, BACK, ADDED, OWNED_EVENTS };

struct dense {
	struct pd_script *script;
	struct pd_allreduce how;
	int me;                         /* number of this member in its group */
	int group, first, size;         /* my group, its first member, how many it has */
	int owned_first, owned_count;   /* my pieces */
	int *owned;                     /* the same in the order in which they go */
	int cuts;                       /* transfers of the longest share: one, or its pieces */
	bool shared;                    /* transfers share a link, else it has one at a time */
	size_t piece_most;              /* floats of the longest piece */
	int ready;                      /* event: my gradients may leave */
};

/* Returns where piece i begins; the one behind the last begins at the end. */
static size_t piece_begin(const struct dense *d, int i)
{
	return pd_piece_begin(d->script->floats, d->how.pieces, i);
}

static size_t piece_floats(const struct dense *d, int i)
{
	return piece_begin(d, i + 1) - piece_begin(d, i);
}

/* Returns the first piece of member i of my group. */
static int first_piece(const struct dense *d, int i)
{
	return pd_allreduce_piece_begin(&d->how, d->size, i);
}

static size_t share_begin(const struct dense *d, int i)
{
	return piece_begin(d, first_piece(d, i));
}

/* Tells whether there are no other groups: shares then travel cut by cut. */
static bool alone(const struct dense *d)
{
	return d->how.groups == 1;
}

static bool is_first(const struct dense *d)
{
	return d->group == 0;
}

static bool is_last(const struct dense *d)
{
	return d->group == d->how.groups - 1;
}

/* Returns where a cut of the share of member i begins; those of a share with fewer pieces are empty at the end. */
static size_t cut_begin(const struct dense *d, int i, int cut)
{
	int piece = first_piece(d, i) + cut, end = first_piece(d, i + 1);

	return piece_begin(d, cut == d->cuts || piece > end ? end : piece);
}

static size_t cut_floats(const struct dense *d, int i, int cut)
{
	return cut_begin(d, i, cut + 1) - cut_begin(d, i, cut);
}

static int pair_event(const struct dense *d, int member, int cut, int kind)
{
	return (member * d->cuts + cut) * PAIR_EVENTS + kind;
}

static int owned_event(const struct dense *d, int i, int kind)
{
	return d->size * d->cuts * PAIR_EVENTS + i * OWNED_EVENTS + kind;
}

/* Returns the first of the events of all: the buffer is rounded; it is widened; my pieces are sums of all. */
static int rounded(const struct dense *d)
{
	return owned_event(d, d->owned_count, 0);
}

static int widened(const struct dense *d)
{
	return rounded(d) + 1;
}

static int summed(const struct dense *d)
{
	return rounded(d) + 2;
}

/*
 * Staging has what comes from the group before; the others' parts of my pieces, member by member, times
 * piece_most.
 */
static int before_places(const struct dense *d)
{
	return is_first(d) ? 0 : d->owned_count > 1 ? d->owned_count - 1 : 1;
}

static struct pd_script_at before_me(const struct dense *d, int i)
{
	size_t place = (size_t)(i % before_places(d));

	return (struct pd_script_at){ PD_SCRIPT_STAGED, place * d->piece_most };
}

/* Returns where another member's part of my share comes, from `offset` on. */
static struct pd_script_at part_of(const struct dense *d, int member, size_t offset)
{
	size_t width = pd_dtype_bytes(d->script->dtype);
	size_t begin = (size_t)before_places(d) * d->piece_most * sizeof(float) / width;
	size_t others = (size_t)(member - (member > d->me));

	return (struct pd_script_at){ PD_SCRIPT_STAGED_NARROW,
				      begin + others * (size_t)d->owned_count * d->piece_most + offset };
}

/* Returns source n of what is added up, in this order, to number i of my pieces. */
static struct pd_script_at source(const struct dense *d, int i, int n)
{
	size_t begin = piece_begin(d, d->owned[i]);
	int member = n - !is_first(d);

	if (member < 0)
		return before_me(d, i);
	return member == d->me ? (struct pd_script_at){ PD_SCRIPT_TRAVELS, begin }
			       : part_of(d, member, begin - share_begin(d, d->me));
}

static int source_count(const struct dense *d)
{
	return d->size + !is_first(d);
}

/* Tells whether my pieces are summed: the first member of a chain only widens gradients that are rounded. */
static bool adds(const struct dense *d)
{
	return source_count(d) > 1 || alone(d) || pd_script_narrows(d->script);
}

/* Tells whether others in my group wait for sums that go from owner to owner. */
static bool gathers(const struct dense *d)
{
	return d->size > 1 && !alone(d);
}

/*
 * Puts my pieces in order: the first of each owner in the largest groups, then the second of each.  All
 * groups have them on their way in the same order, also where a smaller group's owners have those of
 * several.
 */
static void arrange(struct dense *d)
{
	const struct pd_allreduce *how = &d->how;
	int most = (how->members + how->groups - 1) / how->groups, n = 0;
	int end = d->owned_first + d->owned_count;
	int from = pd_allreduce_owner(how, most, d->owned_first);
	int to = pd_allreduce_owner(how, most, end - 1);

	for (int k = 0; n < d->owned_count; k++)
		for (int i = from; i <= to; i++) {
			int piece = pd_allreduce_piece_begin(how, most, i) + k;

			if (piece >= d->owned_first && piece < end &&
			    piece < pd_allreduce_piece_begin(how, most, i + 1))
				d->owned[n++] = piece;
		}
}

static struct pd_script_at travels(size_t at)
{
	return (struct pd_script_at){ PD_SCRIPT_TRAVELS, at };
}

/* One cut goes to a member of my group, while the same cut of my share comes from another. */
struct turn {
	int cut, to, from;
};

/*
 * Returns what is exchanged as number i in a group: each cut goes to all members before the next does.
 *
 * Where transfers share a link a few are under way at once, so that a receiver nearly always has
 * somebody who sends to it, and no receiver is far behind the others.  If each member sent to one at a
 * time, in the same order of rounds, they would fall out of step: two would send to one receiver at half
 * its rate, and nobody to another.
 *
 * Where a link has one transfer at a time members do not fall out of step, and that order of rounds is
 * best, one whole share after the other.  A share counts there as the messages that its pieces are
 * elsewhere.
 */
static struct turn turn_of(const struct dense *d, int i)
{
	int others = d->size - 1, k = 1 + i % others;

	return (struct turn){ i / others, (d->me + k) % d->size, (d->me + d->size - k) % d->size };
}

/* Returns how many messages a transfer of a member's share stands for. */
static int messages_of(const struct dense *d, int member)
{
	return alone(d) && d->cuts == 1 ? first_piece(d, member + 1) - first_piece(d, member) : 1;
}

/*
 * Returns after what number i may leave, of parts or of sums: after the end of that which has to leave
 * before it, else after `first`.  Nothing waits for what is empty.
 */
static int may_leave(const struct dense *d, int i, bool sums, int first)
{
	int before = i - 1 - (d->shared ? CUTS_UNDER_WAY * (d->size - 1) : 0);

	if (!alone(d) || (sums && d->shared))
		return first;
	for (; before >= 0; before--) {
		struct turn turn = turn_of(d, before);

		if (cut_floats(d, sums ? d->me : turn.to, turn.cut) > 0)
			return pair_event(d, turn.to, turn.cut, sums ? SUM_OUT : PART_OUT);
	}
	return first;
}

static void exchange_parts(const struct dense *d, int i)
{
	struct turn turn = turn_of(d, i);
	int cut = turn.cut;

	pd_script_receive(d->script, d->first + turn.from, 2 * cut,
			  part_of(d, turn.from, cut_begin(d, d->me, cut) - share_begin(d, d->me)),
			  cut_floats(d, d->me, cut), PD_SCRIPT_NOW, pair_event(d, turn.from, cut, PART_IN));
	pd_script_send(d->script, d->first + turn.to, 2 * cut, travels(cut_begin(d, turn.to, cut)),
		       cut_floats(d, turn.to, cut), may_leave(d, i, false, d->ready),
		       pair_event(d, turn.to, cut, PART_OUT))->messages = messages_of(d, turn.to);
}

/*
 * A sum may come to where my part of it is: it can only be made when that has left.  With other groups
 * sums have to wait until my pieces are through, for which others wait in turn: a long transfer would
 * hold up short ones.
 */
static void exchange_sums(const struct dense *d, int i)
{
	struct turn turn = turn_of(d, i);
	int cut = turn.cut, with = d->cuts == 1 || cut >= d->owned_count ? d->owned_count - 1 : cut;
	int made = alone(d) ? owned_event(d, with, ADDED) : summed(d);

	pd_script_send(d->script, d->first + turn.to, 2 * cut + 1, travels(cut_begin(d, d->me, cut)),
		       cut_floats(d, d->me, cut), may_leave(d, i, true, made),
		       pair_event(d, turn.to, cut, SUM_OUT))->messages = messages_of(d, d->me);
	pd_script_receive(d->script, d->first + turn.from, 2 * cut + 1, travels(cut_begin(d, turn.from, cut)),
			  cut_floats(d, turn.from, cut), alone(d) ? d->ready : summed(d),
			  pair_event(d, turn.from, cut, SUM_IN));
}

/*
 * Passes one of my pieces along the groups and back.  They are taken in one after the other, so
 * that what goes back gets to its links between them; the last one takes the place in staging that
 * the first had.  The sum comes to where what goes on has left.
 */
static void pass_on(const struct dense *d, int i)
{
	int piece = d->owned[i], tag = 2 * piece;
	size_t floats = piece_floats(d, piece), begin = piece_begin(d, piece);
	bool again = i > 0 && i == d->owned_count - 1;
	int room = again ? owned_event(d, 0, ADDED) : i > 0 ? owned_event(d, i - 1, BEFORE) : PD_SCRIPT_NOW;
	int added = owned_event(d, i, ADDED), on = owned_event(d, i, ON), sum = owned_event(d, i, SUM);
	int before = is_first(d) ? -1 : pd_allreduce_owner_in(&d->how, d->group - 1, piece);
	int next = is_last(d) ? -1 : pd_allreduce_owner_in(&d->how, d->group + 1, piece);

	if (before >= 0)
		pd_script_receive(d->script, before, tag, before_me(d, i), floats, room, owned_event(d, i, BEFORE));
	if (next >= 0) {
		pd_script_send(d->script, next, tag, (struct pd_script_at){ PD_SCRIPT_BUFFER, begin }, floats,
			       adds(d) ? added : PD_SCRIPT_READY, on);
		pd_script_receive(d->script, next, tag + 1, travels(begin), floats, on, sum);
	}
	if (before >= 0)
		pd_script_send(d->script, before, tag + 1, travels(begin), floats, next < 0 ? added : sum,
			       owned_event(d, i, BACK));
}

/*
 * Adds up number i of my pieces, by several sums where there are many sources.  In f32 those but the last
 * go to where the first source was, in 16 bits to the buffer, and are the first one of the next; so does
 * what goes on to the next group, while the sum of all is rounded.
 */
static void add_up(const struct dense *d, int i)
{
	struct pd_script_at buffer = { PD_SCRIPT_BUFFER, piece_begin(d, d->owned[i]) };
	struct pd_script_at so_far = pd_script_narrows(d->script) ? buffer : source(d, i, 0);
	struct pd_script_at total = is_last(d) ? travels(buffer.at) : buffer;
	int next = 0, count = source_count(d);

	while (next < count) {
		struct pd_script_at from[PD_SCRIPT_SOURCES] = { so_far };
		int n = next > 0;

		while (n < PD_SCRIPT_SOURCES && next < count)
			from[n++] = source(d, i, next++);
		pd_script_add(d->script, next < count ? so_far : total, from, n, piece_floats(d, d->owned[i]),
			      next < count ? PD_SCRIPT_NOW : owned_event(d, i, ADDED));
	}
}

/* Waits for an event of a cut between me and each other member of my group. */
static void wait_pairs(const struct dense *d, int cut, int kind)
{
	for (int i = 0; i < d->size; i++)
		if (i != d->me)
			pd_script_wait(d->script, pair_event(d, i, cut, kind));
}

static void wait_cuts(const struct dense *d, int kind)
{
	for (int cut = 0; cut < d->cuts; cut++)
		wait_pairs(d, cut, kind);
}

static void wait_owned(const struct dense *d, int kind)
{
	for (int i = 0; i < d->owned_count && !alone(d); i++)
		pd_script_wait(d->script, owned_event(d, i, kind));
}

/*
 * Writes the sums of my pieces.  With other groups all parts of this one are waited for ahead, and sums wait
 * for what comes from the group before.
 */
static void write_sums(const struct dense *d)
{
	if (!alone(d))
		wait_pairs(d, 0, PART_IN);
	for (int i = 0; i < d->owned_count; i++) {
		if (alone(d))
			wait_pairs(d, d->cuts > 1 ? i : 0, PART_IN);
		else if (!is_first(d))
			pd_script_wait(d->script, owned_event(d, i, BEFORE));
		if (adds(d))
			add_up(d, i);
	}
	if (!gathers(d))
		return;
	wait_owned(d, SUM);
	pd_script_add(d->script, (struct pd_script_at){ PD_SCRIPT_BUFFER }, NULL, 0, 0, summed(d));
}

/* Waits for all that leaves and comes. */
static void write_end(const struct dense *d)
{
	wait_cuts(d, PART_OUT);
	wait_owned(d, ON);
	wait_cuts(d, SUM_OUT);
	wait_owned(d, BACK);
	wait_cuts(d, SUM_IN);
	wait_owned(d, SUM);
	pd_script_widen(d->script, widened(d));
}

static void write_all(const struct dense *d)
{
	int count = d->cuts * (d->size - 1);

	for (int i = 0; i < count; i++)
		exchange_parts(d, i);
	for (int i = 0; i < count; i++)
		exchange_sums(d, i);
	for (int i = 0; i < d->owned_count && !alone(d); i++)
		pass_on(d, i);
	if (d->script->coarse)
		return;
	write_sums(d);
	pd_script_end_first_part(d->script);
	write_end(d);
}

void pd_allreduce_write(const struct pd_allreduce *how, int me, struct pd_script *script)
{
	int group = pd_allreduce_group_of(how, me), first = pd_allreduce_group_begin(how, group);
	struct dense d = {
		.script = script, .how = *how, .me = me - first, .group = group, .first = first,
		.size = pd_allreduce_group_begin(how, group + 1) - first,
		.shared = !script->one_at_a_time,
		.piece_most = pd_piece_most(script->floats, how->pieces),
	};

	d.owned_first = first_piece(&d, d.me);
	d.owned_count = first_piece(&d, d.me + 1) - d.owned_first;
	d.cuts = alone(&d) && d.shared ? (how->pieces + d.size - 1) / d.size : 1;
	d.owned = pd_calloc((size_t)d.owned_count, sizeof(*d.owned));
	d.ready = pd_script_begin(script, rounded(&d));
	arrange(&d);
	write_all(&d);
	free(d.owned);
}

static struct pd_allreduce choose(const struct pd_members *members, int64_t bytes)
{
	return pd_allreduce_choose(members->topology, members->ranks, members->count, bytes);
}

static void write_dense(const struct pd_members *members, int me, struct pd_script *script)
{
	struct pd_allreduce how = choose(members, (int64_t)(script->floats * sizeof(float)));

	pd_allreduce_write(&how, me, script);
}

static int64_t dense_staging_bytes(const struct pd_members *members, int64_t bytes)
{
	struct pd_allreduce how = choose(members, bytes);

	return pd_allreduce_staging_bytes(&how, bytes, members->dtype);
}

/*
 * The time of 2 (n - 1) steps, in which so many halves of an n-th of the buffer pass, rounded up.  In each
 * other's memory two empty messages go to and fro: ready, and written.
 */
static int64_t dense_alone_ns(const struct pd_members *members, int64_t bytes)
{
	int64_t n = members->count, halves = (n - 1) * (members->dtype == PD_F32 ? 4 : 2);
	struct pd_slowest way;

	if (pd_direct_expected(members, bytes))
		return pd_saturate((__int128)pd_direct_ns(members, bytes) +
				   2 * pd_members_slowest(members, 0).latency_ns);
	if (n == 1 || bytes == 0)
		return 0;
	way = pd_members_slowest(members, bytes);
	return pd_saturate(((__int128)way.whole_ns * halves + 2 * n - 1) / (2 * n) +
			   (__int128)way.latency_ns * (2 * (n - 1)));
}

const struct pd_reducer pd_reducer_dense = {
	write_dense, dense_staging_bytes, dense_alone_ns, .traffic = pd_allreduce_traffic,
};
