/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/cursor.h"

#include "base/mem.h"
#include "plan/sparse.h"
#include "schedule/tick.h"

#include <inttypes.h>
#include <stdlib.h>

/* Returns the microbatch from which a phase counts. */
static int64_t began(const struct pd_phase *phase)
{
	return phase->first - phase->into;
}

static int64_t op_time(const struct pd_cursor *c, const struct pd_cursor_stream *stream, int64_t n)
{
	const struct pd_schedule *schedule = c->schedule;
	const struct pd_link *link = stream->link < 0 ? NULL
						      : &schedule->wiring->links[stream->link];
	bool evaluate = c->phase.evaluate;

	switch (stream->kind) {
	case PD_OP_load:
		return pd_tick_of_inbox(schedule, evaluate, stream->stage, n) + (evaluate ? 3 : 1);
	case PD_OP_forward:
		return pd_tick_of_forward(schedule, evaluate, stream->stage, n);
	case PD_OP_recv_activation:
	case PD_OP_send_activation:
		return pd_tick_of_activation(schedule, evaluate, link->from, link->to, n);
	case PD_OP_recv_gradient:
	case PD_OP_send_gradient:
		return pd_tick_of_gradient(schedule, link->from, n);
	case PD_OP_recompute:
		return pd_tick_of_recompute(schedule, stream->stage, n);
	case PD_OP_backward:
	case PD_OP_backward_input:
		return pd_tick_of_backward(schedule, stream->stage, n);
	case PD_OP_backward_weight:
		return pd_tick_of_backward_weight(schedule, stream->stage, n);
	case PD_OP_allreduce:
		return stream->bucket > 0 ? pd_tick_of_buckets(schedule, stream->stage, n)
					  : pd_tick_of_allreduce(schedule, stream->stage, n);
	case PD_OP_norms:
		return pd_tick_of_norms(schedule, stream->stage, n);
	case PD_OP_agree:
		return pd_tick_of_agree(schedule, n);
	case PD_OP_step:
		return pd_tick_of_step(schedule, stream->stage, c->replica, n);
	default:
		pd_bug("schedule: no time for operation %d", (int)stream->kind);
	}
}

/*
 * Returns the place among the operations of a tick.  Both ranks of a transfer, and all members of an
 * all-reduce, compute the same one.
 */
static int64_t op_id(const struct pd_cursor *c, const struct pd_cursor_stream *stream)
{
	int64_t stages = c->schedule->stage_count;

	if (stream->bucket > 0)         /* a part of backward, the sum, the next part */
		return (2 * (stream->bucket - 1) + (stream->kind == PD_OP_allreduce)) * stages +
		       stream->stage;
	switch (stream->kind) {
	case PD_OP_recv_activation:
	case PD_OP_send_activation:
		return 2 * (int64_t)stream->link;
	case PD_OP_recv_gradient:
	case PD_OP_send_gradient:
		return 2 * (int64_t)stream->link + 1;
	case PD_OP_allreduce:
	case PD_OP_norms:
		return 2 * (int64_t)c->schedule->wiring->link_count + stream->stage;
	default:
		return 0;
	}
}

static bool per_group(enum pd_op_kind kind)
{
	return kind == PD_OP_allreduce || kind == PD_OP_norms || kind == PD_OP_agree ||
	       kind == PD_OP_step;
}

/*
 * Returns the first microbatch after n at which the stream's keys are not `pitch` apart any more.
 */
static int64_t even_until(const struct pd_cursor *c, const struct pd_cursor_stream *stream)
{
	const struct pd_schedule *schedule = c->schedule;
	bool evaluate = c->phase.evaluate;
	int64_t until = pd_ticks_even_until(schedule, evaluate, stream->next, 0), room;
	int s = stream->stage;

	if (stream->kind == PD_OP_recv_activation || stream->kind == PD_OP_send_activation)
		s = schedule->wiring->links[stream->link].to;
	else if (stream->kind != PD_OP_load)
		return until;
	room = pd_ticks_even_until(schedule, evaluate, stream->next,
				   (int64_t)pd_schedule_inboxes(schedule, s, evaluate) *
				   schedule->plan->stages[s].replicas);
	return room < until ? room : until;
}

static bool makes_gradients(const struct pd_cursor *c, enum pd_op_kind kind)
{
	return kind == (c->schedule->splits ? PD_OP_backward_weight : PD_OP_backward);
}

