/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/buffer_counts.h"

#include "base/mem.h"
#include "plan/recompute.h"

#include <stdlib.h>

void pd_buffer_counts_of_stage(const struct pd_schedule *schedule, int stage,
			       struct pd_buffer_counts *out_p)
{
	*out_p = (struct pd_buffer_counts){
		.slots = pd_schedule_slots(schedule, stage, false),
		.pool = pd_schedule_pool(schedule, stage),
		.kept = pd_plan_reruns_some(schedule->plan, stage) ? pd_schedule_in_flight(schedule, stage, false) : 0,
		.inboxes = pd_schedule_inboxes(schedule, stage, false),
		.arriving = PD_PASSAGES, .leaving = pd_schedule_leaving(schedule, stage),
		.outboxes = pd_schedule_outboxes(schedule, stage),
		.versions = pd_schedule_versions(schedule, stage),
	};
}

static int64_t least_multiple(int64_t a, int64_t b)
{
	int64_t x = a, y = b;

	while (y > 0) {
		int64_t rest = x % y;

		x = y;
		y = rest;
	}
	return a / x * b;
}

int64_t pd_buffer_counts_turns(const struct pd_buffer_counts *c)
{
	int64_t passages = least_multiple(c->arriving, c->leaving), kept = c->kept > 0 ? c->kept : 1;

	/* what has been free for longest may be any, in a list, or where stages share slots */
	if (c->buffers || c->pool != c->slots)
		return (int64_t)c->pool * kept * c->inboxes * passages * c->versions;
	return least_multiple(least_multiple(least_multiple(c->slots, kept), c->inboxes), passages) * c->versions;
}

/* Buffers of one kind.  The ring has the free ones, those free for longest first. */
struct stock {
	int32_t *free;
	size_t capacity;
	int made, first, count;
};

static void put_back(struct stock *stock, int32_t number)
{
	stock->free[(stock->first + stock->count++) % stock->made] = number;
}

/* Returns a free buffer, or a new one. */
static int32_t take_buffer(struct stock *stock)
{
	int32_t number;

	if (stock->count == 0) {
		stock->made++;
		stock->free = pd_grow(stock->free, &stock->capacity, (size_t)stock->made,
				      sizeof(*stock->free));
		stock->first = 0;
		return stock->made - 1;
	}
	number = stock->free[stock->first];
	stock->first = (stock->first + 1) % stock->made;
	stock->count--;
	return number;
}

/* Starts with the least number of buffers that there must be. */
static void stock_init(struct stock *stock, int least)
{
	*stock = (struct stock){ .made = least };
	stock->free = pd_grow(NULL, &stock->capacity, (size_t)least, sizeof(*stock->free));
	for (int i = 0; i < least; i++)
		put_back(stock, i);
}

/* Buffers of which it does not matter here who has which. */
struct in_use {
	int now, most;
};

static void use(struct in_use *in_use, int by)
{
	in_use->now += by;
	if (in_use->now > in_use->most)
		in_use->most = in_use->now;
}

/* Versions of the weights that are live, as pd_weights counts them, and the readers of each. */
struct versions {
	struct { int64_t number; int readers; } *live;
	size_t count, capacity;
	int most;
};

static void read_version(struct versions *versions, int64_t number, int by)
{
	for (size_t v = 0; v < versions->count; v++)
		if (versions->live[v].number == number)
			versions->live[v].readers += by;
}

/*
 * Does what pd_weights_step does: frees versions that nobody reads or will read, also the one
 * before.
 */
static void step(struct versions *versions, int64_t number, int64_t keep)
{
	size_t n = 0;

	for (size_t v = 0; v < versions->count; v++)
		if (versions->live[v].readers > 0 || versions->live[v].number >= keep)
			versions->live[n++] = versions->live[v];
	versions->live = pd_grow(versions->live, &versions->capacity, n + 1,
				 sizeof(*versions->live));
	versions->live[n].number = number;
	versions->live[n].readers = 0;
	versions->count = n + 1;
	if ((int)versions->count > versions->most)
		versions->most = (int)versions->count;
}

