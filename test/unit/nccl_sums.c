/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of sums of replicas that NCCL computes. */
#include "nccl_ranks.h"

#include "base/clock.h"
#include "base/mem.h"
#include "engine/reduce/reduce.h"
#include "nccl.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LARGEST ((size_t)5000011)        /* floats of a bucket that is never summed here */

static const size_t sum_floats[SUMS] = { 10007, 64, 3000 };

static struct pd_reduction *open_sum_of(struct rank *me, size_t floats, float *room, struct pd_error *err)
{
	static const int ranks[MOST] = { 0, 1, 2, 3 };

	return pd_reduction_open(PD_REDUCER_nccl, &(struct pd_reduction_config){
		.transport = me->transport, .device = me->device, .stream = me->reduce,
		.ranks = ranks, .members = me->world->n, .me = me->number,
		.floats = floats, .room = room }, err);
}

static struct pd_reduction *open_sum(struct rank *me, int k, struct pd_error *err)
{
	return open_sum_of(me, sum_floats[k], NULL, err);
}

void open_sums(struct rank *me)
{
	me->reduce = me->ops.stream.open(me->device, &me->err);
	for (int k = 0; k < SUMS; k++) {
		me->sums[k] = open_sum(me, k, &me->err);
		me->bufs[k] = pd_calloc(sum_floats[k], sizeof(float));
		expect(me, me->sums[k] && !me->sums[k]->polls, "a sum is opened, which is not a script");
	}
	me->room = pd_calloc(LARGEST, sizeof(float));
	for (size_t floats = LARGEST; floats > 0; floats /= 2) {
		struct pd_reduction *r = open_sum_of(me, floats, me->room, &me->err);

		expect(me, r != NULL, "a large sum is opened");
		r->ops->close(r);
	}
}

void close_sums(struct rank *me)
{
	me->ops.stream.close(me->reduce);
	for (int k = 0; k < SUMS; k++) {
		me->sums[k]->ops->close(me->sums[k]);
		free(me->bufs[k]);
	}
	free(me->room);
	pd_reduction_queue_release(&me->queue);
}

/* Returns whole numbers, whose sums are exact in any order. */
static float whole(int rank, int k, int round, size_t i)
{
	return (float)((rank + 1) * (int)(i % 97) + 1000 * k + round);
}

static void start_sum(struct rank *me, int k, bool more)
{
	struct pd_reduction *r = me->sums[k];

	for (size_t i = 0; i < sum_floats[k]; i++)
		me->bufs[k][i] = -1;    /* must not be summed */
	pd_event_arm(&me->ready[k]);
	pd_event_arm(&me->done[k]);
	expect(me, r->ops->start(r, me->bufs[k], 0, &me->ready[k], &me->done[k]) == 0 &&
	       pd_reduction_queue_add(&me->queue, r, more) == 0, "begun");
}

static void make_ready(struct rank *me, int k, int round)
{
	for (size_t i = 0; i < sum_floats[k]; i++)
		me->bufs[k][i] = whole(me->number, k, round, i);
	pd_event_complete(&me->ready[k], 1, 2, &me->gate);
}

/* Moves transfers and sums; returns -1 if the transport is broken. */
static int sum_step(struct rank *me)
{
	return step(me, me->transport) < 0 ||
	       pd_reduction_queue_progress(&me->queue) < 0 ? -1 : 0;
}

static bool sum_is_right(const struct rank *me, int k, int round)
{
	for (size_t i = 0; i < sum_floats[k]; i++) {
		float right = 0;

		for (int r = 0; r < me->world->n; r++)
			right += whole(r, k, round, i);
		if (me->bufs[k][i] != right)
			return false;
	}
	return true;
}

