/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints: pd-checkpoint(5).  A directory holds one folder per checkpoint,
 *
 *     DIRECTORY/step-000000001500/checkpoint.json
 *                                 stage-0.safetensors
 *                                 stage-1.safetensors ...
 *                                 stage-0-replica-1.safetensors ...
 *
 * which is there as a whole or not at all: it is written under another name and renamed.
 * Writing takes three parts, since ranks write the tensors and their supervisor the rest:
 *
 *     supervisor  pd_checkpoint_begin
 *     ranks       pd_checkpoint_write
 *     supervisor  pd_checkpoint_finish, or pd_checkpoint_abandon
 *
 * Where hosts have folders of their own, each has the files that its ranks wrote and the same
 * document.  One process of the host keeps its folder:
 *
 *     ranks       pd_checkpoint_join, pd_checkpoint_write
 *     keepers     pd_checkpoint_publish
 *     supervisor  pd_checkpoint_finish
 *     keepers     pd_checkpoint_prune
 *
 * So a step that the first host's folder has is complete on all, and before it has that step none of
 * them has removed the one before.
 *
 * Tensors are found by name, whatever stage had them: "LAYER.weight" is the newest version,
 * "LAYER.weight@STEP" an older one, "LAYER.weight.velocity" its first moment,
 * "LAYER.weight.second" its second one, "LAYER.weight.residual" what sparse sums left, of each
 * replica, and "LAYER.running_mean" the like of a state.
 *
 * All of it has checksums: a tensor's stands in its file's header, the header's in
 * checkpoint.json, which has one of itself.
 */
#pragma once

#include "base/file.h"
#include "base/rows.h"
#include "checkpoint/safetensors.h"

/* A tensor of a stage begins so that has the norms of its chunks; the rest says which. */
#define PD_CHUNK_NORMS "norms of chunks of "

struct pd_checkpoint_stage {
	int layer_count;
	char **layers;                  /* names */
	/* by layer: its parameters have neither older versions nor moments; NULL: none is frozen */
	bool *frozen;
	int warmup, replicas;           /* as in the plan that was trained */
	int version_count;
	int64_t *versions;              /* in its file, ascending; the last is the newest */
};

/* A file of tensors: a stage's, as replica 0; or what a further replica keeps of its own. */
struct pd_checkpoint_file {
	int stage, replica;
	uint64_t checksum;              /* of its header; pd_checkpoint_write() sets it */
	bool in_other_folder;           /* to be written: in another host's */
};

struct pd_checkpoint_info {
	bool checksums;                 /* false: written by an older version, without checksums */
	uint64_t document_checksum;     /* of checkpoint.json, where it was read and has one */
	int64_t step;                   /* minibatches done since the beginning */
	int64_t epoch, minibatch;       /* the next minibatch, from 0 within that epoch */
	uint64_t seed;                  /* below 2^63 */
	int64_t batch_size;
	char *name;                     /* of the model */
	char *dtype;                    /* "f32" */
	json_t *optimizer;              /* an object that is passed on unchanged */
	json_t *model;                  /* its document (pd-model(5)); NULL: of an older version; owned */
	json_t *recipe;                 /* what else trained it; NULL: of an older version; owned */
	int stage_count;
	struct pd_checkpoint_stage *stages;
	/* First those of the stages, in their order; then those of replicas, by stage and replica. */
	int file_count;
	struct pd_checkpoint_file *files;
};

extern const struct pd_key_row pd_checkpoint_rows[];
void pd_checkpoint_info_release(struct pd_checkpoint_info *info);
/*
 * Returns a checksum of what no resumed run changes, network, optimizer, seed and samples of a
 * minibatch, and of the data.
 */
uint64_t pd_checkpoint_run(const struct pd_checkpoint_info *info);
/*
 * Returns the highest step in the directory whose checkpoint is of another run than that, as far as
 * documents can be read; -1: none.
 */
