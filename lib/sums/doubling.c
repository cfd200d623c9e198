/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recursive doubling, the butterfly: in round k members whose numbers differ in bit k exchange all
 * they have and both add it up.  log2 n rounds, of the whole buffer each: few messages, many bytes.
 * Where n is no power of two, each member above the greatest power p below n gives its part to
 * the one p below it first, and gets the sum at the end.
 *
 * Members add the same two numbers in a round, so all have the same bits: ((g0 + g1) + (g2 + g3))
 * + ..., which for three members and more are not those of g0 + g1 + g2 + ...  In 16 bits a
 * member's own gradients are of these, parts of sums and the sum of all of f32.
 */
#include "sums/reducer.h"

struct doubling {
	struct pd_script *script;
	int n, me, p;                   /* p: 2^rounds */
	int ready;                      /* event: a member's gradients may leave */
};

/* Returns the rounds of n members. */
static int rounds_of(int64_t n)
{
	int rounds = 0;

	while (INT64_C(2) << rounds <= n)
		rounds++;
	return rounds;
}

/* Has member m nothing but its own gradients in round k?  Only these travel in 16 bits. */
static bool is_plain(const struct doubling *d, int m, int k)
{
	return k == 0 && m + d->p >= d->n;
}

/* Returns where the numbers of a member lie that has nothing but its own, or sums of several. */
static struct pd_script_at own(bool plain)
{
	return (struct pd_script_at){ plain ? PD_SCRIPT_TRAVELS : PD_SCRIPT_BUFFER };
}

/* The same of what comes from another. */
static struct pd_script_at staged(bool plain)
{
	return (struct pd_script_at){ plain ? PD_SCRIPT_STAGED_NARROW : PD_SCRIPT_STAGED };
}

static void send(const struct doubling *d, int peer, int tag, bool plain, int after, int ev)
{
	pd_script_send(d->script, peer, tag, own(plain), d->script->floats, after, ev);
}

static void receive(const struct doubling *d, int peer, int tag, struct pd_script_at at, int after, int ev)
{
	pd_script_receive(d->script, peer, tag, at, d->script->floats, after, ev);
}

/* A member above p: its part leaves, the sum comes. */
static void write_extra(const struct doubling *d)
{
	send(d, d->me - d->p, 0, true, d->ready, 0);
	receive(d, d->me - d->p, 1, own(false), 0, 1);
	pd_script_end_first_part(d->script);
	pd_script_wait(d->script, 0);
	pd_script_wait(d->script, 1);
}

static void add(const struct doubling *d, bool plain, struct pd_script_at came, int ev)
{
	pd_script_add(d->script, own(false), (struct pd_script_at[]){ own(plain), came }, 2, d->script->floats, ev);
}

/*
 * Events of round k: 3 k + 2 what leaves, and behind it what comes, and the sum.  0 and 1 are what
 * the member p above gives, and that in the sum; behind the rounds what it gets.
 */
static void write_member(const struct doubling *d, int rounds)
{
	bool extra = d->me + d->p < d->n;
	int before = extra ? 1 : d->ready, free = extra ? 1 : PD_SCRIPT_NOW;
	int last = 3 * rounds + 2;

	if (extra) {
		receive(d, d->me + d->p, 0, staged(true), PD_SCRIPT_NOW, 0);
		pd_script_wait(d->script, 0);
		add(d, true, staged(true), 1);
	}
	for (int k = 0; k < rounds; k++) {
		int peer = d->me ^ 1 << k, leaves = 3 * k + 2, comes = leaves + 1, summed = leaves + 2;
		struct pd_script_at came = staged(is_plain(d, peer, k));

		send(d, peer, 2 + k, is_plain(d, d->me, k), before, leaves);
		receive(d, peer, 2 + k, came, free, comes);
		pd_script_wait(d->script, leaves);
		pd_script_wait(d->script, comes);
		add(d, is_plain(d, d->me, k), came, summed);
		before = free = summed;
	}
	pd_script_end_first_part(d->script);
	if (extra) {
		send(d, d->me + d->p, 1, false, before, last);
		pd_script_wait(d->script, last);
	}
}

static void write_doubling(const struct pd_members *members, int me, struct pd_script *script)
{
	int rounds = rounds_of(members->count);
	struct doubling d = { script, members->count, me, 1 << rounds, pd_script_begin(script, 3 * rounds + 3) };

	if (me >= d.p)
		write_extra(&d);
	else
		write_member(&d, rounds);
}

static int64_t doubling_staging_bytes(const struct pd_members *members, int64_t bytes)
{
	return pd_rounded_bytes(members, bytes) +
	       (members->dtype == PD_F32 || members->count > 2 ? bytes : bytes / 2);
}

/* Returns the time of the rounds, and of bringing in and serving members above a power of two. */
static int64_t doubling_alone_ns(const struct pd_members *members, int64_t bytes)
{
	int rounds = rounds_of(members->count);
	bool extra = members->count > INT64_C(1) << rounds;
	int steps = rounds + (extra ? 2 : 0), halves = 2 * steps;
	struct pd_slowest way;

	if (members->count == 1 || bytes == 0)
		return 0;
	if (members->dtype != PD_F32)           /* the first step has plain gradients */
		halves--;
	way = pd_members_slowest(members, bytes);
	return pd_saturate(((__int128)way.whole_ns * halves + 1) / 2 + (__int128)way.latency_ns * steps);
}

const struct pd_reducer pd_reducer_doubling = { write_doubling, doubling_staging_bytes, doubling_alone_ns };
