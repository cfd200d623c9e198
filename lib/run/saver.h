/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stage's part of a checkpoint, taken while the worker pauses and written when the
 * supervisor says so.  Held in host memory in between, in plain layout.
 */
#ifndef PD_RUN_SAVER_H
#define PD_RUN_SAVER_H

#include "checkpoint/checkpoint.h"
#include "run/job.h"
#include "worker/worker.h"

struct pd_saver {
	const struct pd_job *job;
	struct pd_device *device;
	struct pd_net *net;
	struct pd_worker *worker;
	int number;                     /* of the stage among the rank's */
	int stage;
	int64_t step;                   /* microbatches, as versions are; -1: not in use */
	int64_t low;                    /* oldest version it needs */
	bool has_state, complete;
	int version_count;
	int64_t *versions;
	struct pd_scale *scales;        /* per version, where all ranks agree on updates */
	float **parameters;             /* per version: all named parameters, one after the other */
	float *arenas[PD_ARENAS];       /* those that are saved, and the running statistics */
};

void pd_saver_begin(struct pd_saver *saver, int64_t step, int64_t low);
/* Takes what the pause offers. */
int pd_saver_take(struct pd_saver *saver, enum pd_pause pause, struct pd_error *err);
/* Takes everything at the end of a phase: the newest version alone. */
int pd_saver_take_all(struct pd_saver *saver, struct pd_error *err);
/* Writes the stage's file, whose checksum checkpoint.json is to have; afterwards the saver is free
 * again. */
int pd_saver_write(struct pd_saver *saver, uint64_t *checksum_p, struct pd_error *err);
void pd_saver_release(struct pd_saver *saver);

/*
 * The other way: newest parameters, moments and state of the saver's stage; and, when the
 * stage is one that the checkpoint's versions fit (same warm-up, replicas and versions for
 * all its layers, an update apart), the older ones.  *floor_p: the oldest version restored.
 */
int pd_saver_restore(const struct pd_checkpoint *ck, const struct pd_schedule *schedule,
		     const struct pd_saver *saver, int64_t *floor_p, struct pd_error *err);

#endif
