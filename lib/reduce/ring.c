/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ring (GradientFlow, section 2.3, as everywhere): the buffer is cut into as many pieces as there
 * are members.  In each of n - 1 steps a member sends a piece to the next one and adds what comes
 * from the one before to its own part of another; then the sums go round, in n - 1 steps.
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

#include "base/piece.h"

/* The events of a step: what leaves, what comes, the sum; then of the second way. */
static int left(const struct pd_ring *r, int s) { return r->events + 5 * s; }
static int came(const struct pd_ring *r, int s) { return r->events + 5 * s + 1; }
static int added(const struct pd_ring *r, int s) { return r->events + 5 * s + 2; }
static int sum_left(const struct pd_ring *r, int s) { return r->events + 5 * s + 3; }
static int sum_came(const struct pd_ring *r, int s) { return r->events + 5 * s + 4; }

static struct pd_script_transfer piece(const struct pd_ring *ring, int number)
{
	size_t floats = ring->script->config.floats;
	int p = (number % ring->n + ring->n) % ring->n;
	size_t begin = pd_piece_begin(floats, ring->n, p);

	return (struct pd_script_transfer){
		.at = begin, .floats = pd_piece_begin(floats, ring->n, p + 1) - begin,
	};
}

/* Two slots of staging, of the longest piece, take turns. */
static size_t slot(const struct pd_ring *ring, int s)
{
	return (size_t)(s % 2) * pd_piece_most(ring->script->config.floats, ring->n);
}

/* In what form a step's part comes. */
static enum pd_script_place staged(const struct pd_ring *ring, int s)
{
	return s == 0 && ring->before_plain ? PD_SCRIPT_STAGED_NARROW : PD_SCRIPT_STAGED;
}

static enum pd_script_place own(const struct pd_ring *ring)
{
	return ring->plain ? PD_SCRIPT_TRAVELS : PD_SCRIPT_BUFFER;
}

/* A slot is free again when what it had has been added. */
static void add_up(const struct pd_ring *ring, int s)
{
	struct pd_script_transfer out = piece(ring, ring->me - s);
	struct pd_script_transfer in = piece(ring, ring->me - s - 1);

	out.send = true;
	out.peer = ring->next;
	out.tag = in.tag = ring->tag + s;
	out.place = s == 0 ? own(ring) : PD_SCRIPT_BUFFER;
	out.after = s == 0 ? ring->ready : added(ring, s - 1);
	out.ev = left(ring, s);
	pd_script_transfer(ring->script, &out);
	in.place = staged(ring, s);
	in.at = slot(ring, s);
	in.peer = ring->before;
	in.after = s < 2 ? ring->free : added(ring, s - 2);
	in.ev = came(ring, s);
	pd_script_transfer(ring->script, &in);
}

/* A sum comes to where a part has left. */
static void go_round(const struct pd_ring *ring, int s)
{
	struct pd_script_transfer out = piece(ring, ring->me + 1 - s);
	struct pd_script_transfer in = piece(ring, ring->me - s);

	out.place = in.place = PD_SCRIPT_TRAVELS;
	out.send = true;
	out.peer = ring->next;
	out.tag = in.tag = ring->tag + ring->n + s;
	out.after = s == 0 ? added(ring, ring->n - 2) : sum_came(ring, s - 1);
	out.ev = sum_left(ring, s);
	pd_script_transfer(ring->script, &out);
	in.peer = ring->before;
	in.after = left(ring, s);
	in.ev = sum_came(ring, s);
	pd_script_transfer(ring->script, &in);
}

void pd_ring_write(const struct pd_ring *ring)
{
	for (int s = 0; s < ring->n - 1; s++)
		add_up(ring, s);
	for (int s = 0; s < ring->n - 1; s++)
		go_round(ring, s);
	for (int s = 0; s < ring->n - 1; s++) {
		struct pd_script_transfer in = piece(ring, ring->me - s - 1);

		pd_script_wait(ring->script, came(ring, s));
		pd_script_add(ring->script, &(struct pd_script_sum){
			.to = s == ring->n - 2 ? PD_SCRIPT_TRAVELS : PD_SCRIPT_BUFFER,
			.from = { own(ring), staged(ring, s) }, .n = 2, .at = in.at,
			.staged = slot(ring, s), .floats = in.floats }, added(ring, s));
	}
}

void pd_ring_wait(const struct pd_ring *ring)
{
	for (int s = 0; s < ring->n - 1; s++) {
		pd_script_wait(ring->script, left(ring, s));
		pd_script_wait(ring->script, sum_left(ring, s));
		pd_script_wait(ring->script, sum_came(ring, s));
	}
}

static struct pd_reduction *ring_open(const struct pd_reduction_config *config,
				      struct pd_error *err)
{
	int n = config->members, rounded = 5 * (n - 1);
	struct pd_ring ring = { .n = n, .me = config->me, .before = (config->me + n - 1) % n,
				.next = (config->me + 1) % n, .free = PD_SCRIPT_NOW,
				.plain = true, .before_plain = true };
	struct pd_script *script = pd_script_new(&pd_reduction_ring, PD_REDUCER_ring, config,
						 rounded + 2, 4 * (n - 1), 1 + 5 * (n - 1), err);

	if (!script)
		return NULL;
	ring.script = script;
	ring.ready = pd_script_narrows(script) ? rounded : PD_SCRIPT_READY;
	pd_script_wait(script, PD_SCRIPT_READY);
	pd_script_round(script, rounded);
	pd_ring_write(&ring);
	script->sums = script->step_count;
	pd_ring_wait(&ring);
	pd_script_widen(script, rounded + 1);
	return &script->base;
}

const struct pd_reduction_ops pd_reduction_ring = {
	.open = ring_open, .close = pd_script_close, .start = pd_script_start,
	.progress = pd_script_progress, .issued = pd_script_issued,
	.started_ns = pd_script_started_ns, .staging_bytes = pd_script_staging_bytes,
};
