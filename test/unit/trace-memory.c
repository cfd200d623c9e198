/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests the memory of ranks: a plan's bytes are the most that its lists hold; minibatches in flight and
 * versions are as published; an eager start-up has more of both, and ends.
 */
#include "made_lists.h"
#include "small_profile.h"
#include "table.h"
#include "tap.h"

#include "base/mem.h"
#include "memory/memory.h"
#include "schedule/check.h"
#include "schedule/file.h"
#include "schedule/price.h"

#include <inttypes.h>
#include <string.h>

/* ---- memory ---- */

/* Checks that the plan's bytes are enough, and less than a minibatch's bytes are not. */
static void check_memory(void)
{
	for (size_t p = 0; p < PD_COUNT(plans); p++) {
		struct pd_plan *plan = make_plan(skips, &plans[p], plans[p].stages);
		struct pd_error err = { 0 };
		struct pd_schedule *schedule = pd_schedule_new(plan, &err);
		struct pd_lists *lists = made_lists("memory", schedule, 40, &err);
		struct pd_prices prices;
		bool fits;

		for (int s = 0; s < plan->stage_count; s++) {
			int64_t in = 0, out = 0;
			struct pd_memory memory;

			for (int i = 0; i < lists->wiring->in_count[s]; i++)
				in += lists->wiring->links[lists->wiring->in[s][i]].bytes;
			for (int i = 0; i < lists->wiring->out_count[s]; i++)
				out += lists->wiring->links[lists->wiring->out[s][i]].bytes;
			pd_memory_of(plan->profile, plan->stages[s].first_layer,
				     plan->stages[s].layer_count, plan->stages[s].replicas,
				     plan->stages[s].warmup, in, out, &memory);
			plan->stages[s].memory_bytes = memory.total_bytes +
				(pd_schedule_leaving(schedule, s) - 2) * in;
		}
		fits = pd_check(lists, &err) == 0;
		pd_prices_init(&prices, plan, lists->wiring);
		plan->stages[0].memory_bytes = prices.stages[0].fixed_bytes +
			prices.stages[0].slot_bytes - 1;
		ok(fits && pd_check(lists, &err) < 0 && strstr(err.text, "bytes"),
		   "%s: the plan's memory is enough, less than one minibatch's is not%s%s",
		   plans[p].name, fits ? "" : ": ", fits ? "" : err.text);
		pd_prices_release(&prices);
		pd_lists_free(lists);
		pd_schedule_free(schedule);
		pd_plan_free(plan);
	}
}

/* Tells whether a rank never holds less than at the beginning, and holds as much at the end of its list. */
static bool comes_down(const struct pd_lists *lists, const struct pd_prices *prices, int rank)
{
	const struct pd_list *list = &lists->ranks[rank];
	struct pd_account account;
	__int128 always;
	bool right = true;

	pd_account_init(&account, prices, lists->microbatches);
	for (size_t n = 0; n < list->count; n++)
		pd_account_expect(&account, &list->ops[n]);
	always = account.held_bytes;
	for (size_t n = 0; n < list->count; n++) {
		pd_account_enter(&account, &list->ops[n]);
		right = right && account.held_bytes >= always;
	}
	right = right && account.held_bytes == always;
	pd_account_release(&account);
	return right;
}

static void check_return(unsigned recompute)
{
	for (size_t p = 0; p < PD_COUNT(plans); p++) {
		struct pd_plan *plan = make_plan(skips, &plans[p], plans[p].stages);
		struct pd_error err = { 0 };
		struct pd_schedule *schedule;
		struct pd_lists *lists;
		struct pd_prices prices;
		bool right = true;

		recompute_in(plan, recompute);
		schedule = pd_schedule_new(plan, &err);
		lists = made_lists("return", schedule, 40, &err);
		pd_prices_init(&prices, plan, lists->wiring);
		for (int r = 0; r < plan->rank_count; r++)
			right = right && comes_down(lists, &prices, r);
		ok(right, "%s: at the end as much is held as at the beginning%s", plans[p].name,
		   recompute ? ", recomputed" : "");
		pd_prices_release(&prices);
		pd_lists_free(lists);
		pd_schedule_free(schedule);
		pd_plan_free(plan);
	}
}

/* ---- microbatches in flight, and versions ---- */

/* Returns the most bytes by these prices that one rank holds. */
static int most_held(const struct pd_lists *lists, const struct pd_prices *prices, int rank)
{
	const struct pd_list *list = &lists->ranks[rank];
	struct pd_account account;
	int most = 0;

	pd_account_init(&account, prices, lists->microbatches);
	for (size_t n = 0; n < list->count; n++)
		pd_account_expect(&account, &list->ops[n]);
	for (size_t n = 0; n < list->count; n++) {
		pd_account_enter(&account, &list->ops[n]);
		most = account.held_bytes > most ? (int)account.held_bytes : most;
	}
	pd_account_release(&account);
	return most;
}

