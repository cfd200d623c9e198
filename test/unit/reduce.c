/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/dense_open.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/buffer_pieces.h"
#include "tap.h"
#include "unit/ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * A device of one stream, whose queue holds three pieces of work, done by fake_work().  Its memory is
 * that of the host; that the host does not touch it too early shows in the results.
 */
struct fake_stream {
	struct pd_stream base;
	struct pd_work queue[3];        /* waits and sums */
	int queued;
	struct pd_gate *gate;
};

struct fake_device {
	struct pd_device base;
	size_t bytes;
};

static void *fake_alloc(struct pd_device *device, size_t bytes, struct pd_error *err)
{
	((struct fake_device *)device)->bytes += bytes;
	return calloc(1, bytes);
}

static void fake_free(struct pd_device *device, void *ptr)
{
	free(ptr);
}

static int fake_submit(struct pd_stream *stream, const struct pd_work *works, int n)
{
	struct fake_stream *s = (struct fake_stream *)stream;

	if (s->queued == 3)
		return PD_AGAIN;
	s->queue[s->queued++] = works[0];
	return 0;
}

/* Does the first piece of work of the queue if it can be done now; returns whether it did. */
static bool fake_work(struct fake_stream *s)
{
	const struct pd_work *w = &s->queue[0];
	int64_t start_ns = pd_now_ns();

	if (s->queued == 0 || (w->kind == PD_WORK_WAIT && !pd_event_done(w->awaited)))
		return false;
	for (size_t i = 0; w->kind == PD_WORK_SUM && i < w->sum.count; i++) {
		float sum = w->sum.src[0][i];

		for (int k = 1; k < w->sum.n; k++)
			sum += w->sum.src[k][i];
		w->sum.dst[i] = sum;
	}
	if (w->ev)
		pd_event_complete(w->ev, start_ns, pd_now_ns(), s->gate);
	memmove(&s->queue[0], &s->queue[1], sizeof(s->queue[0]) * (size_t)--s->queued);
	return true;
}

static const struct pd_device_ops fake_ops = {
	.memory.alloc = fake_alloc, .memory.free = fake_free, .stream.submit = fake_submit,
};

/* Returns numbers whose sums depend on their order. */
static float value(int member, size_t i, int round)
{
	uint32_t x = (uint32_t)(i * 2654435761u) ^ (uint32_t)(member * 40503 + round * 977 + 1);

	x ^= x >> 15;
	x *= 0x2c1b3c6d;
	x ^= x >> 12;
	return ((float)(x & 0xffffff) - 8388608.0f) * (float)(1 << (x >> 24) % 24) * 0x1p-24f;
}

static bool is_sum(const float *buf, size_t floats, int n, int round)
{
	for (size_t i = 0; i < floats; i++) {
		float sum = value(0, i, round);

		for (int k = 1; k < n; k++)
			sum += value(k, i, round);
		if (memcmp(&sum, &buf[i], sizeof(sum)) != 0)
			return false;
	}
	return true;
}

static enum { DIRECT, CHAIN, GROUPS } kind;
static size_t lengths[] = {0, 1, 2, 3, 4, 15, 16, 17, 64, 79, 81, 1000, 100003, 1 << 18};

static struct pd_allreduce how(int n)
{
	return kind == DIRECT ? (struct pd_allreduce){ n, 1, 3 * n } : kind == CHAIN
		? (struct pd_allreduce){ n, n, n + n / 2 }
		: (struct pd_allreduce){ n, (n + 1) / 2, n < 3 ? n : 7 };
}

