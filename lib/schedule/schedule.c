/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/schedule.h"

#include "base/mem.h"
#include "schedule/count.h"
#include "schedule/evaluation.h"
#include "schedule/pattern.h"
#include "schedule/shape.h"
#include "schedule/slot_table.h"
#include "schedule/tick.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>

const char *const pd_op_kind_name[] = {
#define OP_KIND(name, letter, what) #name,
#include "schedule/op_kind.def"
#undef OP_KIND
	NULL
};

const char pd_op_kind_letter[] = {
#define OP_KIND(name, letter, what) letter[0],
#include "schedule/op_kind.def"
#undef OP_KIND
};

int pd_schedule_in_flight(const struct pd_schedule *schedule, int stage, bool evaluate)
{
	return evaluate ? schedule->evaluation_slots[stage] : schedule->slots[stage];
}

int pd_schedule_slots(const struct pd_schedule *schedule, int stage, bool evaluate)
{
	int slots = pd_schedule_in_flight(schedule, stage, evaluate), kept = schedule->kept[stage];

	return schedule->plan->stages[stage].recompute && kept < slots ? kept : slots;
}

int pd_schedule_pool(const struct pd_schedule *schedule, int stage)
{
	int rank = schedule->plan->stages[stage].ranks[0], chunks = pd_schedule_chunks(schedule, rank), stages[chunks];
	int apart = 0, again = 0, evaluated = 0, pool = schedule->pool[stage];

	pd_schedule_stages(schedule, rank, stages);
	for (int c = 0; c < chunks; c++) {
		bool at_once = schedule->plan->stages[stages[c]].recompute && !schedule->splits;

		*(at_once ? &again : &apart) += pd_schedule_slots(schedule, stages[c], false);
		evaluated += pd_schedule_slots(schedule, stages[c], true);
	}
	apart += again > 0;
	if (pool == 0 || pool > apart)
		return apart;
	return pool > evaluated ? pool : evaluated;
}

static int64_t at_least(int64_t version, int64_t floor)
{
	return version > floor ? version : floor;
}

/*
 * Returns the versions that live after update u of stashing, with g microbatches to an update. 
 * They are the new one, and those that forwards from u g on read before the last backward of the
 * update.  The first e forwards are x ahead of the backwards, the others w.  Each of these two sets
 * reads consecutive versions; nobody reads those in between.
 */
static int64_t live_after(int64_t u, int64_t g, int64_t e, int64_t x, int64_t w)
{
	int64_t first = u * g, last = first - 1 + x < e ? first - 1 + x : e - 1, live = 1, read = -1;

	if (first <= last) {
		read = at_least((last - x) / g, 0);
		live += read - at_least((first - x) / g, 0) + 1;
	}
	first = first > e ? first : e;
	last = u * g - 1 + w;
	if (first <= last)
		live += (last - w) / g - at_least((first - w) / g, read + 1) + 1;
	return live;
}

static int stashed_versions(const struct pd_schedule *schedule, int stage)
{
	int64_t r = schedule->plan->stages[stage].replicas, g = schedule->group[stage] / r;
	int64_t x = schedule->startup[stage], w = schedule->warmup[stage];
	int64_t most = (w + g - 1) / g + 1;

	/* Some replicas have one more of the first microbatches than others. */
	for (int64_t e = schedule->admitted / r; x > w && e <= (schedule->admitted + r - 1) / r; e++)
		for (int64_t u = 1; (u - 1) * g <= e; u++)
			most = at_least(live_after(u, g, e, x, w), most);
	return (int)most;
}

int pd_schedule_versions(const struct pd_schedule *schedule, int stage)
{
	const struct pd_plan *plan = schedule->plan;
	bool minibatches = pd_schedule_has(plan->schedule, PD_FACT_MINIBATCHES);
	bool tags = pd_weights_have(plan->weights, PD_WEIGHTS_TAGS);
	int64_t group = schedule->group[stage], r = plan->stages[stage].replicas, lead, first;

	if (!pd_weights_have(plan->weights, PD_WEIGHTS_STASHES))
		return pd_weights_have(plan->weights, PD_WEIGHTS_BEHIND) ? 2 : 1;
	if (minibatches)
		return plan->stages[tags ? 0 : stage].warmup + 1;
	if (!tags)
		return stashed_versions(schedule, stage);
	first = plan->stages[0].replicas;
	lead = schedule->warmup[0] * first;
	/*
	 * If replicas differ and a group is one microbatch of each, the tag grows in longer
	 * steps than the stage's versions, or lies between them.
	 */
	if (schedule->group[0] != group)
		lead += first - pd_gcd(first, r);
	return (int)((lead + group - 1) / group) + 1;
}