/* Sets prices to a byte per version of weights, or a byte per microbatch in flight, and nothing else. */
static void count_only(struct pd_prices *prices, bool versions)
{
	for (int s = 0; s < prices->plan->stage_count; s++)
		prices->stages[s] = (struct pd_stage_price){
			.weights_bytes = versions,
			.fixed_bytes = versions, .slot_bytes = !versions };
}

static int lower(int a, int b)
{
	return a < b ? a : b;
}

/* Returns the published peak for straight pipelines of p stages with m microbatches per update. */
static int published_in_flight(const struct pd_plan *plan, int p, int s, int m)
{
	switch (plan->schedule) {
	case PD_SCHEDULE_GPIPE:
		return m;
	case PD_SCHEDULE_ZB_H1:
		return lower(p, m);
	default:
		return plan->weights == PD_WEIGHTS_FLUSH ? lower(p - s, m) : p - s;
	}
}

static int published_versions(const struct pd_plan *plan, int p, int s)
{
	switch (plan->weights) {
	case PD_WEIGHTS_STASH:
		return p - s;
	case PD_WEIGHTS_VERTICAL_SYNC:
		return p;
	case PD_WEIGHTS_2BW:
		return 2;
	default:
		return 1;
	}
}

static bool peaks_are_published(int p, enum pd_schedule_kind kind, enum pd_weight_kind weights,
				int m)
{
	struct pd_topology topology;
	struct pd_error err;
	struct pd_plan *plan;
	struct pd_schedule *schedule;
	struct pd_lists *lists;
	struct pd_prices prices;
	int layers[16], ones[16];
	bool right = true;

	for (int s = 0; s < 16; s++)
		layers[s] = ones[s] = 1;
	layers[p - 1] = 16 - (p - 1);   /* the last stage has all remaining layers */
	pd_topology_flat(MOST_RANKS, 1000000000, 1000, &topology, &err);
	plan = pd_plan_new(small_profile(sixteen), &topology, p, layers, ones, &err);
	use(plan, kind, weights, m);
	schedule = pd_schedule_new(plan, &err);
	lists = schedule ? made_lists("peaks", schedule, m > 1 ? 4 : 50, &err) : NULL;
	for (int l = 0; lists && l < lists->wiring->link_count; l++)
		lists->wiring->links[l].bytes = 0;
	for (int versions = 0; lists && versions < 2; versions++) {
		pd_prices_init(&prices, plan, lists->wiring);
		count_only(&prices, versions);
		for (int s = 0; s < p; s++) {
			int got = most_held(lists, &prices, s);
			int expected = versions ? published_versions(plan, p, s)
						: published_in_flight(plan, p, s, m);

			if (got != expected)
				diag("%s, %s, stage %d of %d, %d microbatches: %d %s, expected %d",
				     pd_schedule_kind_name[kind], pd_weight_kind_name[weights],
				     s, p, m, got, versions ? "versions" : "in flight", expected);
			right = right && got == expected;
		}
		pd_prices_release(&prices);
	}
	right = right && lists;
	pd_lists_free(lists);
	pd_schedule_free(schedule);
	pd_plan_free(plan);
	return right;
}

static void check_peaks(void)
{
	static const struct {
		enum pd_schedule_kind kind;
		enum pd_weight_kind weights;
		int microbatches[3];
	} rows[] = {
		{ PD_SCHEDULE_1F1B, PD_WEIGHTS_STASH, { 1 } },
		{ PD_SCHEDULE_1F1B, PD_WEIGHTS_VERTICAL_SYNC, { 1 } },
		{ PD_SCHEDULE_1F1B, PD_WEIGHTS_2BW, { 16, 20 } },
		{ PD_SCHEDULE_1F1B, PD_WEIGHTS_FLUSH, { 2, 8, 24 } },
		{ PD_SCHEDULE_GPIPE, PD_WEIGHTS_FLUSH, { 2, 8, 24 } },
		{ PD_SCHEDULE_ZB_H1, PD_WEIGHTS_FLUSH, { 2, 8, 24 } },
	};

	for (size_t r = 0; r < PD_COUNT(rows); r++) {
		bool right = true;

		for (int p = 2; p <= 16; p++)
			for (int i = 0; i < 3 && rows[r].microbatches[i]; i++)
				right &= peaks_are_published(p, rows[r].kind, rows[r].weights,
							     rows[r].microbatches[i]);
		ok(right, "%s with %s: in flight and versions as published, 2 to 16 stages",
		   pd_schedule_kind_name[rows[r].kind], pd_weight_kind_name[rows[r].weights]);
	}
}

/* ---- eager start-ups ---- */

