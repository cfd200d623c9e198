/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stage's file, inside lib/checkpoint: which tensors belong in it, and their checksums.  A
 * checksum stands in the file's header and is of a tensor's bytes and of what they are: step,
 * stage, name, type and shape.  checkpoint.json has the checksum of the header, and its own.
 */
#ifndef PD_CHECKPOINT_STAGE_H
#define PD_CHECKPOINT_STAGE_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"

/* Does the header fit the document: a stage of that step, with the tensors that its layers, versions
 * and optimizer need, and with the checksum that the document has?  Errors: input. */
int pd_stage_check(const struct pd_safetensors *st, const struct pd_checkpoint_info *info, int stage,
		   struct pd_error *err);
/* The data of all tensors against their checksums, where the file has them.  Errors: input. */
int pd_stage_verify(const struct pd_safetensors *st, const struct pd_checkpoint_info *info,
		    int stage, struct pd_error *err);
/* Reads a tensor into out, tensor->elements floats, and verifies what was read.  Errors: input. */
int pd_stage_read(const struct pd_safetensors *st, const struct pd_checkpoint_info *info, int stage,
		  const struct pd_tensor *tensor, float *out, struct pd_error *err);

#endif
