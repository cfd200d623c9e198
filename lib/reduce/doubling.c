/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recursive doubling, the butterfly: in round k members whose numbers differ in bit k exchange all
 * they have and both add it up.  log2 n rounds, of the whole buffer each: few messages, many bytes.
 * Where n is no power of two, each member above the greatest power p below n gives its part to
 * the one p below it first, and gets the sum at the end.
 *
 * Members add the same two numbers in a round, so all have the same bits: ((g0 + g1) + (g2 + g3))
 * + ..., which for three members and more are not those of g0 + g1 + g2 + ...
 */
#include "base/mem.h"
#include "reduce/script.h"

struct doubling {
	struct pd_script *script;
	size_t floats;
	int n, me, p, rounds;           /* p: 2^rounds */
};

static void exchange(const struct doubling *d, bool send, bool staged, int peer, int tag, int after,
		     int ev)
{
	pd_script_transfer(d->script, &(struct pd_script_transfer){
		.send = send, .staged = staged, .peer = peer, .tag = tag, .floats = d->floats,
		.after = after, .ev = ev,
	});
}

/* A member above p: its part leaves, the sum comes. */
static void write_extra(const struct doubling *d)
{
	exchange(d, true, false, d->me - d->p, 0, PD_SCRIPT_READY, 0);
	exchange(d, false, false, d->me - d->p, 1, 0, 1);
	pd_script_wait(d->script, PD_SCRIPT_READY);
	d->script->sums = d->script->step_count;
	pd_script_wait(d->script, 0);
	pd_script_wait(d->script, 1);
}

/*
 * Events of round k: 3 k + 2 what leaves, and behind it what comes, and the sum.  0 and 1 are what
 * the member p above gives, and that in the sum; the last what it gets.
 */
static void write_member(const struct doubling *d)
{
	bool extra = d->me + d->p < d->n;
	int before = extra ? 1 : PD_SCRIPT_READY, free = extra ? 1 : PD_SCRIPT_NOW;
	int last = 3 * d->rounds + 2;

	pd_script_wait(d->script, PD_SCRIPT_READY);
	if (extra) {
		exchange(d, false, true, d->me + d->p, 0, PD_SCRIPT_NOW, 0);
		pd_script_wait(d->script, 0);
		pd_script_add(d->script, 0, 0, d->floats, 1);
	}
	for (int k = 0; k < d->rounds; k++) {
		int leaves = 3 * k + 2, comes = leaves + 1, summed = leaves + 2;

		exchange(d, true, false, d->me ^ 1 << k, 2 + k, before, leaves);
		exchange(d, false, true, d->me ^ 1 << k, 2 + k, free, comes);
		pd_script_wait(d->script, leaves);
		pd_script_wait(d->script, comes);
		pd_script_add(d->script, 0, 0, d->floats, summed);
		before = free = summed;
	}
	d->script->sums = d->script->step_count;
	if (extra) {
		exchange(d, true, false, d->me + d->p, 1, before, last);
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
	d.script = pd_script_new(&pd_reduction_doubling, config, d.floats, 3 * d.rounds + 3,
				 2 * d.rounds + 2, 3 * d.rounds + 4, err);
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
