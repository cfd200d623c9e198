/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In each host the gradients go along a chain to its master, each member adding its own; masters sum
 * theirs round a ring; the sums go back along the chains (topology/hierarchy.h).  Chains carry pieces,
 * so that all of their links are busy at once.
 *
 * Of hosts {0 1 2} and {3 4 5}: ((g2 + g1) + g0) + ((g5 + g4) + g3), or the other way round, which is
 * the same.  Of more hosts, each piece is summed from another host on.  All members have the same
 * bits.  In 16 bits what travels is as everywhere (topology/reducer.h).
 */
#include "base/buffer_pieces.h"
#include "reduce/ring.h"
#include "topology/hierarchy.h"

struct tree {
	struct pd_script *script;
	struct pd_hierarchy h;
	int pieces;
	int rounded, gathered;          /* events: the buffer is rounded; the ring is done */
};

/* The events of piece k: up and then down the chain. */
static int came(int k) { return 5 * k; }
static int added(int k) { return 5 * k + 1; }
static int left(int k) { return 5 * k + 2; }
static int sum_came(int k) { return 5 * k + 3; }
static int sum_left(int k) { return 5 * k + 4; }

static struct pd_script_transfer piece(const struct tree *t, int k)
{
	size_t floats = t->script->config.floats, begin = pd_piece_begin(floats, t->pieces, k);

	return (struct pd_script_transfer){
		.at = begin, .floats = pd_piece_begin(floats, t->pieces, k + 1) - begin,
	};
}

/* Two slots of staging take turns. */
static size_t slot(const struct tree *t, int k)
{
	return (size_t)(k % 2) * pd_piece_most(t->script->config.floats, t->pieces);
}

static int ready(const struct tree *t)
{
	return pd_script_narrows(t->script) ? t->rounded : PD_SCRIPT_READY;
}

/* Returns where the member behind sends to: the last of a chain sends its own gradients, rounded. */
static enum pd_script_place staged(const struct tree *t)
{
	return t->h.place == t->h.size - 2 ? PD_SCRIPT_STAGED_NARROW : PD_SCRIPT_STAGED;
}

static void go_up(const struct tree *t, int k)
{
	struct pd_script_transfer out = piece(t, k), in = out;

	out.tag = in.tag = k;
	if (t->h.behind >= 0) {
		in.place = staged(t);
		in.at = slot(t, k);
		in.peer = t->h.behind;
		in.after = k < 2 ? PD_SCRIPT_NOW : added(k - 2);
		in.ev = came(k);
		pd_script_transfer(t->script, &in);
	}
	if (t->h.before >= 0) {
		out.send = true;
		out.place = t->h.behind < 0 ? PD_SCRIPT_TRAVELS : PD_SCRIPT_BUFFER;
		out.peer = t->h.before;
		out.after = t->h.behind < 0 ? ready(t) : added(k);
		out.ev = left(k);
		pd_script_transfer(t->script, &out);
	}
}

/* A master sends what it has summed, alone or with others; a sum comes to where a part has left. */
static void go_down(const struct tree *t, int k)
{
	struct pd_script_transfer out = piece(t, k), in = out;

	out.place = in.place = PD_SCRIPT_TRAVELS;
	out.tag = in.tag = t->pieces + k;
	if (t->h.before >= 0) {
		in.peer = t->h.before;
		in.after = left(k);
		in.ev = sum_came(k);
		pd_script_transfer(t->script, &in);
	}
	if (t->h.behind >= 0) {
		out.send = true;
		out.peer = t->h.behind;
		out.after = t->h.before >= 0 ? sum_came(k) : t->h.hosts > 1 ? t->gathered : added(k);
		out.ev = sum_left(k);
		pd_script_transfer(t->script, &out);
	}
}

static void add(const struct tree *t, int k)
{
	struct pd_script_transfer at = piece(t, k);
	bool all = t->h.place == 0 && t->h.hosts == 1;

	pd_script_wait(t->script, came(k));
	pd_script_add(t->script, &(struct pd_script_sum){
		.to = { all ? PD_SCRIPT_TRAVELS : PD_SCRIPT_BUFFER, at.at },
		.from = (struct pd_script_at[]){ { PD_SCRIPT_TRAVELS, at.at }, { staged(t), slot(t, k) } },
		.n = 2, .floats = at.floats }, added(k));
}

static void write_ring(const struct tree *t)
{
	bool alone = t->h.behind < 0;
	struct pd_ring ring = {
		.script = t->script, .n = t->h.hosts, .me = t->h.host,
		.cuts = pd_piece_parts(t->script->config.floats, t->h.hosts),
		.before = t->h.master_before, .next = t->h.master_next, .events = 5 * t->pieces,
		.tag = 2 * t->pieces, .ready = alone ? ready(t) : added(t->pieces - 1),
		.free = alone ? PD_SCRIPT_NOW : added(t->pieces - 1), .plain = alone,
		.before_plain = t->h.before_size == 1,
	};

	pd_ring_write(&ring);
	pd_ring_wait(&ring);
	pd_script_add(t->script, &(struct pd_script_sum){ .n = 0 }, t->gathered);
}

static void write_all(const struct tree *t)
{
	bool chained = t->h.size > 1;

	pd_script_wait(t->script, PD_SCRIPT_READY);
	pd_script_round(t->script, t->rounded);
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
	pd_script_widen(t->script, t->rounded + 1);
}

static struct pd_reduction *hierarchical_open(const struct pd_reduction_config *config,
					      struct pd_error *err)
{
	struct pd_members members = { config->topology, config->ranks, config->members,
				      config->rounding.dtype };
	struct tree t = { .pieces = pd_hierarchy_pieces((int64_t)(config->floats * sizeof(float))) };
	int ring;

	pd_hierarchy_of(&members, config->me, &t.h);
	ring = (t.h.hosts - 1) * pd_piece_parts(config->floats, t.h.hosts);
	t.rounded = 5 * (t.pieces + ring);
	t.gathered = t.rounded + 2;
	t.script = pd_script_new(&pd_reduction_hierarchical,
				 pd_script_row_staging_bytes(PD_REDUCER_hierarchical, config), config, err);
	if (!t.script)
		return NULL;
	write_all(&t);
	return &t.script->base;
}

const struct pd_reduction_ops pd_reduction_hierarchical = {
	.open = hierarchical_open, .close = pd_script_close, .start = pd_script_start,
	.progress = pd_script_progress, .issued = pd_script_issued,
	.started_ns = pd_script_started_ns, .staging_bytes = pd_script_staging_bytes,
};
