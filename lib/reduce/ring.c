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
#include "reduce/ring.h"

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
	return pd_piece_begin(pd_piece_most(ring->script->config.floats, ring->n), ring->cuts, cut);
}

/* Returns where a part of a piece lies in the buffer. */
static struct pd_script_transfer part_of(const struct pd_ring *ring, int number, struct part part)
{
	size_t floats = ring->script->config.floats;
	int p = (number % ring->n + ring->n) % ring->n;
	size_t first = pd_piece_begin(floats, ring->n, p);
	size_t whole = pd_piece_begin(floats, ring->n, p + 1) - first;
	size_t begin = part_begin(ring, part.cut), end = part_begin(ring, part.cut + 1);

	begin = begin < whole ? begin : whole;
	end = end < whole ? end : whole;
	return (struct pd_script_transfer){ .at = first + begin, .floats = end - begin };
}

/* Two slots of staging, of the longest piece, take turns. */
static size_t place(const struct pd_ring *ring, struct part part)
{
	size_t most = pd_piece_most(ring->script->config.floats, ring->n);

	return (size_t)(part.step % 2) * most + part_begin(ring, part.cut);
}

/* Returns the form in which a step's part comes. */
static enum pd_script_place staged(const struct pd_ring *ring, int s)
{
	return s == 0 && ring->before_plain ? PD_SCRIPT_STAGED_NARROW : PD_SCRIPT_STAGED;
}

static enum pd_script_place own(const struct pd_ring *ring)
{
	return ring->plain ? PD_SCRIPT_TRAVELS : PD_SCRIPT_BUFFER;
}

/* A place is free again when what it had has been added. */
static void add_up(const struct pd_ring *ring, struct part part)
{
	int s = part.step;
	struct pd_script_transfer out = part_of(ring, ring->me - s, part);
	struct pd_script_transfer in = part_of(ring, ring->me - s - 1, part);

	out.send = true;
	out.peer = ring->next;
	out.tag = in.tag = ring->tag + s * ring->cuts + part.cut;
	out.place = s == 0 ? own(ring) : PD_SCRIPT_BUFFER;
	out.after = s == 0 ? ring->ready : added(ring, earlier(part, 1));
	out.ev = left(ring, part);
	pd_script_transfer(ring->script, &out);
	in.place = staged(ring, s);
	in.at = place(ring, part);
	in.peer = ring->before;
	in.after = s < 2 ? ring->free : added(ring, earlier(part, 2));
	in.ev = came(ring, part);
	pd_script_transfer(ring->script, &in);
}

/* A sum comes to where a part has left. */
static void go_round(const struct pd_ring *ring, struct part part)
{
	int s = part.step;
	struct pd_script_transfer out = part_of(ring, ring->me + 1 - s, part);
	struct pd_script_transfer in = part_of(ring, ring->me - s, part);

	out.place = in.place = PD_SCRIPT_TRAVELS;
	out.send = true;
	out.peer = ring->next;
	out.tag = in.tag = ring->tag + (ring->n + s) * ring->cuts + part.cut;
	out.after = s == 0 ? added(ring, (struct part){ ring->n - 2, part.cut })
			   : sum_came(ring, earlier(part, 1));
	out.ev = sum_left(ring, part);
	pd_script_transfer(ring->script, &out);
	in.peer = ring->before;
	in.after = left(ring, part);
	in.ev = sum_came(ring, part);
	pd_script_transfer(ring->script, &in);
}

static void add(const struct pd_ring *ring, struct part part)
{
	int s = part.step;
	struct pd_script_transfer in = part_of(ring, ring->me - s - 1, part);

	pd_script_wait(ring->script, came(ring, part));
	pd_script_add(ring->script, &(struct pd_script_sum){
		.to = { s == ring->n - 2 ? PD_SCRIPT_TRAVELS : PD_SCRIPT_BUFFER, in.at },
		.from = (struct pd_script_at[]){ { own(ring), in.at },
						 { staged(ring, s), place(ring, part) } },
		.n = 2, .floats = in.floats }, added(ring, part));
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

void pd_ring_write(const struct pd_ring *ring)
{
	for_each_part(ring, add_up);
	for_each_part(ring, go_round);
	for_each_part(ring, add);
}

void pd_ring_wait(const struct pd_ring *ring)
{
	for_each_part(ring, wait_for);
}

static struct pd_reduction *ring_open(const struct pd_reduction_config *config,
				      struct pd_error *err)
{
	int n = config->members, cuts = pd_piece_parts(config->floats, n);
	int rounded = 5 * cuts * (n - 1);
	struct pd_ring ring = { .n = n, .me = config->me, .before = (config->me + n - 1) % n,
				.next = (config->me + 1) % n, .free = PD_SCRIPT_NOW,
				.cuts = cuts, .plain = true, .before_plain = true };
	size_t staging_bytes = pd_script_row_staging_bytes(PD_REDUCER_ring, config);
	struct pd_script *script = pd_script_new(&pd_reduction_ring, staging_bytes, config, err);

	if (!script)
		return NULL;
	ring.script = script;
	ring.ready = pd_script_narrows(script) ? rounded : PD_SCRIPT_READY;
	pd_script_wait(script, PD_SCRIPT_READY);
	pd_script_round(script, rounded);
	pd_ring_write(&ring);
	pd_script_end_first_part(script);
	pd_ring_wait(&ring);
	pd_script_widen(script, rounded + 1);
	return &script->base;
}

const struct pd_reduction_ops pd_reduction_ring = {
	.open = ring_open, .close = pd_script_close, .start = pd_script_start,
	.progress = pd_script_progress, .issued = pd_script_issued,
	.started_ns = pd_script_started_ns, .staging_bytes = pd_script_staging_bytes,
};