int64_t pd_schedule_delay(const struct pd_schedule *schedule, int stage)
{
	const struct pd_stage *at = &schedule->plan->stages[stage];
	int64_t group = schedule->group[stage];

	if (pd_schedule_has(schedule->plan->schedule, PD_FACT_MINIBATCHES))     /* warm-ups count these here */
		return at->warmup;
	return ((int64_t)schedule->warmup[stage] * at->replicas + group - 1) / group;
}

/* With 2BW the forward of n reads the version before that of its group, which is there if fewer are in flight than G. */
bool pd_schedule_defers(const struct pd_schedule *schedule, int stage)
{
	const struct pd_plan *plan = schedule->plan;
	int64_t r = plan->stages[stage].replicas;

	return pd_weights_have(plan->weights, PD_WEIGHTS_BEHIND) && schedule->pattern->defer &&
	       !schedule->agrees && r > 1 &&
	       schedule->warmup[stage] * r < schedule->group[stage] &&
	       schedule->startup[stage] * r < schedule->group[stage];
}

bool pd_schedule_sums_serially(const struct pd_schedule *schedule, int stage)
{
	return (!schedule->agrees || schedule->delay[stage] == 0) && schedule->buckets[stage] == 1 &&
	       !pd_schedule_defers(schedule, stage);
}

int pd_schedule_stages(const struct pd_schedule *schedule, int rank, int *stages)
{
	for (int c = 0; c < schedule->ranks[rank].count; c++)
		stages[c] = schedule->rank_stages[schedule->ranks[rank].first + c];
	return schedule->ranks[rank].replica;
}

static void set_ranks(struct pd_schedule *schedule)
{
	const struct pd_plan *plan = schedule->plan;
	int first = 0;

	schedule->ranks = pd_calloc((size_t)plan->rank_count, sizeof(*schedule->ranks));
	for (int s = 0; s < plan->stage_count; s++)
		for (int r = 0; r < plan->stages[s].replicas; r++)
			schedule->ranks[plan->stages[s].ranks[r]].count++;
	for (int k = 0; k < plan->rank_count; k++) {
		schedule->ranks[k].first = first;
		first += schedule->ranks[k].count;
		schedule->ranks[k].count = 0;
	}
	schedule->rank_stages = pd_calloc((size_t)first, sizeof(int));
	for (int s = 0; s < plan->stage_count; s++)
		for (int r = 0; r < plan->stages[s].replicas; r++) {
			int k = plan->stages[s].ranks[r];

			schedule->rank_stages[schedule->ranks[k].first + schedule->ranks[k].count++] = s;
			schedule->ranks[k].replica = r;
		}
}

int pd_schedule_inboxes(const struct pd_schedule *schedule, int stage, bool evaluate)
{
	return pd_schedule_in_flight(schedule, stage, evaluate) + 1;
}

int pd_schedule_outboxes(const struct pd_schedule *schedule, int stage)
{
	return schedule->outboxes[stage];
}

bool pd_schedule_reads(const struct pd_schedule *schedule, int stage, int64_t at, int64_t floor,
		       int64_t version)
{
	bool skips = pd_weights_stash_alone(schedule->plan->weights) &&
		     schedule->startup[stage] != schedule->warmup[stage];
	int64_t read = at_least(pd_tick_version(schedule, stage, at, false), floor);

	for (int64_t n = at; skips && read < version; n++)
		read = at_least(pd_tick_version(schedule, stage, n, false), floor);
	return skips ? read == version : read <= version;
}

int64_t pd_schedule_next_base(const struct pd_schedule *schedule, const struct pd_phase *phase)
{
	int64_t end = phase->last - phase->first + phase->into, most = 0;

	for (int s = 0; s < schedule->stage_count; s++) {
		int64_t group = schedule->group[s];
		int64_t u = (end + group - 1) / group;
		int64_t time = phase->evaluate ? pd_tick_of_forward(schedule, true, s, end)
					       : pd_tick_of_allreduce(schedule, s, u);

		most = time > most ? time : most;
	}
	return phase->base + schedule->origin + (most + 16) * schedule->scale;
}

