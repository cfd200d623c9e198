/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parameters of a checkpoint, as the outside has them (model/outside.h): a folder of safetensors files, which
 * is there as a whole or not at all.
 */
#pragma once

#include "base/error.h"
#include "model/model.h"

#include <stdint.h>

struct pd_export {
	const char *checkpoint;         /* DIRECTORY/step-N, or DIRECTORY: its newest */
	const struct pd_model *model;   /* says the names; NULL: the checkpoint's own */
	const char *folder;             /* to be made, or empty */
	int64_t shard_bytes;            /* of the tensors in a file, at most, unless one is larger; 0: one file */
	int dtype;                      /* of pd_export_dtypes; -1: the source's, f32 where that is not known */
};

/* "f32" and so on; NULL-terminated. */
extern const char *const pd_export_dtypes[];

/* What was written. */
struct pd_exported {
	int64_t step, bytes;            /* of the tensors */
	size_t tensors, files;
	const char *dtype;
	bool configured;                /* with config.json */
};

/*
 * Exports; one tensor at a time is in memory.  Errors: input where the checkpoint or the model cannot be read,
 * where they do not fit each other, or where the folder has something in it; failed where it cannot be written.
 */
int pd_export(const struct pd_export *what, struct pd_exported *done_p, struct pd_error *err);
