/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors of a network, by name, wherever they are: in a safetensors file, in several that an index
 * lists, in a Hugging Face folder, in an ONNX file, or in a checkpoint of ours.  Only headers are read
 * when it is opened; of the rest, what is asked for.
 */
#pragma once

#include "base/names.h"
#include "checkpoint/safetensors.h"

struct pd_tensors;

/*
 * Opens what a path names:
 *     FILE.safetensors                     or any file that is neither of these
 *     FILE.json                            an index of safetensors files beside it
 *     FILE.onnx
 *     FOLDER                               with model.safetensors, or model.safetensors.index.json
 *     DIRECTORY, DIRECTORY/step-N          checkpoints: the newest, or that one
 * Errors count as input.
 */
struct pd_tensors *pd_tensors_open(const char *path, struct pd_error *err);
void pd_tensors_close(struct pd_tensors *tensors);
struct pd_checkpoint;
/*
 * Returns what pd_tensors_open() opens of a directory of checkpoints, DIRECTORY/step-N of the newest
 * that is whole; else a copy of the path.  free() it.  NULL: an error, which counts as input.
 * *held_p: the checkpoint, to be closed when all has been read; NULL if the path names something
 * else.
 */
char *pd_tensors_find_held(const char *path, struct pd_checkpoint **held_p, struct pd_error *err);

/* Returns the path, for messages. */
const char *pd_tensors_path(const struct pd_tensors *tensors);
/* Are names and shapes ours, as in a checkpoint? */
bool pd_tensors_are_ours(const struct pd_tensors *tensors);
/* Are there others than those of parameters and states?  A graph has its constants among them. */
bool pd_tensors_have_constants(const struct pd_tensors *tensors);
/* Lists all, by name. */
size_t pd_tensors_list(const struct pd_tensors *tensors, const struct pd_tensor *const **list_p);
/* Returns the tensor of that name, or NULL. */
const struct pd_tensor *pd_tensors_find(const struct pd_tensors *tensors, const char *name);
/*
 * Sets *sum_p to a checksum by which others with the same names are told apart: a checkpoint's own;
 * else that of all names, types and shapes, and of some elements of each.  Errors count as input.
 */
int pd_tensors_checksum(struct pd_tensors *tensors, uint64_t *sum_p, struct pd_error *err);
/* Reads `count` elements of a tensor from `first` on.  Errors count as input. */
int pd_tensors_read(struct pd_tensors *tensors, const struct pd_tensor *tensor, int64_t first, int64_t count,
		    float *out, struct pd_error *err);

/* ---- private to lib/checkpoint ---- */

/* Where tensors are.  One of the two reads is there: of some elements, or of all. */
struct pd_tensors_ops {
	bool ours, constants;
	size_t (*list)(void *of, const struct pd_tensor ***list_p);     /* a new array, in any order */
	int (*read_some)(void *of, const struct pd_tensor *tensor, int64_t first, int64_t count, float *out,
			 struct pd_error *err);
	int (*read_all)(void *of, const struct pd_tensor *tensor, float *out, struct pd_error *err);
	void (*close)(void *of);
};

/* Each opens what its name says; *of_p goes with the ops. */
typedef const struct pd_tensors_ops *pd_tensors_opener(const char *path, void **of_p, struct pd_error *err);
pd_tensors_opener pd_tensors_of_file, pd_tensors_of_index, pd_tensors_of_onnx, pd_tensors_of_checkpoint;