/* Sums once, and checks the sum and its times; stream is NULL if the device works by itself. */
static int reduce(struct rank *me, struct pd_reduction *c, struct fake_stream *stream,
		  float *buf, size_t floats, int index, int round)
{
	struct pd_event ready, done;
	int64_t ready_ns;
	int bad = 0;

	pd_event_arm(&ready);
	pd_event_arm(&done);
	/* The old contents of the buffer must not be sent. */
	memset(buf, 0xff, floats * sizeof(float));
	bad += c->ops->start(c, buf, 64 * (uint64_t)round, &ready, &done) != 0;
	usleep((unsigned)((index * 7 + round * 5) % 11) * 300);
	for (int i = 0; i < 3; i++) {
		bad += ranks_step(me, 0) < 0;
		if (stream)
			fake_work(stream);
	}
	for (size_t i = 0; i < floats; i++)
		buf[i] = value(index, i, round);
	ready_ns = pd_now_ns();
	pd_event_complete(&ready, ready_ns, ready_ns, &me->gate);
	while (!pd_event_done(&done)) {
		if (ranks_step(me, 1) < 0 || c->ops->progress(c, PD_REDUCTION_ALL) < 0)
			return 1;
		while (stream && fake_work(stream))
			continue;
	}
	bad += !rank_ok(me, is_sum(buf, floats, me->ranks, round), "the sum in member order");
	bad += !rank_ok(me, c->ops->started_ns(c) >= ready_ns &&
			c->ops->started_ns(c) <= done.end_ns, "times");
	return bad;
}

/* Sums many lengths among the ranks in reverse order, so that member and rank differ. */
static int all_reduce(struct rank *me)
{
	struct fake_device device = {.base.ops = &fake_ops};
	struct fake_stream stream = {.base.device = &device.base, .gate = &me->gate};
	int ranks[RANKS_MAX], index = me->ranks - 1 - me->rank, bad = 0;
	const struct pd_allreduce all = how(me->ranks);
	struct pd_error err;

	for (int i = 0; i < me->ranks; i++)
		ranks[i] = me->ranks - 1 - i;
	for (size_t l = 0; l < PD_COUNT(lengths); l++) {
		size_t floats = lengths[l], share = floats / (size_t)me->ranks + 3 * 32;
		float *buf = malloc((floats + 1) * sizeof(float));
		struct pd_reduction *c;

		device.bytes = 0;
		c = dense_open(&(struct pd_reduction_config){
			.transport = me->transport, .device = &device.base, .stream = &stream.base,
			.ranks = ranks, .me = index, .floats = floats }, &all, &err);
		bad += !rank_ok(me, device.bytes == c->ops->staging_bytes(c) &&
				(int64_t)device.bytes == pd_allreduce_staging_bytes(
					&all, (int64_t)(floats * sizeof(float)), PD_F32),
				"staging is what it says");
		bad += kind == DIRECT && !rank_ok(me, device.bytes <=
						  ((size_t)me->ranks - 1) * share * sizeof(float),
						  "n - 1 shares at most");
		buf[floats] = 42;
		for (int round = 0; round < 3; round++)
			bad += reduce(me, c, &stream, buf, floats, index, round);
		bad += !rank_ok(me, buf[floats] == 42, "nothing written behind it");
		c->ops->close(c);
		free(buf);
	}
	return bad;
}

/* Sums on a device with threads and a queue of its own. */
static int on_cpu(struct rank *me)
{
	const struct pd_device_ops *ops = &pd_device_cpu;
	struct pd_device_config config = {.threads = 1, .gate = &me->gate};
	const struct pd_allreduce all = how(me->ranks);
	int ranks[RANKS_MAX], bad = 0;
	size_t floats = 300001;
	struct pd_error err;
	struct pd_device *device = ops->open(&config, &err);
	struct pd_stream *stream = ops->stream.open(device, &err);
	float *buf = ops->memory.alloc(device, floats * sizeof(float), &err);
	struct pd_reduction *c;

	for (int i = 0; i < me->ranks; i++)
		ranks[i] = i;
	c = dense_open(&(struct pd_reduction_config){
			.transport = me->transport, .device = device, .stream = stream,
			.ranks = ranks, .me = me->rank, .floats = floats }, &all, &err);
	for (int round = 0; round < 5; round++)
		bad += reduce(me, c, NULL, buf, floats, me->rank, round);
	c->ops->close(c);
	ops->memory.free(device, buf);
	ops->stream.close(stream);
	ops->close(device);
	return bad;
}

