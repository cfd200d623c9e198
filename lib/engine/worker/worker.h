/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank at work: takes operations from its list, in order, and issues each to a device
 * stream or to the transport, as far ahead as its ring of operations reaches; retires
 * each one that has finished, in the same order.  It never computes, never copies, never
 * blocks, and knows no clock: the same code runs on processors, on GPUs and in virtual
 * time.
 *
 *     pd_worker_begin(worker, &phase, floor);
 *     while ((state = pd_worker_step(worker, &err)) != PD_WORKER_DONE) ...
 *
 * It owns the memory of its rank (memory/arenas.def) and allocates it in pd_worker_new.
 */
#pragma once

#include "base/arena.h"
#include "engine/data/loader.h"
#include "engine/device/device.h"
#include "engine/transport/transport.h"
#include "engine/worker/optimizer.h"
#include "engine/worker/weights.h"
#include "schedule/buffer_counts.h"
#include "trace/trace.h"

#include <stdbool.h>
#include <stdint.h>

struct pd_worker_stage {
	struct pd_net *net;
	struct pd_loader *loader;
};

struct pd_worker_config {
	const struct pd_schedule *schedule;
	int rank;
	struct pd_device *device;
	/* Per stage of the rank (pd_schedule_stages); with loader NULL, load does nothing. */
	const struct pd_worker_stage *stages;
	int first_tensor;               /* tensor number of layer 0's output; it is the number of
					   model inputs */
	struct pd_transport *transport;
	struct pd_gate *gate;           /* NULL in virtual time */
	int64_t batch_size;
	int64_t test_samples;           /* of an evaluation; 0: there is none, or in virtual time */
	/*
	 * If not NULL, training phases do this list instead of what the schedule generates
	 * (pd_op_source_init), and have no checkpoint inside.  buffer_counts (of each of the rank's
	 * stages; borrowed), if not NULL, counts the buffers for these operations.
	 */
	const struct pd_list *list;
	const struct pd_buffer_counts *buffer_counts;
	struct pd_arena *arena;         /* for data that outlives the worker; or NULL */
	int ring;                       /* most operations issued and not retired; 0: enough */

	/*
	 * Called from pd_worker_step as operations retire, in list order (agree with the step that
	 * waits for it); may be NULL.
	 */
	void (*retired)(void *context, const struct pd_record *record);
	/*
	 * Called for a forward, also of an evaluation, with the `count` loss layers of its stage.
	 */
	void (*losses)(void *context, const struct pd_op *op, const struct pd_loss *losses,
		       int count);
	/* Called for the first step of a rank after an agree. */
	void (*updated)(void *context, const struct pd_op *step, const struct pd_outcome *outcome);
	void *context;
	struct pd_optimizer optimizer;
};

enum pd_worker_state {
	PD_WORKER_BUSY,         /* did something; call again */
	PD_WORKER_WAITING,      /* nothing to do until an event or the transport moves */
	PD_WORKER_PAUSED,       /* at a point asked for by pd_worker_pause */
	PD_WORKER_DONE,         /* the phase is complete, the pipeline empty */
	PD_WORKER_FAILED,
};

/* A pause says which part of a checkpoint at microbatch `at` can be taken. */
enum pd_pause {
	PD_PAUSE_NONE,
	PD_PAUSE_STATE,         /* every forward before `at` has run, none from it on */
	PD_PAUSE_VERSION,       /* the newest version is one that the checkpoint holds */
};

struct pd_worker *pd_worker_new(const struct pd_worker_config *config, struct pd_error *err);
void pd_worker_free(struct pd_worker *worker);

/*
 * Starts a phase after the one before is done.  floor: see pd_cursor_init.  Unless the phase
 * continues from older versions, the newest version is renumbered phase->first.
 */
void pd_worker_begin(struct pd_worker *worker, const struct pd_phase *phase, int64_t floor);
enum pd_worker_state pd_worker_step(struct pd_worker *worker, struct pd_error *err);

/*
 * While the worker waits: returns the event without which nothing more can be done, if loaders keep
 * nobody waiting; or NULL if any event may help.
 */
