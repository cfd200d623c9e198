/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GradientFlow's hierarchical all-reduce (arXiv 1902.06855, section 2.3).  In each host the gradients go along
 * a chain to its master, each member adding its own; masters sum theirs round a ring; the sums go back along
 * the chains.  Chains carry pieces, so that all of their links are busy at once.
 *
 * A host is a component below the outermost level of links at which the members part.  Where that is
 * the innermost level each is a host of its own, and there is but the ring.
 *
 * Of hosts {0 1 2} and {3 4 5}: ((g2 + g1) + g0) + ((g5 + g4) + g3), or the other way round, which is
 * the same.  Of more hosts, each piece is summed from another host on.  All members have the same
 * bits.  In 16 bits what travels is as everywhere (sums/reducer.h).
 */
#include "base/buffer_pieces.h"
#include "base/mem.h"
#include "sums/ring.h"

#include <stdlib.h>

#define PIECE_BYTES (256 * 1024)
#define MOST_PIECES 16

/* The members by hosts, in the order of ranks, as one of them sees them. */
struct hierarchy {
	int hosts, host;                /* how many; mine, in the order of ranks */
	int size, place;                /* of my host; my place there, 0 is its master */
	int before, behind;             /* the members beside me in the chain; -1: none */
	int master_before, master_next; /* members: masters of the hosts beside mine in the ring */
	int before_size;                /* of the host before mine */
	int most;                       /* of all hosts */
	int64_t host_ranks;             /* ranks of a host on this machine */
};

/* Returns in how many pieces a buffer goes along a chain. */
static int pieces_of(size_t floats)
{
	size_t pieces = floats * sizeof(float) / PIECE_BYTES;

	return pieces < 1 ? 1 : pieces > MOST_PIECES ? MOST_PIECES : (int)pieces;
}

/* Returns the ranks of a host, and the highest rank of a member. */
static int64_t host_ranks(const struct pd_members *members, int *high_p)
{
	int low, level;
	int64_t size = 1;

	pd_members_ends(members, &low, high_p);
	level = low == *high_p ? 0 : pd_topology_level(members->topology, low, *high_p);
	for (int k = 0; k < level; k++)
		size *= members->topology->level[k].count;
	return size;
}

/* Returns the next host with members, that way round. */
static int beside(const int *sizes, int hosts, int host, int way)
{
	do
		host = (host + way + hosts) % hosts;
	while (sizes[host] == 0);
	return host;
}

static void find_hosts(const struct pd_members *members, int me, struct hierarchy *out_p)
{
	int high, all, mine, last, next;
	int64_t ranks = host_ranks(members, &high);
	int *sizes, *masters;

	all = (int)(high / ranks) + 1;
	mine = (int)(members->ranks[me] / ranks);
	sizes = pd_calloc((size_t)all * 2, sizeof(*sizes));
	masters = sizes + all;
	*out_p = (struct hierarchy){ .before = -1, .behind = -1, .host_ranks = ranks };
	for (int i = 0; i < members->count; i++) {
		int host = (int)(members->ranks[i] / ranks);

		if (sizes[host]++ == 0)
			masters[host] = i;
		if (sizes[host] > out_p->most)
			out_p->most = sizes[host];
		if (host != mine)
			continue;
		out_p->place += i < me;
		if (i < me)
			out_p->before = i;
		if (i > me && out_p->behind < 0)
			out_p->behind = i;
	}
	for (int host = 0; host < all; host++) {
		out_p->host += host < mine && sizes[host] > 0;
		out_p->hosts += sizes[host] > 0;
	}
	last = beside(sizes, all, mine, -1);
	next = beside(sizes, all, mine, 1);
	out_p->size = sizes[mine];
	out_p->before_size = sizes[last];
	out_p->master_before = masters[last];
	out_p->master_next = masters[next];
	free(sizes);
}

