/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1F1B-RR (SOSP 2019, section 3.2) as a closed form.
 *
 * Let S be the number of stages, r_s the replicas of stage s, w_s its warm-up, and
 * lead_s = w_s * r_s.  Minibatches count from 0 within a phase.  The ideal time line
 * gives every minibatch a span of 32 S ticks, in which it goes up through the stages and
 * comes down again, 16 ticks each; a stage's forwards run ahead of its backwards by
 * lead_s minibatches:
 *
 *     forward_s(b)    = (b - lead_s) span + 16 s + 4
 *     backward_s(b)   =  b           span + 16 (2S - 1 - s) + 8
 *     load_s(b)       = backward_s(b - lead_s - 2 r_s) + 1
 *     activation_l(b) = max(forward_s(b) + 2, backward_t(b - lead_t - 2 r_t) + 3)  l: s -> t
 *     gradient_l(b)   = backward_{s+1}(b) + 2                                     l: s -> t
 *     allreduce_s(u)  = backward_s((u + 1) r_s - 1) + 4                           group u
 *     step_s(u)       = backward_s((u + 1) r_s - 1) + 6
 *
 * w_s + 1 minibatches are in flight at a stage, and the inputs of the next one arrive
 * meanwhile: b - lead_s - 2 r_s is the minibatch whose inbox b takes over, and a transfer
 * is listed where its data exist and its inbox is free.  A gradient that skips stages is
 * listed as if it came from the next one: two buffers are enough.
 *
 * If lead is non-increasing in s (SOSP's warm-ups are: ceil(R/r) r - r >= R - r, the
 * ranks of all later stages, and less than R), every dependency points forward in time:
 *
 *     forward_s(b) < activation(b) < forward_t(b)         16 s + 6 < 16 t + 4 for s < t
 *     backward_t(b) < gradient(b) < backward_s(b)
 *     forward_s(b) < backward_s(b)                        16 s + 4 < 16 (2S - 1 - s) + 8
 *     backward of the group < allreduce < step
 *     step that writes the version that forward_s(b) reads < forward_s(b)
 *                                                         span + 16 s + 4 > backward + 6
 *     what frees an inbox or a buffer < what fills it
 *
 * A list is sorted by time, and an operation of several ranks has one time, so the graph
 * of all orders and dependencies has no cycle: no deadlock, even if transfers block.
 * Of the operations of one rank only transfers of several links can share a tick; they
 * are told apart by their link, so key = time * scale + link is unique and ascending.
 *
 * Evaluation goes up only: every lead is 0, and an inbox is free after the forward that
 * used it.
 */
#include "schedule/schedule.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVALUATION_SLOTS 2              /* or fewer, where the stage has fewer */

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

int pd_schedule_slots(const struct pd_schedule *schedule, int stage, bool evaluate)
{
	int slots = schedule->plan->stages[stage].warmup + 1;

	return evaluate && slots > EVALUATION_SLOTS ? EVALUATION_SLOTS : slots;
}

static int64_t forward_time(const struct pd_cursor *c, int s, int64_t b)
{
	int64_t lead = c->phase.evaluate ? 0 : c->schedule->lead[s];

	return (b - lead) * c->schedule->span + 16 * s + 4;
}

static int64_t backward_time(const struct pd_cursor *c, int s, int64_t b)
{
	return b * c->schedule->span + 16 * (2 * (int64_t)c->schedule->stage_count - 1 - s) + 8;
}

int pd_schedule_inboxes(const struct pd_schedule *schedule, int stage, bool evaluate)
{
	return pd_schedule_slots(schedule, stage, evaluate) + 1;
}

/* When the inbox that minibatch b will use at stage s is free. */
static int64_t inbox_time(const struct pd_cursor *c, int s, int64_t b)
{
	int64_t r = c->schedule->plan->stages[s].replicas;

	if (c->phase.evaluate)
		return forward_time(c, s, b - pd_schedule_inboxes(c->schedule, s, true) * r);
	return backward_time(c, s, b - c->schedule->lead[s] - 2 * r);
}