const struct pd_event *pd_worker_awaits(const struct pd_worker *worker);
/*
 * Prefetches memory that the next step of the worker will use.  Each step, from 0 to 2, finds what
 * the one before asked for.
 */
void pd_worker_prefetch(struct pd_worker *worker, int step);

/*
 * These stop a worker early.  freeze: begin no further microbatch, and return the highest that has
 * begun (phase.first - 1: none).  limit: end the phase there and thaw.
 */
int64_t pd_worker_freeze(struct pd_worker *worker);
void pd_worker_limit(struct pd_worker *worker, int64_t last);
/* While held, the worker issues nothing, frozen or not; what it has issued goes on. */
void pd_worker_hold(struct pd_worker *worker, bool held);

/*
 * Asks for a checkpoint at microbatch `at` of this phase.  The worker pauses with PD_PAUSE_STATE
 * when every forward before `at` has run and none after.  It pauses with PD_PAUSE_VERSION after
 * every update that writes a version from the oldest that microbatch `at` would read to `at` itself
 * (at once if there is such a version already).  The streams are at rest then.  Call it before any
 * operation of microbatch `at` has been issued, at most for phase->last.  It is forgotten with the
 * phase or by checkpoint_done.  There can be any number at a time.
 */
void pd_worker_checkpoint(struct pd_worker *worker, int64_t at);
void pd_worker_checkpoint_done(struct pd_worker *worker, int64_t at);
enum pd_pause pd_worker_paused(const struct pd_worker *worker);
/*
 * Tells whether the state for that checkpoint has been offered in a pause, including the current
 * one.
 */
bool pd_worker_state_reached(const struct pd_worker *worker, int64_t at);
/* Returns the highest microbatch of the phase of which anything has been issued. */
int64_t pd_worker_highest(const struct pd_worker *worker);

/*
 * Returns the weights of stage number i of the rank, for export and import while the worker is
 * paused, done or new.
 */
struct pd_weights *pd_worker_weights(struct pd_worker *worker, int i);
/* Returns an arena of which a stage has at most one, or NULL if it has none. */
void *pd_worker_arena(struct pd_worker *worker, int i, enum pd_arena_kind kind);
/*
 * Call this after the newest weights or delta were written to: it works out what backward will
 * read.  Returns 0, or -1 if the device fails.
 */
int pd_worker_correct_discrepancy(struct pd_worker *worker, int i);
/*
 * These read and write the scale of a version, given its buffer of stage number i, if all ranks
 * agree on updates, while the worker is paused, done or new.  They block.
 */
int pd_worker_scale_get(struct pd_worker *worker, int i, const void *weights,
			struct pd_scale *scale_p, struct pd_error *err);
int pd_worker_scale_put(struct pd_worker *worker, int i, void *weights,
			const struct pd_scale *scale, struct pd_error *err);
/*
 * These copy the norms of the chunks of stage number i (pd_worker_norm_count, 0 where its sums are not
 * sparse), by which the next update chooses.  They block, too.
 */
int64_t pd_worker_norm_count(const struct pd_worker *worker, int i);
int pd_worker_norms_get(struct pd_worker *worker, int i, float *norms, struct pd_error *err);
int pd_worker_norms_put(struct pd_worker *worker, int i, const float *norms, struct pd_error *err);
/* Returns the oldest version of that stage that a checkpoint at `at` holds. */
int64_t pd_worker_checkpoint_oldest(const struct pd_worker *worker, int i, int64_t at);
/* Tells whether it holds that version, which is from the oldest to `at`. */
bool pd_worker_checkpoint_holds(const struct pd_worker *worker, int i, int64_t at,
				int64_t version);

/* Returns about how many bytes of the rank's memory transfers read and write at once, at most. */
int64_t pd_worker_under_way_bytes(const struct pd_worker *worker);
/* Returns the bytes allocated from the device. */
int64_t pd_worker_bytes(const struct pd_worker *worker);
/* Returns the number of operations that have been issued and have not retired. */
int64_t pd_worker_ahead(const struct pd_worker *worker);
/*
 * These return the operations retired since pd_worker_new, and the oldest that has not (for
 * messages).
 */
int64_t pd_worker_retired(const struct pd_worker *worker);
bool pd_worker_oldest(const struct pd_worker *worker, struct pd_op *op_p);