/* Tells whether a stream's next microbatch is the replica's last of a group whose sum has buckets. */
static bool is_in_parts(const struct pd_cursor *c, const struct pd_cursor_stream *stream)
{
	int64_t group = c->schedule->group[stream->stage];
	int64_t end = (stream->next / group + 1) * group;

	if (c->schedule->buckets[stream->stage] == 1)
		return false;
	if (end > c->phase.last - began(&c->phase))
		end = c->phase.last - began(&c->phase);
	return stream->next + stream->stride >= end;
}

/* Returns the first bucket of a stream's next operation: 0, if it is about all of them. */
static int first_bucket(const struct pd_cursor *c, const struct pd_cursor_stream *stream)
{
	if (stream->kind == PD_OP_allreduce)
		return c->schedule->buckets[stream->stage] > 1;
	return makes_gradients(c, stream->kind) && is_in_parts(c, stream);
}

/* Tells whether backward of a stream's next microbatch is one operation, where others come in two parts. */
static bool is_whole(const struct pd_cursor *c, const struct pd_cursor_stream *stream)
{
	return c->schedule->splits && pd_tick_whole(c->schedule, stream->stage, stream->next) &&
	       !is_in_parts(c, stream);
}

/* Has a stream of weights' gradients leave out microbatches whose backwards are whole. */
static void skip_whole(const struct pd_cursor *c, struct pd_cursor_stream *stream)
{
	while (stream->kind == PD_OP_backward_weight && stream->next < c->phase.last - began(&c->phase) &&
	       is_whole(c, stream))
		stream->next += stream->stride;
}

/* Sets the key of a stream's next operation, and how the keys behind it follow. */
static void set_key(struct pd_cursor *c, int i)
{
	struct pd_cursor_stream *stream = &c->streams[i];
	int64_t group = c->schedule->group[stream->stage];
	int64_t begin = per_group(stream->kind) ? stream->next * group : stream->next;

	stream->until = 0;
	if (begin >= c->phase.last - began(&c->phase)) {
		c->keys[i] = INT64_MAX;
		return;
	}
	c->keys[i] = op_time(c, stream, stream->next) * c->schedule->scale + op_id(c, stream);
	if (per_group(stream->kind))
		return;
	if (c->pitch > 0)
		stream->until = even_until(c, stream);
	if (stream->until > c->phase.last - began(&c->phase))
		stream->until = c->phase.last - began(&c->phase);
}

/* Returns the stage at the other end of a transfer. */
static const struct pd_stage *other_stage(const struct pd_cursor *c,
					  const struct pd_cursor_stream *stream)
{
	const struct pd_link *link = &c->schedule->wiring->links[stream->link];
	bool up = stream->kind == PD_OP_recv_activation || stream->kind == PD_OP_send_gradient;

	return &c->schedule->plan->stages[up ? link->from : link->to];
}

static void add_stream(struct pd_cursor *c, int stage, enum pd_op_kind kind, int link)
{
	struct pd_cursor_stream *stream = &c->streams[c->stream_count++];

	*stream = (struct pd_cursor_stream){
			.kind = kind, .stage = stage, .link = link,
			.next = c->phase.into + c->replica, .peer = -1,
			.stride = c->schedule->plan->stages[stage].replicas };

	if (per_group(kind)) {
		stream->next = c->phase.into / c->schedule->group[stage];
		stream->stride = 1;
	}
	if (link >= 0 && other_stage(c, stream)->replicas == 1)
		stream->peer = other_stage(c, stream)->ranks[0];
	skip_whole(c, stream);
	stream->bucket = first_bucket(c, stream);
	set_key(c, c->stream_count - 1);
}

