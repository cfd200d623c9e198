/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint of two stages with four tensors each: sgd with momentum, one older version. */
#pragma once

#include "checkpoint/checkpoint.h"

#define SMALL_STAGES 2
#define SMALL_TENSORS 4                 /* tensors of a stage */
#define SMALL_ELEMENTS 6                /* elements of a tensor */

/* Returns the checkpoint's document, valid until the next call; the caller frees info.optimizer. */
struct pd_checkpoint_info small_info(int64_t step);
/* Returns element i of a tensor. */
float small_value(int64_t step, const char *name, int i);
/* Writes the file of one stage into the folder of the unfinished checkpoint. */
int small_write_stage(const char *directory, int64_t step, int stage, struct pd_error *err);
/* Writes the whole checkpoint, and keeps so many. */
int small_save(const char *directory, int64_t step, int keep, struct pd_error *err);