/* A stage of the rank while its list is walked. */
struct walk {
	const struct pd_schedule *schedule;
	int stage, ins;                 /* ins: gradients that leave after each backward */
	int outs;                       /* activations that leave after each forward */
	bool recompute, keeps;          /* keeps: some layers are not computed again */
	int64_t replicas;
	struct pd_buffer_counts *counts;
	struct in_use slots, *pool;     /* the pool is the rank's */
	struct stock inboxes, kept, outboxes, arriving, leaving;
	struct versions versions;
	int *to_send;                   /* per microbatch: gradients not yet sent */
	int *to_leave;                  /* per microbatch: activations not yet sent */
};

static void walk_init(struct walk *w, const struct pd_schedule *schedule, int64_t microbatches,
		      int stage, bool evaluates, struct in_use *pool, struct pd_buffer_counts *counts)
{
	int64_t replicas = schedule->plan->stages[stage].replicas;
	size_t most = (size_t)((microbatches + replicas - 1) / replicas);

	*counts = (struct pd_buffer_counts){ .buffers = pd_calloc(most, sizeof(*counts->buffers)),
					     .loads = pd_calloc(most, sizeof(*counts->loads)) };
	for (size_t i = 0; i < most; i++)
		counts->buffers[i] = (struct pd_buffers){ -1, -1, -1, -1, -1 };
	*w = (struct walk){ .schedule = schedule, .stage = stage, .replicas = replicas, .pool = pool,
			    .ins = schedule->wiring->in_count[stage], .counts = counts,
			    .outs = schedule->wiring->out_count[stage],
			    .recompute = schedule->plan->stages[stage].recompute,
			    .keeps = pd_plan_reruns_some(schedule->plan, stage),
			    .to_send = pd_calloc(most, sizeof(int)),
			    .to_leave = pd_calloc(most, sizeof(int)) };
	stock_init(&w->inboxes, evaluates ? pd_schedule_inboxes(schedule, stage, true) : 1);
	w->slots.most = evaluates ? pd_schedule_slots(schedule, stage, true) : 1;
	pool->most += w->slots.most;
	stock_init(&w->kept, w->keeps);
	stock_init(&w->outboxes, evaluates ? pd_schedule_outboxes(schedule, stage) : 0);
	stock_init(&w->arriving, PD_PASSAGES);
	stock_init(&w->leaving, PD_PASSAGES);
	step(&w->versions, 0, 0);       /* training begins with this version */
}

static void walk_end(struct walk *w)
{
	w->counts->inboxes = w->inboxes.made;
	w->counts->slots = w->slots.most;
	w->counts->pool = w->pool->most;
	w->counts->kept = w->kept.made;
	w->counts->outboxes = w->outboxes.made;
	w->counts->arriving = w->arriving.made;
	w->counts->leaving = w->leaving.made;
	w->counts->versions = w->versions.most;
	free(w->inboxes.free);
	free(w->kept.free);
	free(w->outboxes.free);
	free(w->arriving.free);
	free(w->leaving.free);
	free(w->versions.live);
	free(w->to_send);
	free(w->to_leave);
}

static void take_once(struct stock *stock, int32_t *mine)
{
	if (*mine < 0)
		*mine = take_buffer(stock);
}

static void use_slots(struct walk *w, int by)
{
	use(&w->slots, by);
	use(w->pool, by);
}

/*
 * Enters a backward: gradients that arrived are used, to the end of its last part, and others leave,
 * which are made from the first part on.
 */
static void back(struct walk *w, struct pd_buffers *mine, const struct pd_op *op, int64_t i)
{
	if (mine->arriving >= 0 && !op->more)
		put_back(&w->arriving, mine->arriving);
	if (op->bucket > 1)
		return;
	w->to_send[i] = w->ins;
	if (w->ins > 0)
		mine->leaving = take_buffer(&w->leaving);
}

