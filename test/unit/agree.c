/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests what the parts of an agree (lib/engine/worker/global_norm.c, tied_weights.c) wait for, in virtual time,
 * of which each part takes some.  Gradients are complete before they are squared or sent to other copies,
 * a copy's sum is computed after the copies have arrived, the vector is sent when this rank's part is in
 * it or the vector received before was united with it, and it is changed only after it was sent.
 */
#include "document.h"
#include "engine/device/submit.h"
#include "table.h"
#include "tap.h"
#include "virtual_run.h"

#include "base/json.h"
#include "base/mem.h"
#include "engine/device/sim/engine.h"
#include "engine/reduce/reduce.h"
#include "engine/transport/sim/sim.h"

#include <stdlib.h>
#include <string.h>

#define MICROBATCHES 24
#define PLACES 20                       /* bits of a tag below the operation's number */
#define TIED 32                         /* the first place of gradients of shared parameters */
#define MOST 4096

enum kind { GRADIENTS, SQUARES, UNITE, SUM, SEND, RECV, TIED_SEND, TIED_RECV };
static const char *const names[] = {
	"gradients", "squares", "unite", "sum of copies", "send", "receive", "send of a copy",
	"receive of a copy",
};

/* A part of an agree, or the work that computes its gradients. */
static struct work {
	enum kind kind;
	int rank, group, round;
	int64_t start_ns, end_ns, duration_ns;
	const struct pd_event *done;            /* the event of a transfer in progress */
	struct pd_stream *stream;
	struct pd_event behind;                 /* ends when the stream has done the work */
} works[MOST];
static int count;
static bool short_queue;

/* The numbers of parts that each rank has begun so far. */
static struct { int squares, unites, transfers; uint64_t number; } begun[MOST_RANKS];

/* The order of parts of the same rank and group: `then`, `later` rounds after `first`, waits for it. */
static const struct { enum kind first, then; int later; } rules[] = {
	{ GRADIENTS, SQUARES, 0 }, { GRADIENTS, TIED_SEND, 0 }, { TIED_RECV, SUM, 0 },
	{ TIED_SEND, SUM, 0 }, { SQUARES, SEND, 0 }, { RECV, UNITE, 0 }, { SEND, UNITE, 0 },
	{ UNITE, SEND, 1 },
};
static int held[PD_COUNT(rules)];

static struct work *new_work(enum kind kind, int rank, int group, int round)
{
	if (count == MOST)
		pd_bug("too much work");
	works[count] = (struct work){ .kind = kind, .rank = rank, .group = group, .round = round };
	return &works[count++];
}

static int rank_of(const struct pd_stream *stream)
{
	return ((const struct pd_sim_device *)stream->device)->rank;
}

/* Queues work that takes that long on the stream, since table.h's profiles know no time for sums. */
static int take(struct work *work, struct pd_stream *stream, int64_t ns, struct pd_event *ev)
{
	work->stream = stream;
	work->duration_ns = ns;
	pd_event_arm(&work->behind);
	return pd_device_sim.stream.submit(stream, (const struct pd_work[]){
		{ .kind = PD_WORK_SUM, .ev = ev, .sum = { .n = 2, .count = (size_t)ns } },
		{ .kind = PD_WORK_COPY, .ev = &work->behind },
	}, 2);
}

/* Tells whether the stream's queue is full; with short_queue it has room for one piece of work. */
static bool full(const struct pd_stream *stream)
{
	for (int i = 0; i < count && short_queue; i++)
		if (works[i].stream == stream && !pd_event_done(&works[i].behind))
			return true;
	return false;
}

/* Notes squares, what is united, and sums, which are of copies if the stream also squares. */
static int submit(struct pd_stream *stream, const struct pd_work *given, int n)
{
	int rank = rank_of(stream);
	bool sums = given->kind == PD_WORK_SUM && given->sum.n > 0;

	if (given->kind != PD_WORK_SQUARES && given->kind != PD_WORK_UNITE && !sums)
		return pd_device_sim.stream.submit(stream, given, n);
	if (sums)
		return take(new_work(SUM, rank, begun[rank].squares, 0), stream, 30, given->ev);
	if (full(stream))
		return PD_AGAIN;
	if (given->kind == PD_WORK_UNITE)
		return take(new_work(UNITE, rank, begun[rank].squares - 1, begun[rank].unites++), stream, 20,
			    given->ev);
	begun[rank].squares += given->squares.clear;
	begun[rank].unites = 0;
	return take(new_work(SQUARES, rank, begun[rank].squares - 1, 0), stream, 50, given->ev);
}

