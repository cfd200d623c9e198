/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint.json and the names in a checkpoint's folder, inside lib/checkpoint. */
#ifndef PD_CHECKPOINT_INFO_H
#define PD_CHECKPOINT_INFO_H

#include "checkpoint/checkpoint.h"

#define PD_CHECKPOINT_DOCUMENT "checkpoint.json"

/* Where a stage's tensors are written, in the folder that is not finished; free() it. */
char *pd_checkpoint_stage_path(const char *directory, int64_t step, int stage);
/* "stage-K.safetensors"; free() it. */
char *pd_checkpoint_stage_name(int stage);
/* DIRECTORY/step-N; free() it. */
char *pd_checkpoint_folder(const char *directory, int64_t step);
/* The step that a folder's name says, -1 when it is no checkpoint's. */
int64_t pd_checkpoint_folder_step(const char *name);
/* Is this the name of a folder that a writer left unfinished? */
bool pd_checkpoint_unfinished(const char *name);

/* FOLDER/checkpoint.json: written, flushed to the disk; read and checked. */
int pd_checkpoint_info_write(const char *folder, const struct pd_checkpoint_info *info,
			     struct pd_error *err);
int pd_checkpoint_info_read(const char *folder, struct pd_checkpoint_info *info_p,
			    struct pd_error *err);

#endif