static void add_stage(struct pd_cursor *c, int s)
{
	const struct pd_schedule *schedule = c->schedule;
	const struct pd_wiring *wiring = schedule->wiring;

	if (wiring->loads[s])
		add_stream(c, s, PD_OP_load, -1);
	for (int i = 0; i < wiring->in_count[s]; i++)
		add_stream(c, s, PD_OP_recv_activation, wiring->in[s][i]);
	add_stream(c, s, PD_OP_forward, -1);
	for (int i = 0; i < wiring->out_count[s]; i++)
		add_stream(c, s, PD_OP_send_activation, wiring->out[s][i]);
	if (c->phase.evaluate)
		return;
	for (int i = 0; i < wiring->out_count[s]; i++)
		add_stream(c, s, PD_OP_recv_gradient, wiring->out[s][i]);
	if (schedule->plan->stages[s].recompute)
		add_stream(c, s, PD_OP_recompute, -1);
	add_stream(c, s, schedule->splits ? PD_OP_backward_input : PD_OP_backward, -1);
	for (int i = 0; i < wiring->in_count[s]; i++)
		add_stream(c, s, PD_OP_send_gradient, wiring->in[s][i]);
	if (schedule->splits)
		add_stream(c, s, PD_OP_backward_weight, -1);
	if (schedule->plan->stages[s].replicas > 1)
		add_stream(c, s, PD_OP_allreduce, -1);
	if (pd_plan_is_sparse(schedule->plan, s))
		add_stream(c, s, PD_OP_norms, -1);
	add_stream(c, s, PD_OP_step, -1);
}

/* Returns how many streams add_stage adds, at most. */
static int streams_of_stage(const struct pd_schedule *schedule, int s)
{
	const struct pd_stage *stage = &schedule->plan->stages[s];
	const struct pd_wiring *wiring = schedule->wiring;

	return 3 + wiring->loads[s] + 2 * (wiring->in_count[s] + wiring->out_count[s]) +
	       stage->recompute + schedule->splits + (stage->replicas > 1) +
	       pd_plan_is_sparse(schedule->plan, s);
}

void pd_cursor_init(struct pd_cursor *c, const struct pd_schedule *schedule, int rank,
		    const struct pd_phase *phase, int64_t floor)
{
	int count = pd_schedule_chunks(schedule, rank), stages[count], need = schedule->agrees;

	*c = (struct pd_cursor){ .schedule = schedule, .phase = *phase, .rank = rank,
				 .floor = floor, .highest = phase->first - 1 };
	c->replica = pd_schedule_stages(schedule, rank, stages);
	c->pitch = pd_ticks_per_microbatch(schedule, phase->evaluate) * schedule->scale;
	for (int i = 0; i < count; i++)
		need += streams_of_stage(schedule, stages[i]);
	c->streams = c->few;
	c->keys = c->few_keys;
	if (need > PD_CURSOR_STREAMS) {
		c->streams = pd_calloc((size_t)need, sizeof(*c->streams));
		c->keys = pd_calloc((size_t)need, sizeof(*c->keys));
	}
	for (int i = 0; i < count; i++)
		add_stage(c, stages[i]);
	if (schedule->agrees && !phase->evaluate)
		add_stream(c, stages[0], PD_OP_agree, -1);
}

void pd_cursor_release(struct pd_cursor *c)
{
	if (c->streams != c->few) {
		free(c->streams);
		free(c->keys);
	}
	c->streams = NULL;
	c->stream_count = 0;
}

/* Returns the version that forward or backward of microbatch n (from 0) reads. */
static int64_t version_read(const struct pd_cursor *c, int stage, int64_t n, bool backward)
{
	int64_t version;

	if (c->phase.evaluate)
		return c->floor;
	version = began(&c->phase) + pd_tick_version(c->schedule, stage, n, backward);
	return version > c->floor ? version : c->floor;
}

/* Returns the version that the update of group u writes. */
static int64_t version_written(const struct pd_cursor *c, int stage, int64_t u)
{
	int64_t version = began(&c->phase) + (u + 1) * c->schedule->group[stage];

	return version < c->phase.last ? version : c->phase.last;
}

/* Returns the oldest version that a later forward will read, or the newest. */
static int64_t version_kept(const struct pd_cursor *c, int stage, int64_t newest)
{
	for (int i = 0; i < c->stream_count; i++) {
		const struct pd_cursor_stream *stream = &c->streams[i];
		int64_t version;

		if (stream->stage != stage || stream->kind != PD_OP_forward ||
		    c->keys[i] == INT64_MAX ||
		    pd_weights_have(c->schedule->plan->weights, PD_WEIGHTS_REREADS))
			continue;
		version = version_read(c, stage, stream->next, false);
		return version < newest ? version : newest;
	}
	return newest;
}

static int peer_of(const struct pd_cursor *c, const struct pd_cursor_stream *stream, int64_t n)
{
	const struct pd_stage *other = other_stage(c, stream);

	return other->ranks[n % other->replicas];
}

