/* SPDX-License-Identifier: Apache-2.0 */
/* A network on a device, with all that its steps need, to be timed; private to this folder. */
#pragma once

#include "engine/data/loader.h"
#include "run/measure/layers.h"

/*
 * The parts that are timed, in this order.  Three are on another net that can split backward, if
 * the device can.  An update into another buffer is last, so that it does not find in the cache
 * what the one in place has just used.
 */
enum bench_part {
	BENCH_FORWARD, BENCH_BACKWARD, BENCH_UPDATE,
	BENCH_SPLIT_FORWARD, BENCH_INPUT, BENCH_WEIGHT,
	BENCH_APART,
	BENCH_PARTS
};
#define BENCH_WHOLE_PARTS 3             /* a whole step has these parts */

/*
 * Sums of an all-reduce: of two; a sum's rounding to 16 bits; of f32 and 16 bits, which must follow
 * that.
 */
enum bench_sum { BENCH_SUM, BENCH_ROUND, BENCH_MIXED_SUM, BENCH_SUMS };

struct pd_bench {
	const struct pd_measure_options *options;
	const struct pd_model *model;
	struct pd_gate gate;
	struct pd_device *device;
	struct pd_stream *stream;
	struct pd_net *net, *split;     /* split is NULL if the device cannot split backward */
	struct pd_dataset data;
	struct pd_loader *loader;
	void *weights, *apart, *master, *gradients, *velocity, *state, *inbox, *slot, *scratch;
	struct pd_stream *copying;      /* opened when it is needed (copies.c); or NULL */
	void *copied[2];
	void *shared;                   /* gradients that workers beside can map; or NULL */
	struct pd_pass pass;
	struct pd_update update;
};

/* Returns 0, or -1 with nothing left open: the device, its memory or the data failed. */
int pd_bench_open(struct pd_bench *bench, const struct pd_model *model,
		  const struct pd_measure_options *options, struct pd_error *err);
void pd_bench_close(struct pd_bench *bench);
/* Tells whether the part can be timed here. */
bool pd_bench_has(const struct pd_bench *bench, enum bench_part part);
/*
 * Queues a part of `count` layers from `from` on; returns like the device's calls, PD_AGAIN, too.
 */
int pd_bench_queue(struct pd_bench *bench, enum bench_part part, int from, int count,
		   struct pd_event *ev);
/*
 * Queues parts `from` to `to` - 1 of all layers, each with its event, and waits for them.  Returns 0,
 * or -1 if one has failed.
 */
int pd_bench_step(struct pd_bench *bench, int from, int to, struct pd_event *events,
		  struct pd_error *err);
/*
 * Measures how long after what it waits for an operation begins on a stream that is idle: the wait ends by
 * the host, as what a rank receives does, and the beginning is the device's word.
 */
int pd_bench_launch(struct pd_bench *bench, int64_t *ns_p, struct pd_error *err);
/*
 * Measures a whole step, which takes about step_ns, while bytes are copied: on a processor, by one that no
 * worker has; 0 where there is none, or more copies were needed.
 */
int pd_bench_beside_copies(struct pd_bench *bench, int64_t step_ns, int64_t *ns_p, struct pd_error *err);
/* Queues a sum of gradients; the next backward replaces them. */
int pd_bench_queue_sum(struct pd_bench *bench, enum bench_sum what, struct pd_event *ev);
/* Returns 0, or -1 if something that was queued has failed. */
int pd_bench_wait(struct pd_bench *bench, struct pd_event *ev, struct pd_error *err);