static void note_transfer(struct pd_transport *t, uint64_t tag, bool sends,
			  const struct pd_event *done)
{
	uint64_t number = tag >> PLACES, place = tag & ((1 << PLACES) - 1);
	int rank = virtual_rank_of(t);

	if (!(tag >> 47 & 1) || place >= PD_REDUCTION_TAGS)
		return;
	begun[rank].transfers += begun[rank].number != number;
	begun[rank].number = number;
	new_work(place >= TIED ? sends ? TIED_SEND : TIED_RECV : sends ? SEND : RECV, rank,
		 begun[rank].transfers - 1, place >= TIED ? 0 : (int)place)->done = done;
}

static int send(struct pd_transport *t, int peer, uint64_t tag, const void *buf, size_t bytes,
		const struct pd_event *after, struct pd_event *done)
{
	note_transfer(t, tag, true, done);
	return pd_transport_sim.send(t, peer, tag, buf, bytes, after, done);
}

static int receive(struct pd_transport *t, int peer, uint64_t tag, void *buf, size_t bytes,
		   const struct pd_event *after, struct pd_event *done)
{
	note_transfer(t, tag, false, done);
	return pd_transport_sim.recv(t, peer, tag, buf, bytes, after, done);
}

static void note_ends(void)
{
	for (int i = 0; i < count; i++) {
		struct work *work = &works[i];

		if (!work->done || !pd_event_done(work->done))
			continue;
		work->start_ns = work->done->start_ns;
		work->end_ns = work->done->end_ns;
		work->done = NULL;
	}
}

/* Completes the times, adds the work that computes gradients, and ignores sums that are not of copies. */
static void complete_works(const struct pd_schedule *schedule, const struct virtual_run *run)
{
	struct pd_stream *agrees[MOST_RANKS] = { NULL };

	for (int i = 0; i < count; i++)
		if (works[i].kind == SQUARES)
			agrees[works[i].rank] = works[i].stream;
	for (int i = 0; i < count; i++) {
		if (works[i].stream) {
			works[i].end_ns = works[i].behind.end_ns;
			works[i].start_ns = works[i].end_ns - works[i].duration_ns;
		}
		if (works[i].kind == SUM && works[i].stream != agrees[works[i].rank])
			works[i].rank = -1;
	}
	for (const struct pd_record *r = run->records; r < run->records + run->count; r++)
		if (r->op.kind == PD_OP_backward || r->op.kind == PD_OP_allreduce) {
			struct work *work = new_work(GRADIENTS, r->op.rank, (int)(r->op.microbatch /
						     schedule->group[r->op.stage]), 0);

			work->start_ns = r->start_ns;
			work->end_ns = r->end_ns;
		}
}

/* Returns how often a rule is broken. */
static int early(size_t rule)
{
	int wrong = 0;

	for (const struct work *a = works; a < works + count; a++)
		for (const struct work *b = works; b < works + count; b++) {
			if (a->kind != rules[rule].first || b->kind != rules[rule].then ||
			    a->rank < 0 || a->rank != b->rank || a->group != b->group ||
			    b->round - a->round != rules[rule].later)
				continue;
			held[rule]++;
			if (a->end_ns > b->start_ns && wrong++ == 0)
				diag("rank %d, group %d: %s begins at %d, %s ends at %d", b->rank,
				     b->group, names[b->kind], (int)b->start_ns, names[a->kind],
				     (int)a->end_ns);
		}
	return wrong;
}

/*
 * Returns how often a sum of gradients is on the stream between two parts of an agree, where other
 * ranks may have them in another order.
 */
static int between(int rounds)
{
	int left[MOST_RANKS] = { 0 }, wrong = 0;        /* parts of the agree that are still to come */

	for (const struct work *a = works; a < works + count; a++) {
		if (a->kind == SQUARES)
			left[a->rank] = rounds;
		else if (a->kind == UNITE)
			left[a->rank]--;
		wrong += a->kind == SUM && a->rank >= 0 && left[a->rank] > 0;
	}
	return wrong;
}

