/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints: pd-checkpoint(5).  A directory holds one folder per checkpoint,
 *
 *     DIRECTORY/step-000000001500/checkpoint.json
 *                                 stage-0.safetensors
 *                                 stage-1.safetensors ...
 *
 * which is there as a whole or not at all: it is written under another name and renamed.
 * Writing takes three parts, since ranks write the stages and their supervisor the rest:
 *
 *     supervisor  pd_checkpoint_begin
 *     ranks       pd_checkpoint_write_stage
 *     supervisor  pd_checkpoint_finish, or pd_checkpoint_abandon
 *
 * Tensors are found by name, whatever stage had them: "LAYER.weight" is the newest version,
 * "LAYER.weight@STEP" an older one, "LAYER.weight.velocity" its first moment,
 * "LAYER.weight.second" its second one, and "LAYER.running_mean" the like of a state.
 *
 * All of it has checksums: a tensor's stands in its file's header, the header's in
 * checkpoint.json, which has one of itself.
 */
#ifndef PD_CHECKPOINT_CHECKPOINT_H
#define PD_CHECKPOINT_CHECKPOINT_H

#include "base/error.h"
#include "checkpoint/safetensors.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct pd_checkpoint_stage {
	int layer_count;
	char **layers;                  /* names */
	int warmup, replicas;           /* as in the plan that trained it */
	int version_count;
	int64_t *versions;              /* held, ascending; the last is the newest */
	uint64_t checksum;              /* as pd_checkpoint_write_stage() gives it */
};

struct pd_checkpoint_info {
	bool checksums;                 /* false: written by a version that had none; only read */
	int64_t step;                   /* minibatches done since the beginning */
	int64_t epoch, minibatch;       /* the next one: of that epoch, from 0 */
	uint64_t seed;                  /* below 2^63 */
	int64_t batch_size;
	char *name;                     /* of the model */
	char *dtype;                    /* "f32" */
	json_t *optimizer;              /* an object, carried along as it is */
	int stage_count;
	struct pd_checkpoint_stage *stages;
};

void pd_checkpoint_info_release(struct pd_checkpoint_info *info);

/*
 * Makes the directory (not its parents) where missing, and in it the folder in which
 * stages are written; removes what writers before left unfinished.  Errors: failed.
 */
int pd_checkpoint_begin(const char *directory, int64_t step, struct pd_error *err);
/*
 * Writes a stage's file.  Of each tensor name, dims, size and elements are read; data has the
 * elements of each.  *checksum_p is for checkpoint.json.  Errors: failed.
 */
int pd_checkpoint_write_stage(const char *directory, int64_t step, int stage,
			      const struct pd_tensor *tensors, const float *const *data,
			      size_t count, uint64_t *checksum_p, struct pd_error *err);
/*
 * All stages are written: adds checkpoint.json, makes everything durable, gives the folder
 * its name (in place of an earlier one of the same step), and removes checkpoints of
 * lower steps, but for the `keep` newest, this one included.  info->step is the step.
 * On error the unfinished folder is gone; earlier checkpoints are as they were.
 */
int pd_checkpoint_finish(const char *directory, const struct pd_checkpoint_info *info, int keep,
			 struct pd_error *err);
/* Gives up; nothing is left of it. */
void pd_checkpoint_abandon(const char *directory, int64_t step);

/* A checkpoint open for reading. */
struct pd_checkpoint;

/*
 * The checkpoint of a step.  Its document and the headers of its stages are verified, the data of
 * a tensor when it is read.  Errors: input.
 */
struct pd_checkpoint *pd_checkpoint_open(const char *directory, int64_t step,
					 struct pd_error *err);
/* Reads and verifies all data, too.  Errors: input, naming file and tensor. */
int pd_checkpoint_verify(const struct pd_checkpoint *ck, struct pd_error *err);
/*
 * The newest one all of which can be verified.  passed_over is told of each that is newer, newest
 * first, and why it was not taken.  Errors: input; none, and why not the newest.
 */
struct pd_checkpoint *pd_checkpoint_newest(const char *directory,
					   void (*passed_over)(void *context, int64_t step,
							       const struct pd_error *why),
					   void *context, struct pd_error *err);
/* The highest step that a folder in the directory is named after, whatever is in it; -1: none. */
int64_t pd_checkpoint_highest(const char *directory);
/* Is there a folder of that step, whatever is in it? */
bool pd_checkpoint_exists(const char *directory, int64_t step);
void pd_checkpoint_close(struct pd_checkpoint *ck);
const struct pd_checkpoint_info *pd_checkpoint_info(const struct pd_checkpoint *ck);
/* The stage that had a layer: its versions, warmup and replicas; NULL when none had it. */
const struct pd_checkpoint_stage *pd_checkpoint_stage_of(const struct pd_checkpoint *ck,
							 const char *layer);
/* Is there a tensor of that name? */
bool pd_checkpoint_has(const struct pd_checkpoint *ck, const char *name);
/*
 * A tensor by its name ("conv1.weight") at a version (a step; -1 or the newest of its
 * stage: the newest) into out, `elements` floats.  Errors: input; no such tensor or
 * version, another number of elements, damaged.
 */
int pd_checkpoint_read(const struct pd_checkpoint *ck, const char *name, int64_t version,
		       int64_t elements, float *out, struct pd_error *err);

#endif
