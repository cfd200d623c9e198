/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file of a stage: the tensors in it and their checksums; private to lib/checkpoint.  A checksum in
 * the file's header covers a tensor's bytes and what they are: step, stage, name, type and shape. 
 * checkpoint.json has the checksum of the header, and one of its own.
 */
#pragma once

#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"

/*
 * Checks that the header fits the document: step and stage, the tensors that its layers, versions
 * and optimizer need, and the checksum in the document.  Errors count as input.
 */
int pd_stage_check(const struct pd_safetensors *st, const struct pd_checkpoint_info *info,
		   const struct pd_checkpoint_file *file, struct pd_error *err);
/*
 * Checks the data of all tensors against their checksums, if the file has them.  Errors count as
 * input.
 */
int pd_stage_verify(const struct pd_safetensors *st, const struct pd_checkpoint_info *info,
		    int stage, struct pd_error *err);
/* Reads a tensor into out, tensor->elements floats, and verifies it.  Errors count as input. */
int pd_stage_read(const struct pd_safetensors *st, const struct pd_checkpoint_info *info, int stage,
		  const struct pd_tensor *tensor, float *out, struct pd_error *err);
/* Is it a parameter in its newest version, or a state?  Not a moment, an older version and the like. */
bool pd_stage_is_newest(const struct pd_tensor *tensor);