struct tree {
	struct pd_script *script;
	struct hierarchy h;
	int pieces;
	int ready, gathered;            /* events: my gradients may leave; the ring is done */
};

/* The events of piece k: up and then down the chain. */
static int came(int k) { return 5 * k; }
static int added(int k) { return 5 * k + 1; }
static int left(int k) { return 5 * k + 2; }
static int sum_came(int k) { return 5 * k + 3; }
static int sum_left(int k) { return 5 * k + 4; }

/* Returns where piece k begins; that behind the last begins at the end. */
static size_t begin(const struct tree *t, int k)
{
	return pd_piece_begin(t->script->floats, t->pieces, k);
}

static size_t floats(const struct tree *t, int k)
{
	return begin(t, k + 1) - begin(t, k);
}

static struct pd_script_at travels(const struct tree *t, int k)
{
	return (struct pd_script_at){ PD_SCRIPT_TRAVELS, begin(t, k) };
}

static struct pd_script_at buffer(const struct tree *t, int k)
{
	return (struct pd_script_at){ PD_SCRIPT_BUFFER, begin(t, k) };
}

/*
 * Returns where the member behind sends to: two slots of staging take turns.  The last of a chain sends its own
 * gradients, rounded.
 */
static struct pd_script_at staged(const struct tree *t, int k)
{
	return (struct pd_script_at){
		t->h.place == t->h.size - 2 ? PD_SCRIPT_STAGED_NARROW : PD_SCRIPT_STAGED,
		(size_t)(k % 2) * pd_piece_most(t->script->floats, t->pieces),
	};
}

static void go_up(const struct tree *t, int k)
{
	bool last = t->h.behind < 0;

	if (!last)
		pd_script_receive(t->script, t->h.behind, k, staged(t, k), floats(t, k),
				  k < 2 ? PD_SCRIPT_NOW : added(k - 2), came(k));
	if (t->h.before >= 0)
		pd_script_send(t->script, t->h.before, k, last ? travels(t, k) : buffer(t, k), floats(t, k),
			       last ? t->ready : added(k), left(k));
}

/* A master sends what it has summed, alone or with others; a sum comes to where a part has left. */
static void go_down(const struct tree *t, int k)
{
	int summed = t->h.before >= 0 ? sum_came(k) : t->h.hosts > 1 ? t->gathered : added(k);

	if (t->h.before >= 0)
		pd_script_receive(t->script, t->h.before, t->pieces + k, travels(t, k), floats(t, k), left(k),
				  sum_came(k));
	if (t->h.behind >= 0)
		pd_script_send(t->script, t->h.behind, t->pieces + k, travels(t, k), floats(t, k), summed,
			       sum_left(k));
}

static void add(const struct tree *t, int k)
{
	bool all = t->h.place == 0 && t->h.hosts == 1;

	pd_script_wait(t->script, came(k));
	pd_script_add(t->script, all ? travels(t, k) : buffer(t, k),
		      (struct pd_script_at[]){ travels(t, k), staged(t, k) }, 2, floats(t, k), added(k));
}

static void write_ring(const struct tree *t)
{
	bool alone = t->h.behind < 0;
	struct pd_ring ring = {
		.script = t->script, .n = t->h.hosts, .me = t->h.host,
		.cuts = pd_piece_parts(t->script->floats, t->h.hosts),
		.before = t->h.master_before, .next = t->h.master_next, .events = 5 * t->pieces,
		.tag = 2 * t->pieces, .ready = alone ? t->ready : added(t->pieces - 1),
		.free = alone ? PD_SCRIPT_NOW : added(t->pieces - 1), .plain = alone,
		.before_plain = t->h.before_size == 1,
	};

	pd_ring_write(&ring);
	pd_ring_wait(&ring);
	pd_script_add(t->script, (struct pd_script_at){ PD_SCRIPT_BUFFER }, NULL, 0, 0, t->gathered);
}