static int64_t op_time(const struct pd_cursor *c, const struct pd_cursor_stream *stream, int64_t n)
{
	const struct pd_link *link = stream->link < 0 ? NULL
						      : &c->schedule->wiring->links[stream->link];
	int64_t r = c->schedule->plan->stages[c->stage].replicas, ready, room;

	switch (stream->kind) {
	case PD_OP_load:
		return inbox_time(c, c->stage, n) + 1;
	case PD_OP_forward:
		return forward_time(c, c->stage, n);
	case PD_OP_recv_activation:
	case PD_OP_send_activation:
		ready = forward_time(c, link->from, n) + 2;
		room = inbox_time(c, link->to, n) + 3;
		return ready > room ? ready : room;
	case PD_OP_recv_gradient:
	case PD_OP_send_gradient:
		return backward_time(c, link->from + 1, n) + 2;
	case PD_OP_backward:
		return backward_time(c, c->stage, n);
	case PD_OP_allreduce:
		return backward_time(c, c->stage, (n + 1) * r - 1) + 4;
	case PD_OP_step:
		return backward_time(c, c->stage, (n + 1) * r - 1) + 6;
	default:
		pd_bug("schedule: no time for %s", pd_op_kind_name[stream->kind]);
	}
}

/* The same for both parties of a transfer and for all members of an all-reduce. */
static int64_t op_id(const struct pd_cursor *c, const struct pd_cursor_stream *stream)
{
	switch (stream->kind) {
	case PD_OP_recv_activation:
	case PD_OP_send_activation:
		return 2 * (int64_t)stream->link;
	case PD_OP_recv_gradient:
	case PD_OP_send_gradient:
		return 2 * (int64_t)stream->link + 1;
	case PD_OP_allreduce:
		return 2 * (int64_t)c->schedule->wiring->link_count + c->stage;
	default:
		return 0;
	}
}

static bool per_group(enum pd_op_kind kind)
{
	return kind == PD_OP_allreduce || kind == PD_OP_step;
}

static void set_key(struct pd_cursor *c, struct pd_cursor_stream *stream)
{
	int64_t r = c->schedule->plan->stages[c->stage].replicas;
	int64_t begin = per_group(stream->kind) ? stream->next * r : stream->next;

	stream->key = begin < c->phase.last - c->phase.first
		? op_time(c, stream, stream->next) * c->schedule->scale + op_id(c, stream)
		: INT64_MAX;
}

int64_t pd_schedule_next_base(const struct pd_schedule *schedule, const struct pd_phase *phase)
{
	int64_t most = 1;

	for (int s = 0; s < schedule->stage_count; s++)
		if (schedule->plan->stages[s].replicas > most)
			most = schedule->plan->stages[s].replicas;
	return phase->base + schedule->origin +
	       (phase->last - phase->first + most + 1) * schedule->span * schedule->scale;
}

static bool stage_loads(const struct pd_plan *plan, int s)
{
	const struct pd_model *model = plan->profile->model;
	const struct pd_stage *stage = &plan->stages[s];

	if (!model)
		return s == 0;
	for (int l = stage->first_layer; l < stage->first_layer + stage->layer_count; l++)
		for (int i = 0; i < model->layers[l].input_count; i++)
			if (model->layers[l].inputs[i] < model->input_count)
				return true;
	return false;
}

struct pd_schedule *pd_schedule_new(const struct pd_plan *plan, struct pd_error *err)
{
	struct pd_schedule *schedule;

