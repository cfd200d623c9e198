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
 * It owns the memory of its rank (contrib/HACKING) and allocates it in pd_worker_new.
 */
#ifndef PD_WORKER_WORKER_H
#define PD_WORKER_WORKER_H

#include "base/arena.h"
#include "data/loader.h"
#include "device/device.h"
#include "schedule/room.h"
#include "trace/trace.h"
#include "transport/transport.h"
#include "weights/weights.h"
#include "worker/optimizer.h"

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
	/* of each of the rank's stages (pd_schedule_stages); loader NULL: load does nothing */
	const struct pd_worker_stage *stages;
	int first_tensor;               /* tensor number of layer 0's output: the model's inputs */
	struct pd_transport *transport;
	struct pd_gate *gate;           /* NULL in virtual time */
	int64_t batch_size;
	/*
	 * Where not NULL, training phases do this list instead of what the schedule generates
	 * (pd_op_source_init), and have no checkpoint inside.  rooms (of each of the rank's stages;
	 * borrowed), where not NULL, is what the operations need, instead of what the generator's do.
	 */
	const struct pd_list *list;
	const struct pd_room *rooms;
	struct pd_arena *arena;         /* where it keeps what it knows, for longer than it; or NULL */
	int ring;                       /* operations issued and not retired, at most; 0: enough */

	/* Called from pd_worker_step as operations retire, in list order, agree with the step
	 * that waits for it; may be NULL. */
	void (*retired)(void *context, const struct pd_record *record);
	/* Of a forward, and of an evaluation's: one for each of `count` loss layers of its stage. */
	void (*losses)(void *context, const struct pd_op *op, const struct pd_loss *losses,
		       int count);
	/* Of the rank's first stage to make it, where all ranks agree on updates. */
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

/* What a checkpoint at microbatch `at` needs to see while a phase runs. */
enum pd_pause {
	PD_PAUSE_NONE,
	PD_PAUSE_STATE,         /* every forward before `at` has run, none from it on */
	PD_PAUSE_VERSION,       /* the newest version is one that the checkpoint holds */
};

struct pd_worker *pd_worker_new(const struct pd_worker_config *config, struct pd_error *err);
void pd_worker_free(struct pd_worker *worker);

/*
 * Starts a phase; the one before is done.  floor: see pd_cursor_init.  In a phase that
 * does not go on from older versions the newest version is renumbered phase->first.
 */
void pd_worker_begin(struct pd_worker *worker, const struct pd_phase *phase, int64_t floor);
enum pd_worker_state pd_worker_step(struct pd_worker *worker, struct pd_error *err);

/*
 * When waiting: the event without which nothing more can be done where loaders keep nobody
 * waiting, or NULL: any may help.
 */
const struct pd_event *pd_worker_awaits(const struct pd_worker *worker);
/*
 * Asks for memory that the next step of the worker will use, in steps from 0 to 2, each of which
 * finds there what the one before asked for.
 */
void pd_worker_prefetch(struct pd_worker *worker, int step);

/*
 * Stopping early.  freeze: begin no microbatch that has not begun, and say which is the
 * highest that has (phase.first - 1: none).  limit: end the phase there instead and thaw.
 */
int64_t pd_worker_freeze(struct pd_worker *worker);
void pd_worker_limit(struct pd_worker *worker, int64_t last);
/* Issue nothing while held, whatever is frozen; what has been issued goes on. */
void pd_worker_hold(struct pd_worker *worker, bool held);

/*
 * A checkpoint at microbatch `at` of this phase: the worker pauses with PD_PAUSE_STATE when
 * every forward before `at` has run and none after, and with PD_PAUSE_VERSION after every
 * update that writes a version from the oldest that microbatch `at` would read to `at`
 * itself (and at once if such a version is there already).  The streams are at rest then.
 * Asked for before any operation of microbatch `at` has been issued; at most phase->last;
 * forgotten with the phase or by checkpoint_done.  Any number at a time.
 */
void pd_worker_checkpoint(struct pd_worker *worker, int64_t at);
void pd_worker_checkpoint_done(struct pd_worker *worker, int64_t at);
enum pd_pause pd_worker_paused(const struct pd_worker *worker);
/* Has the state of that checkpoint been offered in a pause, this one included? */
bool pd_worker_state_reached(const struct pd_worker *worker, int64_t at);
/* The highest microbatch of the phase of which anything has been issued. */
int64_t pd_worker_highest(const struct pd_worker *worker);

/* Of stage number i of the rank, for export and import while the worker is paused, done or
 * new. */
struct pd_weights *pd_worker_weights(struct pd_worker *worker, int i);
/* An arena of which a stage has one at most; NULL: it has none. */
void *pd_worker_arena(struct pd_worker *worker, int i, enum pd_arena_kind kind);
/*
 * To be called after the newest weights or those were written to: works out what backward will
 * read.  0, or -1 where the device fails.
 */
int pd_worker_correct(struct pd_worker *worker, int i);
/*
 * The scale of a version, given its buffer of stage number i, where all ranks agree on updates.
 * While the worker is paused, done or new; blocks.
 */
int pd_worker_scale_get(struct pd_worker *worker, int i, const void *weights,
			struct pd_scale *scale_p, struct pd_error *err);
int pd_worker_scale_put(struct pd_worker *worker, int i, void *weights,
			const struct pd_scale *scale, struct pd_error *err);
/* The oldest version that a checkpoint at `at` holds of that stage. */
int64_t pd_worker_checkpoint_oldest(const struct pd_worker *worker, int i, int64_t at);
/* Does it hold that version, which is from the oldest to `at`? */
bool pd_worker_checkpoint_holds(const struct pd_worker *worker, int i, int64_t at,
				int64_t version);

/* Bytes allocated from the device. */
int64_t pd_worker_bytes(const struct pd_worker *worker);
/* Operations that have been issued and have not retired. */
int64_t pd_worker_ahead(const struct pd_worker *worker);
/* Operations retired since pd_worker_new, and the oldest that has not (for messages). */
int64_t pd_worker_retired(const struct pd_worker *worker);
bool pd_worker_oldest(const struct pd_worker *worker, struct pd_op *op_p);

#endif