int64_t pd_checkpoint_of_another_run(const char *directory, uint64_t run);
/* Returns the number of a file in info->files, -1 if there is no such file. */
int pd_checkpoint_file_number(const struct pd_checkpoint_info *info, int stage, int replica);
/* Returns "stage-K.safetensors", or of a replica from 1 on "stage-K-replica-R..."; free() it. */
char *pd_checkpoint_file_name(const struct pd_checkpoint_file *file);

/*
 * Creates the directory (not its parents) if it is missing, and in it the folder in which files
 * are written.  Removes what earlier writers left unfinished.  Errors count as failed.
 */
int pd_checkpoint_begin(const char *directory, int64_t step, struct pd_error *err);
/* Returns the text of a checkpoint's document; free() it. */
char *pd_checkpoint_info_text(const struct pd_checkpoint_info *info, size_t *bytes_p);
/* Creates the folder in which files are written unless it is there.  Errors count as failed. */
int pd_checkpoint_join(const char *directory, int64_t step, struct pd_error *err);
/*
 * Writes the file of a stage and replica, and sets its checksum, which is for checkpoint.json.  Of
 * each tensor it reads name, dims, size and elements; data has the elements of each.  Errors count as
 * failed.
 */
int pd_checkpoint_write(const char *directory, int64_t step, struct pd_checkpoint_file *file,
			const struct pd_tensor *tensors, const float *const *data, size_t count,
			struct pd_error *err);
/*
 * Finishes a checkpoint after all files are written: adds checkpoint.json, syncs everything, and
 * names the folder (in place of an earlier one of the same step, info->step).  Removes checkpoints
 * of lower steps, except for the `keep` newest, this one included.  On error the unfinished folder
 * is removed, and earlier checkpoints stay as they were.
 */
int pd_checkpoint_finish(const char *directory, const struct pd_checkpoint_info *info, int keep,
			 struct pd_error *err);
/*
 * Gives an unfinished folder, whatever files it has, a document and its name, as
 * pd_checkpoint_finish() does.
 */
int pd_checkpoint_publish(const char *directory, int64_t step, const char *document, size_t bytes,
			  struct pd_error *err);
/* Removes checkpoints below `step`, except for the newest keep - 1. */
int pd_checkpoint_prune(const char *directory, int64_t step, int keep, struct pd_error *err);
/* Discards the unfinished checkpoint. */
void pd_checkpoint_abandon(const char *directory, int64_t step);

/*
 * A checkpoint open for reading.  While it is, no run that trains into the directory removes it: such a run
 * leaves it until it writes the next one.  Nothing is written for that.
 */
struct pd_checkpoint;

/*
 * Opens the checkpoint of a step, and verifies its document and the headers of its files; the data
 * of a tensor is verified when it is read.  Errors count as input.
 */
struct pd_checkpoint *pd_checkpoint_open(const char *directory, int64_t step,
					 struct pd_error *err);
/* Opens it where files may be in other folders.  Those that are absent or damaged are not held. */
struct pd_checkpoint *pd_checkpoint_open_part(const char *directory, int64_t step,
					      struct pd_error *err);
/* Tells whether the file of that number is there and all its data are right, which it reads. */
bool pd_checkpoint_holds(const struct pd_checkpoint *ck, int number);
/* Reads and verifies all data.  Errors count as input, and name file and tensor. */
int pd_checkpoint_verify(const struct pd_checkpoint *ck, struct pd_error *err);
/*
 * Opens the newest checkpoint that can be verified as a whole; begins again if that is replaced
 * meanwhile.  passed_over is called for each newer one, newest first, with what is wrong with it.
 * Errors count as input: there is none, and why not the newest.
 */
struct pd_checkpoint *pd_checkpoint_newest(const char *directory,
					   void (*passed_over)(void *context, int64_t step,
							       const struct pd_error *why),
					   void *context, struct pd_error *err);
/*
 * Opens what a path names: DIRECTORY/step-N, as pd_checkpoint_open() does, or the newest in a DIRECTORY, whereupon
 * programs say what is wrong with newer ones.
 */