	if (plan->schedule != PD_SCHEDULE_1F1B || plan->weights != PD_WEIGHTS_STASH ||
	    plan->microbatches != 1) {
		pd_error_input(err, "plan: schedule \"%s\" with weights \"%s\" and %" PRId64
			       " microbatches cannot be run by this version; it knows \"1f1b\" with"
			       " \"stash\" and 1", pd_schedule_kind_name[plan->schedule],
			       pd_weight_kind_name[plan->weights], plan->microbatches);
		return NULL;
	}
	schedule = pd_zalloc(sizeof(*schedule));
	schedule->plan = plan;
	schedule->stage_count = plan->stage_count;
	schedule->lead = pd_calloc((size_t)plan->stage_count, sizeof(*schedule->lead));
	schedule->loads = pd_calloc((size_t)plan->stage_count, sizeof(*schedule->loads));
	for (int s = 0; s < plan->stage_count; s++) {
		schedule->lead[s] = (int64_t)plan->stages[s].warmup * plan->stages[s].replicas;
		schedule->loads[s] = stage_loads(plan, s);
		if (s > 0 && schedule->lead[s] > schedule->lead[s - 1]) {
			pd_error_input(err, "plan: stages[%d].warmup: %d x %d replicas is more than the"
				       " %" PRId64 " minibatches that stage %d admits before its first"
				       " backward: the pipeline would deadlock", s,
				       plan->stages[s].warmup, plan->stages[s].replicas,
				       schedule->lead[s - 1], s - 1);
			pd_schedule_free(schedule);
			return NULL;
		}
	}
	schedule->wiring = pd_wiring_new(plan);
	schedule->span = 32 * (int64_t)plan->stage_count;
	schedule->scale = 2 * (int64_t)schedule->wiring->link_count + plan->stage_count;
	for (int s = 0; s < plan->stage_count; s++) {
		int64_t back = schedule->lead[s] + (EVALUATION_SLOTS + 1) * plan->stages[s].replicas + 1;

		if (back * schedule->span * schedule->scale > schedule->origin)
			schedule->origin = back * schedule->span * schedule->scale;
	}
	return schedule;
}

void pd_schedule_free(struct pd_schedule *schedule)
{
	if (!schedule)
		return;
	pd_wiring_free(schedule->wiring);
	free(schedule->lead);
	free(schedule->loads);
	free(schedule);
}

int64_t pd_schedule_unit(const struct pd_schedule *schedule)
{
	int64_t unit = 1;

	for (int s = 0; s < schedule->stage_count; s++) {
		int64_t a = unit, b = schedule->plan->stages[s].replicas, product;

		while (b) {
			int64_t rest = a % b;

			a = b;
			b = rest;
		}
		if (!pd_mul(unit / a, schedule->plan->stages[s].replicas, &product) ||
		    product > INT64_C(1) << 40)
			return INT64_MAX;       /* no such minibatch within a phase */
		unit = product;
	}
	return unit;
}

static void add_stream(struct pd_cursor *c, enum pd_op_kind kind, int link)
{
	struct pd_cursor_stream *stream = &c->streams[c->stream_count++];

	*stream = (struct pd_cursor_stream){ .kind = kind, .link = link,
					     .next = per_group(kind) ? 0 : c->replica };
	set_key(c, stream);
}

void pd_cursor_init(struct pd_cursor *c, const struct pd_schedule *schedule, int rank,
		    const struct pd_phase *phase, int64_t floor)
{
	const struct pd_wiring *wiring = schedule->wiring;
	int need;

	*c = (struct pd_cursor){ .schedule = schedule, .phase = *phase, .rank = rank,
				 .floor = floor, .highest = phase->first - 1 };
	c->stage = pd_plan_stage_of_rank(schedule->plan, rank, &c->replica);
	need = 5 + 2 * (wiring->in_count[c->stage] + wiring->out_count[c->stage]);
	c->streams = need <= PD_CURSOR_STREAMS ? c->few
					       : pd_calloc((size_t)need, sizeof(*c->streams));
	if (schedule->loads[c->stage])
		add_stream(c, PD_OP_load, -1);
	for (int i = 0; i < wiring->in_count[c->stage]; i++)
		add_stream(c, PD_OP_recv_activation, wiring->in[c->stage][i]);
	add_stream(c, PD_OP_forward, -1);
	for (int i = 0; i < wiring->out_count[c->stage]; i++)
		add_stream(c, PD_OP_send_activation, wiring->out[c->stage][i]);
	if (phase->evaluate)
		return;
	for (int i = 0; i < wiring->out_count[c->stage]; i++)
		add_stream(c, PD_OP_recv_gradient, wiring->out[c->stage][i]);
	add_stream(c, PD_OP_backward, -1);
	for (int i = 0; i < wiring->in_count[c->stage]; i++)
		add_stream(c, PD_OP_send_gradient, wiring->in[c->stage][i]);
	if (schedule->plan->stages[c->stage].replicas > 1)
		add_stream(c, PD_OP_allreduce, -1);
	add_stream(c, PD_OP_step, -1);
}

