/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A saver takes a stage's part of a checkpoint while the worker pauses, keeps it in host memory, in
 * plain layout, and writes it when the supervisor says so.
 */
#pragma once

#include "checkpoint/checkpoint.h"
#include "engine/worker/worker.h"
#include "run/job/job.h"

struct pd_saved_version {
	int64_t number;
	float *parameters;              /* all named ones, one after the other */
	struct pd_scale scale;          /* 1 unless ranks agree on updates */
};

struct pd_saver {
	const struct pd_job *job;
	struct pd_device *device;
	struct pd_net *net;
	struct pd_worker *worker;
	int number;                     /* of the stage among the rank's */
	int stage;
	/* From 1 on it takes only what a replica has for itself: what sparse sums left. */
	int replica;
	int64_t step;                   /* in microbatches, as versions are; -1: unused */
	int64_t low;                    /* the oldest version it needs */
	bool has_state, has_newest, complete;   /* newest: the version of the step, and the arenas */
	int version_count;
	struct pd_saved_version *versions;      /* ascending */
	float *arenas[PD_ARENAS];       /* arenas that are saved, and the running statistics */
	float *norms;                   /* of the chunks of sparse sums; or NULL */
};

void pd_saver_begin(struct pd_saver *saver, int64_t step, int64_t low);
/* Takes the versions that are here and were not taken before; if asked for, also the state. */
int pd_saver_take(struct pd_saver *saver, bool state, struct pd_error *err);
/* Returns the name, to be freed, of a tensor that it took and of which not all numbers are finite; or NULL. */
char *pd_saver_not_finite(const struct pd_saver *saver);
/* Writes the replica's file, and describes it in *file_p; the saver is unused afterwards. */
int pd_saver_write(struct pd_saver *saver, struct pd_checkpoint_file *file_p, struct pd_error *err);
void pd_saver_release(struct pd_saver *saver);

/*
 * Restores newest parameters, moments and state of the saver's stage.  It also restores older
 * versions, if the checkpoint's fit the stage: same warm-up, replicas and versions for all its
 * layers, an update apart.  *floor_p: the oldest version restored.
 */
int pd_saver_restore(const struct pd_checkpoint *ck, const struct pd_schedule *schedule,
		     const struct pd_saver *saver, int64_t *floor_p, struct pd_error *err);