struct pd_checkpoint *pd_checkpoint_open_path(const char *path, struct pd_error *err);
/*
 * Sets *step_p to the highest step below `below` after which a folder in the directory is named, whatever
 * it contains; -1: none.  Errors count as input: the directory cannot be read.
 */
int pd_checkpoint_highest(const char *directory, int64_t below, int64_t *step_p, struct pd_error *err);
/* Refuses what is named as the folder of a checkpoint and is none: it would be in the way of one. */
int pd_checkpoint_check_names(const char *directory, struct pd_error *err);
/* Returns DIRECTORY/step-N; free() it. */
char *pd_checkpoint_folder(const char *directory, int64_t step);
/* Tells whether there is a folder of that step, whatever it contains. */
bool pd_checkpoint_exists(const char *directory, int64_t step);
void pd_checkpoint_close(struct pd_checkpoint *ck);
/* Returns its path, DIRECTORY/step-N. */
const char *pd_checkpoint_opened(const struct pd_checkpoint *ck);
const struct pd_checkpoint_info *pd_checkpoint_info(const struct pd_checkpoint *ck);
/*
 * Returns the stage that had a layer, with its versions, warmup and replicas; NULL if none had it.
 */
const struct pd_checkpoint_stage *pd_checkpoint_stage_of(const struct pd_checkpoint *ck,
							 const char *layer);
/* Returns the number of that stage, or -1. */
int pd_checkpoint_stage_number(const struct pd_checkpoint *ck, const char *layer);
/*
 * Lists the newest version of every parameter, and the states, as a new array; free() it.  Only what is
 * here: files may be elsewhere.
 */
size_t pd_checkpoint_list(const struct pd_checkpoint *ck, const struct pd_tensor ***list_p);
/* Tells whether there is a tensor of that name. */
bool pd_checkpoint_has(const struct pd_checkpoint *ck, const char *name);
/* Returns the elements of the tensor of that name, -1 if there is none. */
int64_t pd_checkpoint_elements(const struct pd_checkpoint *ck, const char *name);
/* Returns how many replicas have a tensor of that name; only one, if they have no files of their own. */
int pd_checkpoint_replicas_with(const struct pd_checkpoint *ck, const char *name);
/* Reads the tensor of a replica, from 0 on, as below. */
int pd_checkpoint_read_replica(const struct pd_checkpoint *ck, const char *name, int replica,
			       int64_t elements, float *out, struct pd_error *err);
/*
 * Reads a tensor by its name ("conv1.weight") at a version (a step; -1: the newest) into out,
 * `elements` floats.  Errors count as input: no such tensor or version, another number of elements,
 * damage.
 */
int pd_checkpoint_read(const struct pd_checkpoint *ck, const char *name, int64_t version,
		       int64_t elements, float *out, struct pd_error *err);

/* ---- from one folder to another ---- */

/* Reads the text of a checkpoint's document; free() it.  Errors count as input. */
char *pd_checkpoint_document(const char *directory, int64_t step, size_t *bytes_p,
			     struct pd_error *err);
/* Writes the bytes of a stage's and replica's file to a stream.  Errors count as failed. */
int pd_checkpoint_send(const char *directory, int64_t step, const struct pd_checkpoint_file *file,
		       FILE *to, struct pd_error *err);
/*
 * Receives such bytes into an unfinished folder: opens a file for them; then, when all are written,
 * checks them against the document.  A file that is not right is removed.
 */
int pd_checkpoint_receive(const char *directory, int64_t step, const struct pd_checkpoint_file *file,
			  struct pd_file *coming, struct pd_error *err);
int pd_checkpoint_received(const char *directory, const struct pd_checkpoint_info *info,
			   const struct pd_checkpoint_file *file, struct pd_file *coming,
			   struct pd_error *err);
/* Moves what was received into the checkpoint, whose document is there. */
int pd_checkpoint_adopt(const char *directory, int64_t step, const struct pd_checkpoint_file *file,
			struct pd_error *err);