/* Checks that all groups fit: they take as long as a few, times their number. */
int pd_schedule_fits(const struct pd_schedule *schedule, int64_t microbatches,
		     struct pd_error *err)
{
	struct pd_phase few = { .last = schedule->admitted };
	int64_t more;

	for (int s = 0; s < schedule->stage_count; s++)
		few.last = at_least(few.last, schedule->group[s]);
	more = -pd_schedule_next_base(schedule, &few);
	few.last *= 2;
	more += pd_schedule_next_base(schedule, &few);
	if ((double)microbatches / (double)few.last * 2 * (double)more < 0x1p62)
		return 0;
	return pd_error_input(err, "%s: %" PRId64 " microbatches on %d stages: the numbers of "
			      "their operations would not fit in 63 bits; expected fewer",
			      pd_plan_name(schedule->plan), microbatches, schedule->stage_count);
}

/* Returns what makes every key positive: no operation is earlier than this. */
static int64_t origin(const struct pd_schedule *schedule)
{
	int64_t least = 0;

	for (int s = 0; s < schedule->stage_count; s++) {
		int64_t r = schedule->plan->stages[s].replicas;
		int64_t times[] = { pd_tick_of_forward(schedule, false, s, 0),
				    pd_tick_of_inbox(schedule, false, s, 0),
				    pd_tick_of_inbox(schedule, true, s, 0) };

		for (size_t i = 0; i < PD_COUNT(times); i++)
			least = times[i] - r < least ? times[i] - r : least;
	}
	return -least * schedule->scale;
}

/* Makes a schedule that knows where stages are, but no order; takes the wiring. */
static struct pd_schedule *placed(const struct pd_plan *plan, struct pd_wiring *wiring)
{
	struct pd_schedule *schedule = pd_zalloc(sizeof(*schedule));
	size_t n = (size_t)plan->stage_count;

	schedule->plan = plan;
	schedule->stage_count = plan->stage_count;
	set_ranks(schedule);
	schedule->group = pd_calloc(n, sizeof(*schedule->group));
	schedule->buckets = pd_calloc(n, sizeof(*schedule->buckets));
	for (int s = 0; s < plan->stage_count; s++)
		schedule->buckets[s] = pd_plan_bucket_count(plan, s);
	schedule->warmup = pd_calloc(n, sizeof(*schedule->warmup));
	schedule->startup = pd_calloc(n, sizeof(*schedule->startup));
	schedule->backwards_behind = pd_calloc(n, sizeof(*schedule->backwards_behind));
	schedule->forwards_behind = pd_calloc(n, sizeof(*schedule->forwards_behind));
	schedule->slots = pd_calloc(n, sizeof(*schedule->slots));
	schedule->kept = pd_calloc(n, sizeof(*schedule->kept));
	schedule->outboxes = pd_calloc(n, sizeof(*schedule->outboxes));
	schedule->pool = pd_calloc(n, sizeof(*schedule->pool));
	schedule->evaluation_slots = pd_calloc(n, sizeof(*schedule->evaluation_slots));
	schedule->evaluation_leads = pd_calloc(n, sizeof(*schedule->evaluation_leads));
	schedule->evaluation_lingers = pd_calloc(n, sizeof(*schedule->evaluation_lingers));
	schedule->delay = pd_calloc(n, sizeof(*schedule->delay));
	schedule->leaving = pd_calloc(n, sizeof(*schedule->leaving));
	schedule->wiring = wiring;
	return schedule;
}

struct pd_schedule *pd_schedule_of_lists(const struct pd_plan *plan)
{
	struct pd_schedule *schedule = placed(plan, pd_wiring_new(plan));

	schedule->drains = true;
	schedule->agrees = pd_plan_agrees(plan);
	for (int s = 0; s < plan->stage_count; s++)
		schedule->group[s] = pd_plan_group(plan, s);
	for (int k = 0; k < plan->rank_count; k++)
		if (schedule->ranks[k].count > schedule->chunks)
			schedule->chunks = schedule->ranks[k].count;
	return schedule;
}

