/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint of two stages with four tensors each: sgd with momentum, one older version. */
#pragma once

#include "checkpoint/checkpoint.h"

#define SMALL_STAGES 2
#define SMALL_TENSORS 4                 /* of a stage */
#define SMALL_ELEMENTS 6                /* of a tensor */

/* Its document; valid until the next call.  info.optimizer is the caller's. */
struct pd_checkpoint_info small_info(int64_t step);
/* Element i of a tensor. */
float small_value(int64_t step, const char *name, int i);
/* The file of one stage, in the folder that is not finished. */
int small_write_stage(const char *directory, int64_t step, int stage, struct pd_error *err);
/* All of it. */
int small_save(const char *directory, int64_t step, int keep, struct pd_error *err);
