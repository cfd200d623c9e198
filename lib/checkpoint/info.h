/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint.json and the names in a checkpoint's folder; private to lib/checkpoint. */
#pragma once

#include "checkpoint/checkpoint.h"

#define PD_CHECKPOINT_DOCUMENT "checkpoint.json"
#define PD_CHECKPOINT_DOCUMENT_BYTES_MOST 100000000

/* Returns the path of a file in a folder; free() it. */
char *pd_checkpoint_path(const char *folder, const struct pd_checkpoint_file *file);
/* Returns the path of a file in the unfinished folder; free() it. */
char *pd_checkpoint_unfinished_path(const char *directory, int64_t step,
				    const struct pd_checkpoint_file *file);
/* Returns the step in a folder's name, -1 if it is not a checkpoint's. */
int64_t pd_checkpoint_folder_step(const char *name);

/* Reads and checks FOLDER/checkpoint.json. */
int pd_checkpoint_info_read(const char *folder, struct pd_checkpoint_info *info_p,
			    struct pd_error *err);