/* Tells whether schedules of the same stages have the same warm-ups, and so the same ticks. */
static bool are_ticks_alike(const struct pd_schedule *a, const struct pd_schedule *b)
{
	size_t bytes = (size_t)a->stage_count * sizeof(int);

	return memcmp(a->warmup, b->warmup, bytes) == 0 && memcmp(a->startup, b->startup, bytes) == 0;
}

struct pd_schedule *pd_schedule_again(struct pd_schedule *before, const struct pd_plan *plan,
				      struct pd_error *err)
{
	struct pd_schedule *schedule = placed(plan, before ? before->wiring : pd_wiring_new(plan));

	if (before)
		before->wiring = NULL;
	if (before && before->table && before->table->made) {
		schedule->table = before->table;
		before->table = NULL;
	}
	if (pd_shape_set(schedule, err) < 0) {
		pd_schedule_free(before);
		pd_schedule_free(schedule);
		return NULL;
	}
	if (before && are_ticks_alike(before, schedule)) {
		memcpy(schedule->leaving, before->leaving, (size_t)plan->stage_count * sizeof(int));
		memcpy(schedule->outboxes, before->outboxes, (size_t)plan->stage_count * sizeof(int));
	}
	pd_schedule_free(before);
	pd_count_outboxes(schedule);
	pd_evaluation_shape(schedule);
	schedule->scale = pd_schedule_scale(plan, schedule->wiring);
	schedule->origin = origin(schedule);
	return schedule;
}

struct pd_schedule *pd_schedule_new(const struct pd_plan *plan, struct pd_error *err)
{
	return pd_schedule_again(NULL, plan, err);
}

void pd_schedule_free(struct pd_schedule *schedule)
{
	if (!schedule)
		return;
	pd_wiring_free(schedule->wiring);
	pd_slot_table_free(schedule->table);
	free(schedule->ranks);
	free(schedule->rank_stages);
	free(schedule->group);
	free(schedule->buckets);
	free(schedule->warmup);
	free(schedule->startup);
	free(schedule->backwards_behind);
	free(schedule->forwards_behind);
	free(schedule->slots);
	free(schedule->kept);
	free(schedule->outboxes);
	free(schedule->leaving);
	free(schedule->pool);
	free(schedule->evaluation_slots);
	free(schedule->evaluation_leads);
	free(schedule->evaluation_lingers);
	free(schedule->delay);
	free(schedule);
}

/* Returns the size of a sum of squares for each layer, and of the loss scale. */
int64_t pd_schedule_norm_bytes(const struct pd_plan *plan)
{
	return ((int64_t)plan->profile->layer_count + 1) * (int64_t)sizeof(double);
}

int pd_schedule_norm_rounds(const struct pd_plan *plan)
{
	int rounds = 0;

	while (INT64_C(1) << rounds < plan->rank_count)
		rounds++;
	return rounds;
}

/*
 * Links come first, then stages.  The parts of a backward and the sums of their buckets take turns at
 * one tick (tick.c), apart for each stage.
 */
int64_t pd_schedule_scale(const struct pd_plan *plan, const struct pd_wiring *wiring)
{
	int64_t scale = 2 * (int64_t)wiring->link_count + plan->stage_count, most = 1;

	for (int s = 0; s < plan->stage_count && plan->bucket_bytes > 0; s++) {
		int count = pd_plan_bucket_count(plan, s);

		most = count > most ? count : most;
	}
	return most > 1 && 2 * most * plan->stage_count > scale ? 2 * most * plan->stage_count
								: scale;
}

int64_t pd_schedule_unit(const struct pd_schedule *schedule)
{
	int64_t unit = 1;

	for (int s = 0; s < schedule->stage_count; s++)
		unit = pd_lcm(unit, schedule->group[s], INT64_C(1) << 40);
	return unit ? unit : INT64_MAX;         /* no phase has such a microbatch */
}

const char *pd_op_short(const struct pd_op *op, char *buf)
{
	int used = snprintf(buf, 40, "%d%c%" PRId64, op->stage, pd_op_kind_letter[op->kind],
			    op->microbatch);

	if (op->bucket > 0)
		snprintf(buf + used, (size_t)(40 - used), ".%d", op->bucket);
	return buf;
}
