/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank at work: takes operations from its list, in order, and issues each to a device
 * stream or to the transport, as far ahead as its ring of operations reaches; notes each
 * one that has finished.  It never computes, never copies, never blocks, and knows no
 * clock: the same code runs on processors, on GPUs and in virtual time.
 *
 *     pd_worker_begin(worker, &phase, floor);
 *     while ((state = pd_worker_step(worker, &err)) != PD_WORKER_DONE) ...
 *
 * It owns the memory of its rank (contrib/HACKING) and allocates it in pd_worker_new.
 */
#ifndef PD_WORKER_WORKER_H
#define PD_WORKER_WORKER_H

#include "data/loader.h"
#include "device/device.h"
#include "schedule/schedule.h"
#include "trace/trace.h"
#include "transport/transport.h"

#include <stdbool.h>
#include <stdint.h>

struct pd_sgd {
	float rate, momentum, weight_decay;
};

struct pd_worker_config {
	const struct pd_schedule *schedule;
	int rank;
	struct pd_device *device;
	struct pd_net *net;             /* of the rank's stage */
	int first_tensor;               /* tensor number of layer 0's output: the model's inputs */
	struct pd_transport *transport;
	struct pd_gate *gate;           /* NULL in virtual time */
	struct pd_loader *loader;       /* NULL: load does nothing */
	int64_t batch_size;
	struct pd_sgd sgd;
	int ring;                       /* operations issued and not finished, at most; 0: enough */

	/* called from pd_worker_step, in list order; any may be NULL */
	void (*finished)(void *context, const struct pd_record *record);
	void (*loss)(void *context, const struct pd_op *op, const struct pd_loss *loss);
	/* A step is about to overwrite or drop a version, or has written one: for checkpoints. */
	void *context;
};

enum pd_worker_state {
	PD_WORKER_BUSY,         /* did something; call again */
	PD_WORKER_WAITING,      /* nothing to do until an event or the transport moves */
	PD_WORKER_DONE,         /* the phase is complete, the pipeline empty */
	PD_WORKER_FAILED,
};

struct pd_worker *pd_worker_new(const struct pd_worker_config *config, struct pd_error *err);
void pd_worker_free(struct pd_worker *worker);
/* Starts a phase; the one before is done. floor: see pd_cursor_init. */
int pd_worker_begin(struct pd_worker *worker, const struct pd_phase *phase, int64_t floor,
		    struct pd_error *err);
enum pd_worker_state pd_worker_step(struct pd_worker *worker, struct pd_error *err);

#endif
