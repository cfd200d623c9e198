/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/express.h"

#include "base/mem.h"
#include "plan/memory.h"
#include "planner/express_rank.h"

#include <stdlib.h>

#define MOST_RANKS 256
#define MOST_TENSORS 64         /* of a link */

static void mark_ready(struct express *x, struct lane *lane)
{
	int end = x->ready_first + x->ready_count;

	if (lane->is_ready)
		return;
	lane->is_ready = true;
	x->ready[end < x->plan->rank_count ? end : end - x->plan->rank_count] = lane->rank;
	x->ready_count++;
}

void pd_express_done(struct pd_express_clock *clock, const struct pd_told *told)
{
	struct express *x = (struct express *)clock;
	struct lane *lane = &x->lanes[told->rank];
	struct entry *entry = entry_of(lane, told->entry);
	struct waiter *waiter, *next, *kept = NULL;

	entry->missing &= ~(UINT64_C(1) << told->part);
	entry->end_ns = clock->now_ns;
	if (lane->awaited < 0 || (told->entry == lane->retired && told->part == lane->awaited))
		mark_ready(x, lane);
	waiter = entry->first;
	entry->first = entry->last = NULL;
	for (; waiter; waiter = next) {
		struct pd_doing *doing = waiter->doing;

		next = waiter->next;
		if (waiter->part != told->part) {
			waiter->next = NULL;
			if (kept)
				kept->next = waiter;
			else
				entry->first = waiter;
			entry->last = kept = waiter;
			continue;
		}
		waiter->next = x->unused;
		x->unused = waiter;
		pd_clock_let(clock, doing);
	}
}

static void retire(struct express *x, const struct lane *lane, const struct entry *entry)
{
	struct pd_record record = { .op = { .kind = PD_OP_backward, .stage = lane->stage,
					    .rank = lane->rank, .microbatch = entry->microbatch },
				    .end_ns = entry->end_ns };

	if (entry->kind == PD_OP_backward)
		x->options->retired(x->options->context, &record);
}

/* Once around lib/worker's step; did it do anything? */
static bool step(struct express *x, struct lane *lane)
{
	int64_t issued = lane->issued, retired = lane->retired;

	while (lane->retired < lane->issued && !entry_of(lane, lane->retired)->missing)
		retire(x, lane, entry_of(lane, lane->retired++));
	while (!x->lost && lane->issued - lane->retired < RING) {
		if (!lane->has_next && !lane->exhausted) {
			lane->has_next = pd_cursor_next(&lane->cursor, &lane->next);
			lane->exhausted = !lane->has_next;
		}
		if (!lane->has_next || !pd_express_issue(x, lane, &lane->next))
			break;
		lane->has_next = false;
	}
	return lane->issued > issued || lane->retired > retired;
}

static void drive(struct express *x, struct lane *lane)
{
	bool moved;

	if (lane->done)
		return;
	do {
		moved = step(x, lane);
		lane->awaited = -1;
		if (lane->retired < lane->issued && entry_of(lane, lane->retired)->missing)
			lane->awaited = __builtin_ctzll(entry_of(lane, lane->retired)->missing);
		lane->done = lane->exhausted && lane->retired == lane->issued;
	} while (moved && lane->awaited < 0 && !lane->done && !x->lost);
	x->live -= lane->done;
}

static struct mark *marks_new(struct express *x, int count)
{
	struct mark *marks = pd_arena_take(&x->arena, (size_t)count, sizeof(*marks));

	for (int i = 0; i < count; i++)
		marks[i] = (struct mark){ -1, -1 };
	return marks;
}

/* A device that has room for versions of weights, and nothing else. */
static void *no_alloc(struct pd_device *device, size_t bytes, struct pd_error *err)
{
	return device;
}

static void no_free(struct pd_device *device, void *ptr)
{
}

static const struct pd_device_ops no_ops = { .alloc = no_alloc, .free = no_free };
static struct pd_device no_device = { .ops = &no_ops };

static void lane_init(struct express *x, int rank)
{
	const struct pd_wiring *wiring = x->schedule->wiring;
	struct lane *lane = &x->lanes[rank];
	int s = x->schedule->ranks[rank].stage;
	const struct pd_room *room = &x->parts[s].room;
	const struct mark none = { -1, -1 };

	lane->stage = s;
	lane->rank = rank;
	lane->replica = x->schedule->ranks[rank].replica;
	lane->allreduce = lane->step = none;
	lane->hooks[0] = &lane->hook;
	lane->hooked = (struct pd_told){ .rank = -1, .list = lane->hooks, .count = 1 };
	for (int i = 0; i < SUMS; i++)
		lane->sums[i].summed = none;
	lane->entries = pd_arena_take(&x->arena, RING, sizeof(*lane->entries));
	lane->slots = pd_arena_take(&x->arena, (size_t)room->slots, sizeof(struct flight *));
	lane->flights = pd_arena_take(&x->arena, (size_t)room->inboxes, sizeof(*lane->flights));
	for (int i = 0; i < room->inboxes; i++)
		lane->flights[i] = (struct flight){
			marks_new(x, wiring->in_count[s]), marks_new(x, wiring->out_count[s]),
			none, none, none, NULL };
	lane->in = pd_arena_take(&x->arena, (size_t)room->arriving, sizeof(struct mark *));
	for (int i = 0; i < room->arriving; i++)
		lane->in[i] = marks_new(x, wiring->out_count[s]);
	lane->out = pd_arena_take(&x->arena, (size_t)room->leaving, sizeof(struct mark *));
	for (int i = 0; i < room->leaving; i++)
		lane->out[i] = marks_new(x, wiring->in_count[s]);
}