void pd_cursor_release(struct pd_cursor *c)
{
	if (c->streams != c->few)
		free(c->streams);
	c->streams = NULL;
	c->stream_count = 0;
}

/* The version that forward and backward of minibatch n (from 0) read. */
static int64_t version_read(const struct pd_cursor *c, int64_t n)
{
	const struct pd_stage *stage = &c->schedule->plan->stages[c->stage];
	int64_t version;

	if (c->phase.evaluate)
		return c->floor;
	version = c->phase.first + (n / stage->replicas - stage->warmup) * stage->replicas;
	return version > c->floor ? version : c->floor;
}

static int peer_of(const struct pd_cursor *c, const struct pd_cursor_stream *stream, int64_t n)
{
	const struct pd_link *link = &c->schedule->wiring->links[stream->link];
	bool up = stream->kind == PD_OP_recv_activation || stream->kind == PD_OP_send_gradient;
	const struct pd_stage *other = &c->schedule->plan->stages[up ? link->from : link->to];

	return other->ranks[n % other->replicas];
}

bool pd_cursor_next(struct pd_cursor *c, struct pd_op *op_p)
{
	struct pd_cursor_stream *stream = &c->streams[0];
	int64_t r = c->schedule->plan->stages[c->stage].replicas, n;

	for (int i = 1; i < c->stream_count; i++)
		if (c->streams[i].key < stream->key)
			stream = &c->streams[i];
	if (stream->key == INT64_MAX)
		return false;
	n = stream->next;
	*op_p = (struct pd_op){
		.kind = stream->kind, .evaluate = c->phase.evaluate,
		.rank = c->rank, .stage = c->stage, .peer = -1, .link = stream->link,
		.microbatch = c->phase.first + n, .version = -1, .seq = -1,
	};
	switch (stream->kind) {
	case PD_OP_forward:
	case PD_OP_backward:
		op_p->version = version_read(c, n);
		break;
	case PD_OP_allreduce:
	case PD_OP_step:
		op_p->microbatch = c->phase.first + n * r;
		op_p->version = c->phase.first + (n + 1) * r;
		if (op_p->version > c->phase.last)
			op_p->version = c->phase.last;
		if (stream->kind == PD_OP_allreduce)
			op_p->version = -1;
		break;
	default:
		break;
	}
	if (stream->link >= 0)
		op_p->peer = peer_of(c, stream, n);
	if (stream->link >= 0 || stream->kind == PD_OP_allreduce)
		op_p->seq = c->phase.base + c->schedule->origin + stream->key;
	if (op_p->microbatch > c->highest)
		c->highest = op_p->microbatch;
	stream->next += per_group(stream->kind) ? 1 : r;
	set_key(c, stream);
	return true;
}

void pd_cursor_limit(struct pd_cursor *c, int64_t last)
{
	if (last <= c->highest)
		pd_bug("schedule: minibatch %" PRId64 " has begun; cannot end at %" PRId64,
		       c->highest, last);
	c->phase.last = last;
	for (int i = 0; i < c->stream_count; i++)
		set_key(c, &c->streams[i]);
}

int64_t pd_cursor_highest(const struct pd_cursor *c)
{
	return c->highest;
}

const char *pd_op_short(const struct pd_op *op, char *buf)
{
	snprintf(buf, 32, "%d%c%" PRId64, op->stage, pd_op_kind_letter[op->kind], op->microbatch);
	return buf;
}
