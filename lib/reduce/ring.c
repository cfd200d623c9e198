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
#include "base/mem.h"
#include "base/piece.h"
#include "reduce/script.h"

struct ring {
	struct pd_script *script;
	size_t floats, slot;            /* slot: of staging, the longest piece */
	int n, me;
};

/* The events of a step: what leaves, what comes, the sum; then of the second way. */
static int left(int s) { return 5 * s; }
static int came(int s) { return 5 * s + 1; }
static int added(int s) { return 5 * s + 2; }
static int sum_left(int s) { return 5 * s + 3; }
static int sum_came(int s) { return 5 * s + 4; }
/* Of all steps: the buffer is rounded, the sums are widened. */
static int rounded(const struct ring *ring) { return 5 * (ring->n - 1); }

static struct pd_script_transfer piece(const struct ring *ring, int number)
{
	int p = (number % ring->n + ring->n) % ring->n;
	size_t begin = pd_piece_begin(ring->floats, ring->n, p);

	return (struct pd_script_transfer){
		.at = begin, .floats = pd_piece_begin(ring->floats, ring->n, p + 1) - begin,
	};
}

/* In what form a step's part comes. */
static enum pd_script_place staged(int s)
{
	return s == 0 ? PD_SCRIPT_STAGED_NARROW : PD_SCRIPT_STAGED;
}

/* Two slots take turns; one is free again when what it had has been added. */
static void add_up(const struct ring *ring, int s)
{
	struct pd_script_transfer out = piece(ring, ring->me - s);
	struct pd_script_transfer in = piece(ring, ring->me - s - 1);

	out.send = true;
	out.peer = (ring->me + 1) % ring->n;
	out.tag = in.tag = s;
	out.place = s == 0 ? PD_SCRIPT_TRAVELS : PD_SCRIPT_BUFFER;
	out.after = s > 0 ? added(s - 1) : pd_script_narrows(ring->script) ? rounded(ring)
									      : PD_SCRIPT_READY;
	out.ev = left(s);
	pd_script_transfer(ring->script, &out);
	in.place = staged(s);
	in.at = (size_t)(s % 2) * ring->slot;
	in.peer = (ring->me + ring->n - 1) % ring->n;
	in.after = s < 2 ? PD_SCRIPT_NOW : added(s - 2);
	in.ev = came(s);
	pd_script_transfer(ring->script, &in);
}

/* A sum comes to where a part has left. */
static void go_round(const struct ring *ring, int s)
{
	struct pd_script_transfer out = piece(ring, ring->me + 1 - s);
	struct pd_script_transfer in = piece(ring, ring->me - s);

	out.place = in.place = PD_SCRIPT_TRAVELS;
	out.send = true;
	out.peer = (ring->me + 1) % ring->n;
	out.tag = in.tag = ring->n + s;
	out.after = s == 0 ? added(ring->n - 2) : sum_came(s - 1);
	out.ev = sum_left(s);
	pd_script_transfer(ring->script, &out);
	in.peer = (ring->me + ring->n - 1) % ring->n;
	in.after = left(s);
	in.ev = sum_came(s);
	pd_script_transfer(ring->script, &in);
}

static void write_steps(const struct ring *ring)
{
	struct pd_script *script = ring->script;

	pd_script_wait(script, PD_SCRIPT_READY);
	pd_script_round(script, rounded(ring));
	for (int s = 0; s < ring->n - 1; s++) {
		struct pd_script_transfer in = piece(ring, ring->me - s - 1);

		pd_script_wait(script, came(s));
		pd_script_add(script, &(struct pd_script_sum){
			.to = s == ring->n - 2 ? PD_SCRIPT_TRAVELS : PD_SCRIPT_BUFFER,
			.from = { PD_SCRIPT_TRAVELS, staged(s) }, .n = 2, .at = in.at,
			.staged = (size_t)(s % 2) * ring->slot, .floats = in.floats }, added(s));
	}
	script->sums = script->step_count;
	for (int s = 0; s < ring->n - 1; s++) {
		pd_script_wait(script, left(s));
		pd_script_wait(script, sum_left(s));
		pd_script_wait(script, sum_came(s));
	}
	pd_script_widen(script, rounded(ring) + 1);
}

static struct pd_reduction *ring_open(const struct pd_reduction_config *config,
				      struct pd_error *err)
{
	int n = config->members;
	struct ring ring = { .floats = config->floats, .slot = pd_piece_most(config->floats, n),
			     .n = n, .me = config->me };

	ring.script = pd_script_new(&pd_reduction_ring, PD_REDUCER_ring, config,
				    5 * (n - 1) + 2, 4 * (n - 1), 1 + 5 * (n - 1), err);
	if (!ring.script)
		return NULL;
	for (int s = 0; s < n - 1; s++)
		add_up(&ring, s);
	for (int s = 0; s < n - 1; s++)
		go_round(&ring, s);
	write_steps(&ring);
	return &ring.script->base;
}

const struct pd_reduction_ops pd_reduction_ring = {
	.open = ring_open, .close = pd_script_close, .start = pd_script_start,
	.progress = pd_script_progress, .issued = pd_script_issued,
	.started_ns = pd_script_started_ns, .staging_bytes = pd_script_staging_bytes,
};