/*
 * Enters a forward.  With recomputation it only works in a slot; its outputs go into an outbox.
 */
static void forth(struct walk *w, struct pd_buffers *mine, int64_t i)
{
	use_slots(w, 1);
	if (!w->recompute)
		return;
	use_slots(w, -1);
	if (w->keeps)
		take_once(&w->kept, &mine->kept);
	w->to_leave[i] = w->outs;
	if (w->outs > 0)
		mine->outbox = take_buffer(&w->outboxes);
}

/* Ends a microbatch, of which only gradients on their way are still needed. */
static void end(struct walk *w, const struct pd_buffers *mine, const struct pd_op *op)
{
	if (op->more)
		return;
	put_back(&w->inboxes, mine->inbox);
	use_slots(w, -1);
	if (w->keeps)
		put_back(&w->kept, mine->kept);
	if (!pd_weights_have(w->schedule->plan->weights, PD_WEIGHTS_REREADS))
		read_version(&w->versions, op->version, -1);
}

static void follow(struct walk *w, const struct pd_op *op)
{
	int64_t i = op->microbatch / w->replicas;
	struct pd_buffers *mine = &w->counts->buffers[i];

	switch (op->kind) {
	case PD_OP_load:
		w->counts->loads[w->counts->load_count++] = op->microbatch;
		/* fall through */
	case PD_OP_recv_activation:
		take_once(&w->inboxes, &mine->inbox);
		break;
	case PD_OP_forward:
		take_once(&w->inboxes, &mine->inbox);
		forth(w, mine, i);
		if (!pd_weights_have(w->schedule->plan->weights, PD_WEIGHTS_REREADS))
			read_version(&w->versions, op->version, 1);
		break;
	case PD_OP_send_activation:
		if (w->recompute && --w->to_leave[i] == 0)
			put_back(&w->outboxes, mine->outbox);
		break;
	case PD_OP_recompute:
		use_slots(w, 1);
		break;
	case PD_OP_recv_gradient:
		take_once(&w->arriving, &mine->arriving);
		break;
	case PD_OP_backward:
		back(w, mine, op, i);
		end(w, mine, op);
		break;
	case PD_OP_backward_input:
		back(w, mine, op, i);
		break;
	case PD_OP_backward_weight:
		end(w, mine, op);
		break;
	case PD_OP_send_gradient:
		if (--w->to_send[i] == 0)
			put_back(&w->leaving, mine->leaving);
		break;
	case PD_OP_step:
		step(&w->versions, op->version, op->keep);
		break;
	default:
		break;
	}
}

void pd_buffer_counts_of_list(const struct pd_schedule *schedule, const struct pd_lists *lists,
			      int rank, bool evaluates, struct pd_buffer_counts *buffer_counts)
{
	struct pd_phase phase = { .last = lists->microbatches };
	int chunks = pd_schedule_chunks(schedule, rank), stages[chunks];
	struct walk walks[chunks], *at;
	struct in_use pool = { 0 };
	struct pd_list_cursor cursor;
	struct pd_op op;

	pd_schedule_stages(schedule, rank, stages);
	for (int c = 0; c < chunks; c++)
		walk_init(&walks[c], schedule, lists->microbatches, stages[c], evaluates, &pool,
			  &buffer_counts[c]);
	pd_list_begin(&cursor, &lists->ranks[rank], &phase);
	while (pd_list_next(&cursor, &op)) {
		for (at = walks; at->stage != op.stage;)
			at++;
		follow(at, &op);
	}
	for (int c = 0; c < chunks; c++)
		walk_end(&walks[c]);
}

void pd_buffer_counts_release(struct pd_buffer_counts *buffer_counts, int count)
{
	for (int c = 0; c < count; c++) {
		free(buffer_counts[c].buffers);
		free(buffer_counts[c].loads);
		buffer_counts[c] = (struct pd_buffer_counts){ 0 };
	}
}