/*
 * Tells whether two lists compute the same from the first forward of a microbatch >= from on, with the
 * same versions (backwards of the microbatches before read what their forwards read).  Transfers are not
 * compared, since they may arrive earlier if there is more room.
 */
static bool same_from(const struct pd_list *a, const struct pd_list *b, int64_t from)
{
	const struct pd_list *lists[] = { a, b };
	size_t at[2] = { 0, 0 };
	bool inside[2] = { false, false };

	for (;;) {
		const struct pd_op *op[2] = { NULL, NULL };

		for (int i = 0; i < 2; i++)
			while (at[i] < lists[i]->count && !op[i]) {
				const struct pd_op *next = &lists[i]->ops[at[i]++];

				inside[i] |= next->kind == PD_OP_forward && next->microbatch >= from;
				if (inside[i] && (next->kind == PD_OP_forward ||
						  next->kind == PD_OP_backward ||
						  next->kind == PD_OP_step))
					op[i] = next;
			}
		if (!op[0] || !op[1])
			return op[0] == op[1] && inside[0];
		if (op[0]->kind != op[1]->kind || op[0]->microbatch != op[1]->microbatch ||
		    op[0]->keep != op[1]->keep ||
		    (op[0]->version != op[1]->version &&
		     (op[0]->kind == PD_OP_step || op[0]->microbatch >= from)))
			return false;
	}
}

/* Tells whether stages have room for exactly as many versions and microbatches as their lists hold. */
static bool room_is_used(const struct pd_schedule *schedule, const struct pd_lists *lists)
{
	struct pd_prices prices;
	bool right = true;

	for (int versions = 0; versions < 2; versions++) {
		pd_prices_init(&prices, schedule->plan, lists->wiring);
		for (int l = 0; l < lists->wiring->link_count; l++)
			lists->wiring->links[l].bytes = 0;
		count_only(&prices, versions);
		for (int s = 0; s < schedule->stage_count; s++) {
			const struct pd_stage *stage = &schedule->plan->stages[s];
			int most = 0, made = versions ? pd_schedule_versions(schedule, s)
						      : pd_schedule_slots(schedule, s, false);

			for (int r = 0; r < stage->replicas; r++) {
				int held = most_held(lists, &prices, stage->ranks[r]);

				most = held > most ? held : most;
			}
			if (most != made)
				diag("%s: stage %d has room for %d %s, and uses %d", lists->name, s,
				     made, versions ? "versions" : "microbatches", most);
			right = right && most == made;
		}
		pd_prices_release(&prices);
	}
	return right;
}

static void check_eager_plan(struct pd_plan *plan, const char *name)
{
	struct pd_lists *lists[2];
	struct pd_schedule *schedules[2];
	struct pd_error err;
	int64_t admitted, most = 0;
	bool same = true;

	for (int i = 0; i < 2; i++) {
		plan->startup = i ? PD_STARTUP_EAGER : PD_STARTUP_FRUGAL;
		schedules[i] = pd_schedule_new(plan, &err);
		lists[i] = made_lists(name, schedules[i], 120 / plan->microbatches, &err);
	}
	admitted = pd_plan_admitted(plan);
	for (int s = 0; s < plan->stage_count; s++)
		most = schedules[1]->startup[s] - plan->stages[s].warmup > most
			? schedules[1]->startup[s] - plan->stages[s].warmup : most;
	for (int r = 0; r < plan->rank_count; r++)
		same = same && same_from(&lists[0]->ranks[r], &lists[1]->ranks[r], admitted);
	ok(same, "%s, %d at a time: the same steady state after %d more forwards at first", name,
	   (int)plan->microbatches, (int)most);
	ok(room_is_used(schedules[1], lists[1]), "%s, %d at a time: room for what is in flight",
	   name, (int)plan->microbatches);
	for (int i = 0; i < 2; i++) {
		pd_lists_free(lists[i]);
		pd_schedule_free(schedules[i]);
	}
}

static void check_eager(void)
{
	struct pd_topology topology;
	struct pd_error err;
	int ones[16];

	for (size_t p = 0; p < PD_COUNT(plans); p++) {
		struct pd_plan *plan = make_plan(chain, &plans[p], plans[p].stages);

		check_eager_plan(plan, plans[p].name);
		pd_plan_free(plan);
	}
	pd_topology_flat(MOST_RANKS, 1000000000, 1000, &topology, &err);
	for (int s = 0; s < 16; s++)
		ones[s] = 1;
	for (int cut = 1; cut <= 4; cut++) {
		struct pd_plan *plan = pd_plan_new(small_profile(sixteen), &topology, 16, ones, ones,
						   &err);

		plan->microbatches = cut;
		check_eager_plan(plan, "16 straight");
		pd_plan_free(plan);
	}
}

int main(void)
{
	check_memory();
	check_return(0);
	check_return(~0u);
	check_peaks();
	check_eager();
	return done_testing();
}