static void write_all(const struct tree *t, int widened)
{
	bool chained = t->h.size > 1;

	for (int k = 0; k < t->pieces && chained; k++)
		go_up(t, k);
	for (int k = 0; k < t->pieces && t->h.behind >= 0; k++)
		add(t, k);
	if (t->h.place == 0 && t->h.hosts > 1)
		write_ring(t);
	for (int k = 0; k < t->pieces && chained; k++)
		go_down(t, k);
	pd_script_end_first_part(t->script);
	for (int k = 0; k < t->pieces && chained; k++) {
		pd_script_wait(t->script, left(k));
		pd_script_wait(t->script, sum_came(k));
		pd_script_wait(t->script, sum_left(k));
	}
	pd_script_widen(t->script, widened);
}

static void write_hierarchical(const struct pd_members *members, int me, struct pd_script *script)
{
	struct tree t = { .script = script, .pieces = script->coarse ? 1 : pieces_of(script->floats) };
	int rounded;

	find_hosts(members, me, &t.h);
	rounded = 5 * (t.pieces + (t.h.hosts - 1) * pd_piece_parts(script->floats, t.h.hosts));
	t.ready = pd_script_begin(script, rounded);
	t.gathered = rounded + 2;
	write_all(&t, rounded + 1);
}

/* Slots of a chain, or of the ring, where one piece comes while another is added. */
static int64_t hierarchical_staging_bytes(const struct pd_members *members, int64_t bytes)
{
	size_t floats = (size_t)bytes / sizeof(float);
	int pieces = pieces_of(floats);
	int64_t chain = 0, ring = 0;
	struct hierarchy h;

	find_hosts(members, 0, &h);
	if (h.most > 1)
		chain = (int64_t)((pieces > 1 ? 2 : 1) * sizeof(float) * pd_piece_most(floats, pieces));
	if (h.hosts > 1)
		ring = pd_ring_staging_bytes(members->dtype, floats, h.hosts, h.most == 1);
	return (chain > ring ? chain : ring) + pd_rounded_bytes(members, bytes);
}

/* The chains of the largest host there and back, and the ring, one after the other. */
static int64_t hierarchical_alone_ns(const struct pd_members *members, int64_t bytes)
{
	const struct pd_topology *topology = members->topology;
	int pieces = pieces_of((size_t)bytes / sizeof(float));
	int64_t inside_ns, latency_ns;
	struct hierarchy h;
	__int128 ns = 0;

	if (members->count == 1 || bytes == 0)
		return 0;
	find_hosts(members, 0, &h);
	if (h.most > 1) {
		int halves = members->dtype != PD_F32 ? (h.most > 2 ? 2 : 1) + 1 : 4;

		latency_ns = pd_topology_transfer_ns(topology, 0, h.host_ranks - 1, 0);
		inside_ns = pd_topology_transfer_ns(topology, 0, h.host_ranks - 1, bytes) -
			    latency_ns;
		ns += (__int128)inside_ns * halves * (h.most - 2 + pieces) / (2 * pieces) +
		      (__int128)latency_ns * 2 * (h.most - 1);
	}
	if (h.hosts > 1) {
		int64_t from = members->ranks[0], to = members->ranks[h.master_next];
		int64_t halves = pd_ring_halves(members->dtype, h.hosts, h.most == 1);

		latency_ns = pd_topology_transfer_ns(topology, from, to, 0);
		inside_ns = pd_topology_transfer_ns(topology, from, to, bytes) - latency_ns;
		ns += pd_ring_ns((__int128)inside_ns * halves / (2 * h.hosts),
				 latency_ns, h.hosts,
				 pd_piece_parts((size_t)bytes / sizeof(float), h.hosts));
	}
	return pd_saturate(ns);
}

const struct pd_reducer pd_reducer_hierarchical = {
	write_hierarchical, hierarchical_staging_bytes, hierarchical_alone_ns,
};