/* Returns the stream with the lowest key, which comes next; of equal keys the first. */
static int first_stream(const struct pd_cursor *c)
{
	const int64_t *keys = c->keys;
	int least = 0;

	for (int i = 1; i < c->stream_count; i++)
		least = keys[i] < keys[least] ? i : least;
	return least;
}

static void advance(struct pd_cursor *c, int i)
{
	struct pd_cursor_stream *stream = &c->streams[i];
	bool even = stream->next + stream->stride < stream->until && stream->bucket == 0;

	if (stream->bucket > 0 && stream->bucket < c->schedule->buckets[stream->stage]) {
		stream->bucket++;
	} else {
		stream->next += stream->stride;
		skip_whole(c, stream);
		stream->bucket = c->schedule->buckets[stream->stage] > 1 ? first_bucket(c, stream)
									 : 0;
		even &= stream->bucket == 0;
	}
	if (even)
		c->keys[i] += c->pitch * stream->stride;
	else
		set_key(c, i);
}

bool pd_cursor_next(struct pd_cursor *c, struct pd_op *op_p)
{
	int i = first_stream(c);
	const struct pd_cursor_stream *stream = &c->streams[i];
	int64_t key = c->keys[i], n = stream->next;

	if (key == INT64_MAX)
		return false;
	*op_p = (struct pd_op){
		.kind = stream->kind, .evaluate = c->phase.evaluate,
		.rank = c->rank, .stage = stream->stage, .peer = -1, .link = stream->link,
		.microbatch = began(&c->phase) + n, .version = -1, .keep = -1, .seq = -1,
		.bucket = (int16_t)stream->bucket,
		.more = stream->bucket > 0 &&
			stream->bucket < c->schedule->buckets[stream->stage],
	};
	op_p->beside = op_p->kind == PD_OP_forward && !c->phase.evaluate &&
		       pd_tick_beside(c->schedule, stream->stage, n);
	if (op_p->kind == PD_OP_backward_input && is_whole(c, stream))
		op_p->kind = PD_OP_backward;
	switch (op_p->kind) {
	case PD_OP_forward:
	case PD_OP_recompute:
	case PD_OP_backward:
	case PD_OP_backward_input:
	case PD_OP_backward_weight:
		op_p->version = version_read(c, stream->stage, n, op_p->kind != PD_OP_forward);
		break;
	case PD_OP_step:
		op_p->version = version_written(c, stream->stage, n);
		op_p->keep = version_kept(c, stream->stage, op_p->version);
		/* fall through */
	case PD_OP_allreduce:
	case PD_OP_norms:
	case PD_OP_agree:
		op_p->microbatch = began(&c->phase) + n * c->schedule->group[stream->stage];
		break;
	default:
		break;
	}
	if (stream->link >= 0)
		op_p->peer = stream->peer >= 0 ? stream->peer : peer_of(c, stream, n);
	if (stream->link >= 0 || pd_op_of_all(stream->kind))
		op_p->seq = c->phase.base + c->schedule->origin + key;
	if (op_p->microbatch > c->highest)
		c->highest = op_p->microbatch;
	advance(c, i);
	return true;
}

void pd_cursor_limit(struct pd_cursor *c, int64_t last)
{
	if (last <= c->highest)
		pd_bug("schedule: microbatch %" PRId64 " has begun; cannot end at %" PRId64,
		       c->highest, last);
	c->phase.last = last;
	for (int i = 0; i < c->stream_count; i++) {
		if (c->streams[i].bucket <= 1)
			c->streams[i].bucket = first_bucket(c, &c->streams[i]);
		set_key(c, i);
	}
}

int64_t pd_cursor_oldest(const struct pd_cursor *c, int stage, int64_t at)
{
	int64_t version;

	if (pd_weights_have(c->schedule->plan->weights, PD_WEIGHTS_REREADS))
		return at;
	version = version_read(c, stage, at - began(&c->phase), false);
	return version < at ? version : at;
}

bool pd_cursor_reads(const struct pd_cursor *c, int stage, int64_t at, int64_t version)
{
	int64_t start = began(&c->phase);

	return pd_schedule_reads(c->schedule, stage, at - start, c->floor - start,
				 version - start);
}

int64_t pd_cursor_highest(const struct pd_cursor *c)
{
	return c->highest;
}