#define SHARED_FLOATS 300001

/* Tells whether a sum went directly, which leaves the staging area of messages as it was. */
static bool is_direct(const float *staging, size_t bytes)
{
	for (size_t i = 0; i < bytes / sizeof(float); i++)
		if (staging[i] != 0.5f)
			return false;
	return true;
}

/*
 * The number of the buffer, of two that take turns, that other ranks cannot map at rank 1, so that its
 * sums go by messages at all ranks; -1: none.
 */
static int copied = -1;

static int in_shared_memory(struct rank *me)
{
	static const struct pd_topology topology = { .levels = 1, .level = { { .count = RANKS_MAX } } };
	const struct pd_device_ops *ops = &pd_device_cpu;
	struct pd_device_config device_config = { .threads = 1, .gate = &me->gate };
	struct pd_error err;
	struct pd_device *device = ops->open(&device_config, &err);
	struct pd_stream *stream = ops->stream.open(device, &err);
	size_t bytes = SHARED_FLOATS * sizeof(float);
	float *buf[2], *staging = ops->memory.alloc(device, bytes, &err);
	int ranks[RANKS_MAX], bad = 0, parts = pd_piece_parts(SHARED_FLOATS, me->ranks);
	bool direct;
	struct pd_reduction_config config = {
		.transport = me->transport, .device = device, .stream = stream, .topology = &topology,
		.ranks = ranks, .members = me->ranks, .me = me->rank, .floats = SHARED_FLOATS,
		.staging = staging,
	};
	struct pd_reduction *c;

	for (int i = 0; i < me->ranks; i++)
		ranks[i] = i;
	for (int i = 0; i < 2; i++)
		buf[i] = (i == copied && me->rank == 1 ? ops->memory.alloc : ops->memory.shared_alloc)(
			device, bytes, &err);
	c = pd_reduction_open(PD_REDUCER_dense, &config, &err);
	for (int round = 0; round < 8; round++) {
		for (size_t i = 0; i < c->ops->staging_bytes(c) / sizeof(float); i++)
			staging[i] = 0.5f;
		bad += reduce(me, c, NULL, buf[round % 2], SHARED_FLOATS, me->rank, round);
		direct = round / 2 > 1 && round % 2 != copied;
		bad += !rank_ok(me, is_direct(staging, c->ops->staging_bytes(c)) == direct,
				"directly from the third sum on");
		bad += !rank_ok(me, c->messages == 2 * (me->ranks - 1) * (direct ? 1 : parts),
				"messages, of a long share in parts");
		ranks_barrier(me);
	}
	c->ops->close(c);
	for (int i = 0; i < 2; i++)
		ops->memory.free(device, buf[i]);
	ops->memory.free(device, staging);
	ops->stream.close(stream);
	ops->close(device);
	return bad;
}

static void test_shared_memory(void)
{
	for (int n = 2; n <= 5; n++)
		is_int(run_ranks(n, in_shared_memory, NULL, -1), 0,
		       "%d members whose buffers all of them can map", n);
	copied = 1;
	is_int(run_ranks(3, in_shared_memory, NULL, -1), 0, "a rank's second buffer cannot be mapped");
}

#define ORDERED 4

/* A message that a member posts, which goes nowhere. */
struct posted {
	int peer;
	const struct pd_event *after, *done;
};

static struct posted posted[2 * ORDERED * (ORDERED - 1)];
static int posted_count;

static int note_send(struct pd_transport *t, int peer, uint64_t tag, const void *buf, size_t bytes,
		     const struct pd_event *after, struct pd_event *done)
{
	posted[posted_count++] = (struct posted){ peer, after, done };
	return 0;
}

