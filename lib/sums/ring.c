/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ring (GradientFlow, section 2.3, as everywhere): the buffer is cut into as many pieces as there
 * are members.  In each of n - 1 steps a member sends a piece to the next one and adds what comes
 * from the one before to its own part of another; then the sums go round, in n - 1 steps.
 *
 * A long piece travels in parts.  What a step brings is added and sent on part by part, while the next
 * part is under way: so a link is not idle while its two ends agree on a transfer, wake up and add.
 *
 * In step s, from 0, piece (me - s) mod n leaves and piece (me - s - 1) mod n comes; on the second
 * way piece (me + 1 - s) leaves and piece (me - s) comes.  So piece p is summed as
 * g(p), g(p + 1), ..., g(p - 1), each added to what comes: the order differs from piece to piece,
 * and is the same at every run.  All members have the same bits, since each takes the same sums.
 *
 * In 16 bits a member's own gradients are of these, and what goes round, since it is the sum of all;
 * a part of a sum, from the second step on, is of f32.
 */
#include "sums/ring.h"

#include "base/buffer_pieces.h"

/* A step, and a part of its piece. */
struct part {
	int step, cut;
};

/* The events of a part: what leaves, what comes, the sum; then of the second way. */
static int event(const struct pd_ring *r, struct part part, int kind)
{
	return r->events + 5 * (part.step * r->cuts + part.cut) + kind;
}

static int left(const struct pd_ring *r, struct part part) { return event(r, part, 0); }
static int came(const struct pd_ring *r, struct part part) { return event(r, part, 1); }
static int added(const struct pd_ring *r, struct part part) { return event(r, part, 2); }
static int sum_left(const struct pd_ring *r, struct part part) { return event(r, part, 3); }
static int sum_came(const struct pd_ring *r, struct part part) { return event(r, part, 4); }

/* Returns the same part of a step before. */
static struct part earlier(struct part part, int steps)
{
	return (struct part){ part.step - steps, part.cut };
}

/* Returns where a part begins in each piece: cuts are where the longest piece has them. */
static size_t part_begin(const struct pd_ring *ring, int cut)
{
	return pd_piece_begin(pd_piece_most(ring->script->floats, ring->n), ring->cuts, cut);
}

/* Where a part of a piece lies in the buffer. */
struct range {
	size_t at, floats;
};

static struct range part_of(const struct pd_ring *ring, int number, struct part part)
{
	size_t floats = ring->script->floats;
	int p = (number % ring->n + ring->n) % ring->n;
	size_t first = pd_piece_begin(floats, ring->n, p);
	size_t whole = pd_piece_begin(floats, ring->n, p + 1) - first;
	size_t begin = part_begin(ring, part.cut), end = part_begin(ring, part.cut + 1);

	begin = begin < whole ? begin : whole;
	end = end < whole ? end : whole;
	return (struct range){ first + begin, end - begin };
}

/*
 * Returns where a step's part comes, in which form.  Two slots of staging, of the longest piece, take turns; a
 * place is free again when what it had has been added.
 */
static struct pd_script_at staged(const struct pd_ring *ring, struct part part)
{
	bool plain = part.step == 0 && ring->before_plain;
	size_t most = pd_piece_most(ring->script->floats, ring->n);
	size_t place = (size_t)(part.step % 2) * most + part_begin(ring, part.cut);

	return (struct pd_script_at){ plain ? PD_SCRIPT_STAGED_NARROW : PD_SCRIPT_STAGED, place };
}

/* Returns where one's own gradients are from there on. */
static struct pd_script_at own(const struct pd_ring *ring, size_t at)
{
	return (struct pd_script_at){ ring->plain ? PD_SCRIPT_TRAVELS : PD_SCRIPT_BUFFER, at };
}

static void add_up(const struct pd_ring *ring, struct part part)
{
	int s = part.step, tag = ring->tag + s * ring->cuts + part.cut;
	struct range out = part_of(ring, ring->me - s, part), in = part_of(ring, ring->me - s - 1, part);

	pd_script_send(ring->script, ring->next, tag,
		       s == 0 ? own(ring, out.at) : (struct pd_script_at){ PD_SCRIPT_BUFFER, out.at }, out.floats,
		       s == 0 ? ring->ready : added(ring, earlier(part, 1)), left(ring, part));
	pd_script_receive(ring->script, ring->before, tag, staged(ring, part), in.floats,
			  s < 2 ? ring->free : added(ring, earlier(part, 2)), came(ring, part));
}

/* A sum comes to where a part has left. */
static void go_round(const struct pd_ring *ring, struct part part)
{
	int s = part.step, tag = ring->tag + (ring->n + s) * ring->cuts + part.cut;
	struct range out = part_of(ring, ring->me + 1 - s, part), in = part_of(ring, ring->me - s, part);

	pd_script_send(ring->script, ring->next, tag, (struct pd_script_at){ PD_SCRIPT_TRAVELS, out.at }, out.floats,
		       s == 0 ? added(ring, (struct part){ ring->n - 2, part.cut })
			      : sum_came(ring, earlier(part, 1)), sum_left(ring, part));
	pd_script_receive(ring->script, ring->before, tag, (struct pd_script_at){ PD_SCRIPT_TRAVELS, in.at },
			  in.floats, left(ring, part), sum_came(ring, part));
}