static bool part_init(struct express *x, int s)
{
	const struct pd_stage *stage = &x->plan->stages[s];
	struct part *part = &x->parts[s];

	for (int l = stage->first_layer; l < stage->first_layer + stage->layer_count; l++) {
		const struct pd_profile_layer *layer = &x->plan->profile->layers[l];
		const struct pd_model *model = x->plan->profile->model;

		part->forward_ns += layer->forward_ns;
		part->backward_ns += layer->backward_ns;
		part->update_ns += layer->update_ns;
		part->apart_ns += pd_profile_apart_ns(layer);
		if (!model || model->layers[l].shares < 0)
			part->bytes += (int64_t)pd_align((size_t)layer->parameter_bytes);
	}
	pd_room_of_stage(x->schedule, s, &part->room);
	part->sum_count = pd_plan_open_groups(x->plan, s);
	if (stage->replicas > 1)
		part->reduce = pd_reduce_new(&x->clock, x->plan, s, part->bytes);
	return part->sum_count <= SUMS && (stage->replicas == 1 || part->reduce);
}

/* Of what this file knows? */
static bool knows(const struct pd_plan *plan, const struct pd_schedule *schedule)
{
	if (plan->schedule != PD_SCHEDULE_1F1B || schedule->drains || schedule->chunks != 1 ||
	    schedule->splits || schedule->agrees || pd_plan_ties(plan) ||
	    plan->topology.processors > 0 || plan->rank_count > MOST_RANKS)
		return false;
	for (int s = 0; s < plan->stage_count; s++)
		if (plan->stages[s].recompute || schedule->group[s] != plan->stages[s].replicas)
			return false;
	for (int l = 0; l < schedule->wiring->link_count; l++)
		if (schedule->wiring->links[l].tensor_count > MOST_TENSORS)
			return false;
	return true;
}

static bool express_init(struct express *x)
{
	const struct pd_plan *plan = x->plan;
	const struct pd_wiring *wiring = x->schedule->wiring;
	size_t transfers = 0;
	bool known = true;
	struct pd_error err;

	pd_clock_init(&x->clock, &plan->topology, plan->rank_count);
	x->parts = pd_calloc((size_t)plan->stage_count, sizeof(*x->parts));
	x->lanes = pd_calloc((size_t)plan->rank_count, sizeof(*x->lanes));
	x->ready = pd_calloc((size_t)plan->rank_count, sizeof(*x->ready));
	x->transfers = pd_calloc((size_t)wiring->link_count * 2 * (size_t)wiring->tensors_most,
				 sizeof(struct pd_doing *));
	for (x->ring = 32; x->ring < 2 * pd_steady_in_flight(plan);)
		x->ring *= 2;
	for (int s = 0; s < plan->stage_count && known; s++) {
		known = part_init(x, s);
		transfers += x->parts[s].reduce ? pd_reduce_transfers(x->parts[s].reduce)
						: (size_t)x->ring;
	}
	pd_clock_expect(&x->clock, transfers);
	for (int r = 0; r < plan->rank_count && known; r++) {
		const struct part *part = &x->parts[x->schedule->ranks[r].stage];

		lane_init(x, r);
		if (part->apart_ns != part->update_ns && part->room.versions > 1 &&
		    plan->weights != PD_WEIGHTS_LATEST &&
		    pd_weights_init(&x->lanes[r].weights, &no_device, 0, part->room.versions, 0,
				    &err) < 0)
			return false;
	}
	return known;
}

static void express_release(struct express *x)
{
	for (int r = 0; r < x->plan->rank_count && x->lanes; r++) {
		if (x->lanes[r].cursor.schedule)
			pd_cursor_release(&x->lanes[r].cursor);
		pd_weights_release(&x->lanes[r].weights);
	}
	for (int s = 0; s < x->plan->stage_count && x->parts; s++)
		pd_reduce_free(x->parts[s].reduce);
	free(x->parts);
	free(x->lanes);
	free(x->ready);
	free(x->transfers);
	pd_arena_release(&x->arena);
	pd_clock_release(&x->clock);
}

/* False: it stalls, which the replay says better. */
static bool run(struct express *x)
{
	const struct pd_phase phase = { .last = x->options->minibatches };
	const bool *enough = x->options->enough;

	x->live = x->plan->rank_count;
	for (int r = 0; r < x->plan->rank_count; r++) {
		pd_cursor_init(&x->lanes[r].cursor, x->schedule, r, &phase, 0);
		drive(x, &x->lanes[r]);
	}
	while (x->live > 0 && !x->lost && !x->clock.lost && !(enough && *enough)) {
		if (!pd_clock_advance(&x->clock))
			return false;
		while (x->ready_count > 0) {
			struct lane *lane = &x->lanes[x->ready[x->ready_first]];

			if (++x->ready_first == x->plan->rank_count)
				x->ready_first = 0;
			x->ready_count--;
			lane->is_ready = false;
			drive(x, lane);
		}
	}
	return !x->lost && !x->clock.lost;
}

int pd_express_run(const struct pd_plan *plan, const struct pd_replay_options *options,
		   struct pd_error *err)
{
	struct express x = { .plan = plan, .options = options };
	bool known = false;

	x.schedule = pd_schedule_new(plan, err);
	if (!x.schedule)
		return -1;
	if (knows(plan, x.schedule)) {
		known = express_init(&x) && run(&x);
		express_release(&x);
	}
	pd_schedule_free(x.schedule);
	return known;
}