/* Sums buckets that become ready in another order at some ranks; sums begin in the same order at all. */
void own_sums(struct rank *me)
{
	struct pd_reduction *again = open_sum(me, 0, &me->err);

	expect(me, again != NULL, "another sum of the same ranks, when they are connected");
	again->ops->close(again);
	expect(me, double_nccl_largest_sum() == LARGEST, "the largest sum was tried while they connected");
	for (int round = 0; round < 3; round++) {
		for (int k = 0; k < SUMS; k++)
			start_sum(me, k, k + 1 < SUMS);
		for (int i = 0; i < 3; i++)
			sum_step(me);
		for (int k = 0; k < SUMS; k++) {
			int other = me->number % 2 ? SUMS - 1 - k : k;

			expect(me, !pd_event_done(&me->done[other]), "it waits");
			make_ready(me, other, round);
		}
		for (int k = 0; k < SUMS; k++) {
			while (!pd_event_done(&me->done[k]) && sum_step(me) >= 0)
				;
			expect(me, pd_event_done(&me->done[k]) && sum_is_right(me, k, round), "a sum");
			expect(me, me->sums[k]->ops->started_ns(me->sums[k]) > 0, "its time");
		}
		expect(me, pd_reduction_queue_empty(&me->queue), "all is issued");
	}
}

static void sum_breaks(struct rank *me, const char *why)
{
	int64_t end_ns = pd_now_ns() + 60 * SECOND_NS;

	while (pd_now_ns() < end_ns && sum_step(me) >= 0)
		;
	expect(me, strstr(me->gate.err.text, why) != NULL, me->gate.err.text);
}

/* Begins another sum at rank 0 than at the others: the rank that begins last gets the error from that sum,
 * the others while they wait. */
static void other_sums(struct rank *me)
{
	int k = me->number == 0;

	start_sum(me, k, false);
	make_ready(me, k, 0);
	sum_breaks(me, me->number == 0 ? "with rank 1 and others: it does not fit"
				       : "with rank 0 and others: it does not fit");
	pthread_barrier_wait(&me->world->barrier);
}

/* Begins a sum with a rank 1 that never begins it, and is lost. */
static void lost_sum(struct rank *me)
{
	if (me->number == 0) {
		start_sum(me, 0, false);
		make_ready(me, 0, 0);
		for (int i = 0; i < 10; i++)
			sum_step(me);
	}
	pthread_barrier_wait(&me->world->barrier);
	if (me->number == 0) {
		double_nccl_lose_all();
		sum_breaks(me, "rank 0: lost rank 1: NCCL: remote process exited");
		expect(me, me->gate.err.cause == PD_CAUSE_PEER && me->gate.err.peer == 1, "by whom");
	}
	pthread_barrier_wait(&me->world->barrier);
}

/* Begins a sum at all ranks but one, which still wait when the transport is closed. */
static void left_sum(struct rank *me)
{
	if (me->number == 0)
		return;
	start_sum(me, 0, false);
	make_ready(me, 0, 0);
	for (int i = 0; i < 20; i++) {
		sum_step(me);
		usleep(2000);
	}
}

void test_own_sums(void)
{
	sums = true;
	for (int n = 2; n <= MOST; n++)
		is_int(run(n, "nccl", n, false, own_sums), 0, "NCCL's own all-reduce of %d ranks", n);
	is_int(run(3, NULL, 3, false, own_sums), 0, "with the transport left open");
	is_int(run(3, "nccl", 3, false, other_sums), 0, "sums in different orders are found");
	is_int(run(2, "nccl", 2, false, lost_sum), 0, "a rank lost in a sum is told");
	is_int(run(3, "nccl", 3, false, left_sum), 0, "closed while some wait for others' sums");
	refusal = "the plan's reducer \"nccl\" needs NCCL between replicas: ranks ";
	is_int(run(3, NULL, 2, false, own_sums), 0, "two share a GPU: refused");
	refusal = NULL;
	sums = false;
}

void test_no_own_sums(const char *how, bool on_device)
{
	struct pd_error err = { .text = "" };
	struct rank me = { .world = &world };
	struct pd_routes_config config = { .how = how, .ranks = 2, .seat = seat_of(0, 2),
					   .gate = &me.gate };

	world = (struct world){ .n = 2, .places = 2 };
	pd_gate_init(&me.gate, &err);
	open_device(&me);
	config.device = on_device ? me.device : NULL;
	me.transport = pd_routes_open(&config, &err);
	ok(!open_sum(&me, 0, &err), "no sum of NCCL's %s", on_device ? how : "on processors");
	is_str(err.text, "the plan's reducer \"nccl\" needs GPUs that NCCL joins: expected "
	       "--device=cuda and --transport=auto or nccl, or a plan with another --all-reduce",
	       "that is said");
	me.transport->ops->close(me.transport);
	pd_device_cpu.close(me.device);
	pd_gate_release(&me.gate);
}