static void add(const struct pd_ring *ring, struct part part)
{
	bool last = part.step == ring->n - 2;
	struct range in = part_of(ring, ring->me - part.step - 1, part);

	pd_script_wait(ring->script, came(ring, part));
	pd_script_add(ring->script, (struct pd_script_at){ last ? PD_SCRIPT_TRAVELS : PD_SCRIPT_BUFFER, in.at },
		      (struct pd_script_at[]){ own(ring, in.at), staged(ring, part) }, 2, in.floats,
		      added(ring, part));
}

static void wait_for(const struct pd_ring *ring, struct part part)
{
	pd_script_wait(ring->script, left(ring, part));
	pd_script_wait(ring->script, sum_left(ring, part));
	pd_script_wait(ring->script, sum_came(ring, part));
}

static void for_each_part(const struct pd_ring *ring,
			  void (*write)(const struct pd_ring *ring, struct part part))
{
	for (int s = 0; s < ring->n - 1; s++)
		for (int c = 0; c < ring->cuts; c++)
			write(ring, (struct part){ s, c });
}

/* All steps together send so much to the next, and get as much. */
static void write_coarse(const struct pd_ring *ring)
{
	double halves = (double)pd_ring_halves(ring->script->dtype, ring->n, ring->plain);

	pd_script_send(ring->script, ring->next, 0, own(ring, 0), 0, PD_SCRIPT_NOW, 0)->part = halves / 2 / ring->n;
	pd_script_receive(ring->script, ring->before, 0, own(ring, 0), 0, PD_SCRIPT_NOW, 0);
}

void pd_ring_write(const struct pd_ring *ring)
{
	if (ring->script->coarse) {
		write_coarse(ring);
		return;
	}
	for_each_part(ring, add_up);
	for_each_part(ring, go_round);
	for_each_part(ring, add);
}

void pd_ring_wait(const struct pd_ring *ring)
{
	if (!ring->script->coarse)
		for_each_part(ring, wait_for);
}

int64_t pd_ring_staging_bytes(enum pd_dtype dtype, size_t floats, int n, bool plain)
{
	size_t width = n == 2 && plain ? pd_dtype_bytes(dtype) : sizeof(float);

	return (int64_t)((n > 2 ? 2 : 1) * width * pd_piece_most(floats, n));
}

int64_t pd_ring_halves(enum pd_dtype dtype, int64_t n, bool plain)
{
	return dtype == PD_F32 ? 4 * (n - 1) : (plain ? 1 : 2) + 2 * (n - 2) + (n - 1);
}

int64_t pd_ring_ns(__int128 transfer_ns, int64_t latency_ns, int64_t n, int parts)
{
	int64_t steps = 2 * (n - 1);
	__int128 full_ns = transfer_ns + latency_ns;
	__int128 waits_ns = (transfer_ns * (steps + parts - 1) + steps * parts - 1) /
			    (steps * parts) + (__int128)latency_ns * steps;

	return pd_saturate(full_ns > waits_ns ? full_ns : waits_ns);
}

static void write_ring(const struct pd_members *members, int me, struct pd_script *script)
{
	int n = members->count, cuts = pd_piece_parts(script->floats, n), rounded = 5 * cuts * (n - 1);
	struct pd_ring ring = {
		.script = script, .n = n, .me = me, .cuts = cuts, .before = (me + n - 1) % n, .next = (me + 1) % n,
		.ready = pd_script_begin(script, rounded), .free = PD_SCRIPT_NOW, .plain = true, .before_plain = true,
	};

	pd_ring_write(&ring);
	pd_script_end_first_part(script);
	pd_ring_wait(&ring);
	pd_script_widen(script, rounded + 1);
}

static int64_t ring_staging_bytes(const struct pd_members *members, int64_t bytes)
{
	return pd_ring_staging_bytes(members->dtype, (size_t)bytes / sizeof(float), members->count, true) +
	       pd_rounded_bytes(members, bytes);
}

static int64_t ring_alone_ns(const struct pd_members *members, int64_t bytes)
{
	int n = members->count;
	struct pd_slowest way;

	if (n == 1 || bytes == 0)
		return 0;
	way = pd_members_slowest(members, bytes);
	return pd_ring_ns(((__int128)way.whole_ns * pd_ring_halves(members->dtype, n, true) + 2 * n - 1) / (2 * n),
			  way.latency_ns, n, pd_piece_parts((size_t)bytes / sizeof(float), n));
}

const struct pd_reducer pd_reducer_ring = { write_ring, ring_staging_bytes, ring_alone_ns };

/* The transport's own memory is not counted. */
static int64_t no_staging_bytes(const struct pd_members *members, int64_t bytes)
{
	return 0;
}

/* How NCCL sums is not known beforehand.  In virtual time, and in all figures, it does what a ring does. */
const struct pd_reducer pd_reducer_nccl = {
	write_ring, no_staging_bytes, ring_alone_ns, .of_transport = true,
};
