/* SPDX-License-Identifier: Apache-2.0 */
/*
 * all-reduce RANKS ROUNDS MIB...: times sums of so many MiB among the ranks of one host, by every
 * reducer but a transport's own, or by the one that the environment's REDUCER names.  Each rank has a processor of its own as
 * far as there are enough.  A line "REDUCER MIB MS" gives the median over the rounds of the time after
 * which the first rank had the sum of data just written.  Without REDUCER a last line "copy 0 GB/S"
 * tells how fast each rank copies memory while all ranks do.
 */
#include "../unit/ranks.h"

#include "base/clock.h"
#include "base/mem.h"
#include "engine/reduce/reduce.h"
#include "profile/rounds.h"
#include "run/measure/companions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define COPIED (256 * MIB)
#define SIZES 32

static struct {
	int rounds, size_count;
	double mib[SIZES];
} asked;

static uint64_t tags;

/* Returns the time at which this rank has the sum, or -1 if the connection is broken. */
static int64_t sum(struct rank *me, struct pd_reduction *r, float *buf)
{
	struct pd_event done = { 0 };
	int moved;

	pd_event_arm(&done);
	if (r->ops->start(r, buf, tags, NULL, &done) < 0)
		return -1;
	tags += PD_REDUCTION_TAGS;
	do {
		moved = r->ops->progress(r, PD_REDUCTION_ALL);
	} while (moved >= 0 && !pd_event_done(&done) && ranks_step(me, moved > 0 ? 0 : 1000) >= 0);
	return pd_event_done(&done) ? done.end_ns : -1;
}

/* Stores the time that each round takes on this rank in *ns, counted from a barrier of all ranks. */
static int measure(struct rank *me, enum pd_reducer_kind kind, size_t floats, int64_t *ns)
{
	static const struct pd_topology topology = { .levels = 1, .level = { { .count = RANKS_MAX } } };
	struct pd_reduction_config config = {
		.transport = me->transport, .device = me->device, .topology = &topology,
		.members = me->ranks, .me = me->rank, .floats = floats,
	};
	int ranks[RANKS_MAX], status = 0;
	struct pd_reduction *r;
	struct pd_error err;
	float *buf = me->device->ops->memory.shared_alloc(me->device, floats * sizeof(*buf), &err);

	for (int i = 0; i < me->ranks; i++)
		ranks[i] = i;
	config.ranks = ranks;
	config.stream = me->device->ops->stream.open(me->device, &err);
	r = buf && config.stream ? pd_reduction_open(kind, &config, &err) : NULL;
	if (!r)
		return -1;
	for (int round = -1; round < asked.rounds && status == 0; round++) {
		int64_t begun, ended;

		for (size_t i = 0; i < floats; i++)
			buf[i] = (float)(me->rank + 1);
		ranks_barrier(me);
		begun = pd_now_ns();
		ended = sum(me, r, buf);
		status = ended < 0 || buf[floats - 1] != (float)(me->ranks * (me->ranks + 1) / 2) ? -1 : 0;
		if (round >= 0)
			ns[round] = ended - begun;
	}
	ranks_barrier(me);
	config.device->ops->stream.close(config.stream);
	r->ops->close(r);
	me->device->ops->memory.free(me->device, buf);
	return status;
}

static void measure_copies(struct rank *me)
{
	struct pd_error err;
	char *from = me->device->ops->memory.alloc(me->device, 2 * COPIED, &err), *to = from + COPIED;
	int64_t begun;

	ranks_barrier(me);
	begun = pd_now_ns();
	for (int i = 0; i < 4; i++)
		memcpy(to, from, COPIED);
	if (me->rank == 0)
		printf("copy 0 %.2f\n", 4.0 * COPIED / (double)(pd_now_ns() - begun));
	ranks_barrier(me);
	me->device->ops->memory.free(me->device, from);
}

static int live(struct rank *me)
{
	struct pd_device_config config = { .gate = &me->gate, .threads = 1 };
	int64_t *ns = pd_calloc((size_t)asked.rounds, sizeof(*ns));
	const char *only = getenv("REDUCER");
	struct pd_error err;

	me->device = pd_device_cpu.open(&config, &err);
	if (!me->device)
		return -1;
	pd_measure_pin(me->rank % (int)sysconf(_SC_NPROCESSORS_ONLN), 1);
	for (int i = 0; i < asked.size_count; i++)
		for (int kind = 0; kind < PD_REDUCER_KINDS; kind++) {
			if (pd_reducers[kind]->of_transport ||
			    (only && strcmp(only, pd_reducer_kind_name[kind]) != 0))
				continue;
			if (measure(me, (enum pd_reducer_kind)kind,
				    (size_t)(asked.mib[i] * (double)MIB / sizeof(float)), ns) < 0)
				return -1;
			if (me->rank == 0)
				printf("%s %g %.3f\n", pd_reducer_kind_name[kind], asked.mib[i],
				       (double)pd_median(ns, asked.rounds) / 1e6);
			fflush(stdout);
		}
	if (!only)
		measure_copies(me);
	fflush(stdout);
	me->device->ops->close(me->device);
	me->device = NULL;
	free(ns);
	return 0;
}

int main(int argc, char **argv)
{
	int ranks = argc > 3 ? atoi(argv[1]) : 0;

	asked.rounds = argc > 3 ? atoi(argv[2]) : 0;
	for (int i = 3; i < argc && asked.size_count < SIZES; i++)
		asked.mib[asked.size_count++] = atof(argv[i]);
	if (ranks < 2 || ranks > RANKS_MAX || asked.rounds < 1) {
		fprintf(stderr, "usage: all-reduce RANKS ROUNDS MIB...\n");
		return 2;
	}
	ranks_limit_s = 600;
	return run_ranks(ranks, live, NULL, -1) == 0 ? 0 : 1;
}