/* Tests a plan, and frees it. */
static void test_plan(const char *what, struct pd_plan *plan, enum pd_weight_kind weights)
{
	const struct pd_phase phase = { .last = MICROBATCHES };
	struct pd_device_ops device = pd_device_sim;
	struct pd_transport_ops transport = pd_transport_sim;
	const struct virtual_hooks hooks = { &device, &transport, note_ends };
	struct pd_schedule *schedule;
	struct virtual_run run;
	int wrong = 0;

	device.stream.submit = submit;
	transport.send = send;
	transport.recv = receive;
	use(plan, PD_SCHEDULE_1F1B, weights, 4);
	plan->agree = true;
	plan->profile->sum_bytes_per_s = INT64_C(4000000000);
	plan->topology.level[0].latency_ns = 60;
	schedule = pd_schedule_new(plan, NULL);
	count = 0;
	memset(begun, 0, sizeof(begun));
	run = virtual_run(plan, &hooks, NULL, &phase);
	complete_works(schedule, &run);
	for (size_t rule = 0; rule < PD_COUNT(rules); rule++)
		wrong += early(rule);
	is_int(wrong, 0, "%s: none of %d parts begins early", what, count);
	is_int(between(pd_schedule_norm_rounds(plan)), 0, "%s: no sum is between two of them", what);
	free(run.records);
	pd_schedule_free(schedule);
	pd_plan_free(plan);
}

#define COST "'forward_ns': 20, 'backward_ns': 40, 'activation_bytes': 90, 'parameter_bytes': 400"

/* Returns a plan of three stages, of which the first and the last share parameters. */
static struct pd_plan *tied_plan(void)
{
	json_t *value = document_parse("{'format': 'pd-profile', 'version': 1, 'name': 'p', 'model': "
		"{'format': 'pd-model', 'version': 1, 'name': 'm', 'inputs': [{'name': 'x', "
		"'dtype': 'f32', 'shape': [4]}], 'layers': ["
		"{'name': 'a', 'kind': 'linear', 'inputs': ['x'], 'out_features': 4}, "
		"{'name': 'b', 'kind': 'relu', 'inputs': ['a']}, "
		"{'name': 'c', 'kind': 'linear', 'inputs': ['b'], 'out_features': 4, 'shares': "
		"'a'}]}, 'batch_size': 1, 'device': {'kind': 'cpu'}, 'layers': ["
		"{'name': 'a', 'inputs': ['x'], " COST "}, {'name': 'b', 'inputs': ['a'], " COST "}, "
		"{'name': 'c', 'inputs': ['b'], " COST "}]}", NULL);
	struct pd_place root = pd_place_root("p", value);
	struct pd_topology topology;
	struct pd_plan *plan;

	pd_topology_flat(4, 1000000000, 60, &topology, NULL);
	plan = pd_plan_new(pd_profile_parse_at(&root, NULL), &topology, 3, (int[]){ 1, 1, 1 },
			   (int[]){ 1, 1, 1 }, NULL);
	json_decref(value);
	return plan;
}

int main(void)
{
	test_plan("two stages", make_plan(chain, &plans[2], 2), PD_WEIGHTS_FLUSH);
	test_plan("four stages, 2bw", make_plan(chain, &plans[3], 4), PD_WEIGHTS_2BW);
	test_plan("eight stages", make_plan(skips, &plans[4], 8), PD_WEIGHTS_FLUSH);
	test_plan("2-2", make_plan(chain, &plans[7], 2), PD_WEIGHTS_FLUSH);
	test_plan("shared parameters", tied_plan(), PD_WEIGHTS_FLUSH);
	test_plan("shared parameters, 2bw", tied_plan(), PD_WEIGHTS_2BW);
	short_queue = true;
	test_plan("2-2, 2bw, full queues", make_plan(chain, &plans[7], 2), PD_WEIGHTS_2BW);
	for (size_t r = 0; r < PD_COUNT(rules); r++)
		ok(held[r] > 0, "%s waits for %s %d times", names[rules[r].then],
		   names[rules[r].first], held[r]);
	return done_testing();
}
