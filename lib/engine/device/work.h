/* SPDX-License-Identifier: Apache-2.0 */
/* What a stream of a device can be asked to do. */
#pragma once

#include "base/error.h"
#include "base/event.h"
#include "engine/device/chunks.h"
#include "engine/device/mixed_sum.h"
#include "engine/device/update.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pd_loss {                /* of a microbatch; in host memory, valid once the event is done */
	/*
	 * The sum is over the rows of the valid samples; a sample has as many as its logits, or
	 * one.
	 */
	double sum;
	int64_t correct;
	int64_t samples;                /* the valid ones */
	int64_t rows;                   /* of theirs, those that count: whose label is not ignored */
};

/*
 * Backward comes in two parts where the net was opened for that.  INPUT computes the gradients of
 * activations and keeps in the slot what WEIGHT needs to compute the gradients of parameters; the
 * bits are those of ALL. WEIGHT reads inbox, slot and weights, and writes gradients and scratch;
 * inbox and slot may not change in between.
 */
enum pd_backward_part { PD_BACKWARD_ALL, PD_BACKWARD_INPUT, PD_BACKWARD_WEIGHT };

/* A forward or backward reads and writes these. */
struct pd_pass {
	const void *weights;
	void *state, *gradients, *inbox, *slot, *kept, *scratch, *gradient_in, *gradient_out;
	int64_t first_sample;	/* global number of the minibatch's first sample, for dropout */
	int64_t valid;                  /* samples that count; the others are padding */
	bool evaluate;                  /* running statistics are used and not changed; no dropout */
	/* a forward that may run together with the backward that is submitted next; ours run one after the other */
	bool beside;
	/*
	 * a recomputation, without the layers of pd_net_config.kept: the first forward has moved the
	 * running statistics, this one does not
	 */
	bool again;
	enum pd_backward_part part;
	struct pd_loss *losses;	/* one for each loss layer of the stage, in their order; or NULL */
	/* each loss is multiplied by it for backward; device memory; NULL: 1 */
	const struct pd_scale *scale;
};

/* Sums of squares of a stage's gradients, for the vector of lib/engine/device/global_norm.h. */
struct pd_squares {
	const void *gradients;
	const struct pd_scale *scale;   /* the gradients were made with this scale; NULL: with none */
	double *vector;                 /* device memory */
	bool clear;                     /* first sets all elements to PD_ABSENT */
};

/*
 * Work that a transport puts on a stream.  The stream's thread calls post() with the device's own
 * handle of the stream (a cudaStream_t); where that is NULL, post() does the work at once.  Once
 * the work is done, any thread calls check().  Both return -1 with *err where something failed.
 */
struct pd_call {
	int (*post)(void *context, void *native, struct pd_error *err);
	int (*check)(void *context, struct pd_error *err);
	void *context;                  /* used until check() has returned or the stream is closed */
};

enum pd_copy { PD_COPY_TO_DEVICE, PD_COPY_TO_HOST, PD_COPY_WITHIN };

enum pd_work_kind {
	PD_WORK_WAIT,                   /* what is behind it starts after an event; it has none of its own */
	PD_WORK_FORWARD,
	/*
	 * Runs backward or one part of it, from the last layer to the first.  Gradients of
	 * parameters are overwritten, not added to.  Scratch holds gradients of activations from
	 * one work to the next, so the works for the parts of a stage share it, and nothing else
	 * may use it in between.
	 */
	PD_WORK_BACKWARD,
	PD_WORK_UPDATE,
	/*
	 * Computes dst[i] = src[0][i] + src[1][i] + ..., in that order, for count floats; dst may
	 * be one of the sources, and n = 0 gives zeros.
	 */
	PD_WORK_SUM,
	/* Does the same, and writes the result to all of the n arrays; for memory of shared_alloc(). */
	PD_WORK_SUM_ALL,
	/*
	 * Does the same as PD_WORK_SUM in f32, with sources that are widened, and rounds the result to 16 bits
	 * where dst has them.  dst may be a source of the same width.
	 */
	PD_WORK_MIXED_SUM,
	PD_WORK_SQUARES,                /* of all layers of the stage */
	PD_WORK_UNITE,                  /* sets vector[i] = other[i] where vector[i] is PD_ABSENT */
	PD_WORK_CHUNKS,
	PD_WORK_COPY,
	PD_WORK_CALL,                   /* where pd_device_ops.calls */
	PD_WORK_KINDS
};

struct pd_work {
	enum pd_work_kind kind;
	int joined;                     /* the queue's (queue.h): so many behind it are run with it */
	struct pd_event *ev;            /* armed by the caller, completed when the work is done; NULL: none */
	struct pd_net *net;             /* of passes, updates and squares */
	int from, count;                /* of passes and updates: layers from to from + count - 1 (model numbers) */
	union {
		struct pd_event *awaited;
		struct pd_pass pass;
		struct pd_update update;
		struct {
			float *dst;
			const float *src[PD_SUM_SOURCES];
			int n;
			size_t count;
		} sum;
		struct {
			float *arrays[PD_SUM_SOURCES];
			int n;
			size_t count;
		} sum_all;
		struct pd_mixed_sum mixed_sum;
		struct pd_squares squares;
		struct pd_chunks chunks;
		struct {
			double *vector;
			const double *other;
			size_t count;
		} unite;
		struct {
			void *dst;
			const void *src;
			size_t bytes;
			enum pd_copy way;
		} copy;
		struct pd_call call;
	};
};
