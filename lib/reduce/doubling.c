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
#include "base/mem.h"
#include "reduce/script.h"

struct doubling {
	struct pd_script *script;
	size_t floats;
	int n, me, p, rounds;           /* p: 2^rounds */
	int rounded;                    /* event: the buffer is rounded */
};

/* Has member m nothing but its own gradients in round k?  Only these travel in 16 bits. */
static bool is_plain(const struct doubling *d, int m, int k)
{
	return k == 0 && m + d->p >= d->n;
}

/* After this a member's gradients may leave. */
static int ready(const struct doubling *d)
{
	return pd_script_narrows(d->script) ? d->rounded : PD_SCRIPT_READY;
}

static void send(const struct doubling *d, int peer, int tag, bool plain, int after, int ev)
{
	pd_script_transfer(d->script, &(struct pd_script_transfer){
		.send = true, .place = plain ? PD_SCRIPT_TRAVELS : PD_SCRIPT_BUFFER,
		.peer = peer, .tag = tag, .floats = d->floats, .after = after, .ev = ev,
	});
}

static void receive(const struct doubling *d, int peer, int tag, enum pd_script_place place,
		    int after, int ev)
{
	pd_script_transfer(d->script, &(struct pd_script_transfer){
		.place = place, .peer = peer, .tag = tag, .floats = d->floats, .after = after, .ev = ev,
	});
}

/* A member above p: its part leaves, the sum comes. */
static void write_extra(const struct doubling *d)
{
	send(d, d->me - d->p, 0, true, ready(d), 0);
	receive(d, d->me - d->p, 1, PD_SCRIPT_BUFFER, 0, 1);
	pd_script_wait(d->script, PD_SCRIPT_READY);
	pd_script_round(d->script, d->rounded);
	pd_script_end_first_part(d->script);
	pd_script_wait(d->script, 0);
	pd_script_wait(d->script, 1);
}

static void add(const struct doubling *d, bool plain, enum pd_script_place came, int ev)
{
	pd_script_add(d->script, &(struct pd_script_sum){
		.to = { PD_SCRIPT_BUFFER },
		.from = (struct pd_script_at[]){ { plain ? PD_SCRIPT_TRAVELS : PD_SCRIPT_BUFFER }, { came } },
		.n = 2, .floats = d->floats }, ev);
}

/*
 * Events of round k: 3 k + 2 what leaves, and behind it what comes, and the sum.  0 and 1 are what
 * the member p above gives, and that in the sum; behind the rounds what it gets.
 */
static void write_member(const struct doubling *d)
{
	bool extra = d->me + d->p < d->n;
	int before = extra ? 1 : ready(d), free = extra ? 1 : PD_SCRIPT_NOW;
	int last = 3 * d->rounds + 2;

	pd_script_wait(d->script, PD_SCRIPT_READY);
	pd_script_round(d->script, d->rounded);
	if (extra) {
		receive(d, d->me + d->p, 0, PD_SCRIPT_STAGED_NARROW, PD_SCRIPT_NOW, 0);
		pd_script_wait(d->script, 0);
		add(d, true, PD_SCRIPT_STAGED_NARROW, 1);
	}
	for (int k = 0; k < d->rounds; k++) {
		int peer = d->me ^ 1 << k, leaves = 3 * k + 2, comes = leaves + 1;
		int summed = leaves + 2;
		enum pd_script_place staged = is_plain(d, peer, k) ? PD_SCRIPT_STAGED_NARROW
								   : PD_SCRIPT_STAGED;

		send(d, peer, 2 + k, is_plain(d, d->me, k), before, leaves);
		receive(d, peer, 2 + k, staged, free, comes);
		pd_script_wait(d->script, leaves);
		pd_script_wait(d->script, comes);
		add(d, is_plain(d, d->me, k), staged, summed);
		before = free = summed;
	}
	pd_script_end_first_part(d->script);
	if (extra) {
		send(d, d->me + d->p, 1, false, before, last);
		pd_script_wait(d->script, last);
	}
}

static struct pd_reduction *doubling_open(const struct pd_reduction_config *config,
					  struct pd_error *err)
{
	struct doubling d = { .floats = config->floats, .n = config->members, .me = config->me,
			      .p = 1 };

	while (2 * d.p <= d.n) {
		d.p *= 2;
		d.rounds++;
	}
	d.rounded = 3 * d.rounds + 3;
	d.script = pd_script_new(&pd_reduction_doubling,
				 pd_script_row_staging_bytes(PD_REDUCER_doubling, config), config, err);
	if (!d.script)
		return NULL;
	if (d.me >= d.p)
		write_extra(&d);
	else
		write_member(&d);
	return &d.script->base;
}

const struct pd_reduction_ops pd_reduction_doubling = {
	.open = doubling_open, .close = pd_script_close, .start = pd_script_start,
	.progress = pd_script_progress, .issued = pd_script_issued,
	.started_ns = pd_script_started_ns, .staging_bytes = pd_script_staging_bytes,
};