static int note_recv(struct pd_transport *t, int peer, uint64_t tag, void *buf, size_t bytes,
		     const struct pd_event *after, struct pd_event *done)
{
	return 0;
}

/* Tests to whom member 1 of ORDERED sends, in which order and when, if shares have ORDERED pieces each. */
static void test_order(bool one_at_a_time)
{
	const struct pd_transport_ops ops = {
		.one_at_a_time = one_at_a_time, .send = note_send, .recv = note_recv,
	};
	struct pd_transport transport = { &ops };
	struct pd_event done = { 0 };
	int ranks[ORDERED], others = ORDERED - 1, wrong = 0, early = 0;
	struct pd_error err;
	struct fake_device device = { { &fake_ops }, 0 };
	struct fake_stream stream = { .base.device = &device.base, .queued = 3 };
	const struct pd_allreduce cut = { ORDERED, 1, ORDERED * ORDERED };
	struct pd_reduction *c = dense_open(&(struct pd_reduction_config){
		.transport = &transport, .device = &device.base, .stream = &stream.base, .ranks = ranks,
		.members = ORDERED, .me = 1, .floats = 1000 }, &cut, &err);
	float buf[1000];

	for (int i = 0; i < ORDERED; i++)
		ranks[i] = i;
	posted_count = 0;
	pd_event_arm(&done);
	is_int(c->ops->start(c, buf, 0, NULL, &done), 0, "begins");
	is_int(c->messages, 2 * ORDERED * others, "a part and a sum of each piece, to each");
	for (int i = 0; i < (one_at_a_time ? others : ORDERED * others); i++) {
		int behind = one_at_a_time ? 1 : 2 * others + 1;

		wrong += posted[i].peer != (2 + i % others) % ORDERED;
		early += posted[i].after != (i < behind ? NULL : posted[i - behind].done);
	}
	is_int(wrong, 0, one_at_a_time ? "where a link has one transfer at a time a share goes at once"
				       : "where transfers share links each cut goes to all members");
	is_int(early, 0, one_at_a_time ? "one share after the other" : "and two cuts are under way");
	c->ops->close(c);
}

static void everything(void)
{
	const char *name = kind == DIRECT ? "" : kind == CHAIN ? ", chained" : ", in groups";
	size_t longest = lengths[PD_COUNT(lengths) - 1];

	for (int n = 1; n <= 5; n += test_quick() ? 2 : 1)
		is_int(run_ranks(n, all_reduce, NULL, -1), 0, "%d members, up to 262144 floats%s",
		       n, name);
	lengths[PD_COUNT(lengths) - 1] = 1;     /* less work for many processes */
	if (kind == DIRECT || !test_quick())
		is_int(run_ranks(18, all_reduce, NULL, -1), 0,
		       "18 members: more than one sum takes%s", name);
	is_int(run_ranks(3, on_cpu, NULL, -1), 0, "3 members with the device of processors%s", name);
	ranks_staged = true;
	is_int(run_ranks(3, all_reduce, NULL, -1), 0, "3 members, their transfers staged%s", name);
	is_int(run_ranks(3, on_cpu, NULL, -1), 0, "the same, with the device of processors%s", name);
	ranks_staged = false;
	lengths[PD_COUNT(lengths) - 1] = longest;
}

int main(void)
{
	bool differs = false;

	for (size_t i = 0; i < 1000 && !differs; i++)
		differs = (value(0, i, 0) + value(1, i, 0)) + value(2, i, 0) !=
			  (value(2, i, 0) + value(1, i, 0)) + value(0, i, 0);
	ok(differs, "the numbers of this test feel the order of their sum");
	for (kind = DIRECT; kind <= GROUPS; kind++)
		everything();
	test_shared_memory();
	test_order(false);
	test_order(true);
	return done_testing();
}
