/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters to begin training with, from a safetensors file in which tensors have PyTorch's names:
 * "LAYER.weight", "LAYER.bias", "LAYER.running_mean", "LAYER.running_var".  Each layer that shares
 * parameters may have them.  "LAYER.num_batches_tracked" is ignored.
 */
#pragma once

#include "base/error.h"
#include "model/model.h"

#include <stdint.h>

struct pd_initial;

/*
 * Opens the file, and checks that it has all parameters and running statistics of the model, in its
 * shapes, of type F32, F16 or BF16, and nothing else.  Errors count as input.
 */
struct pd_initial *pd_initial_open(const char *file, const struct pd_model *model,
				   struct pd_error *err);
void pd_initial_close(struct pd_initial *initial);
/*
 * Reads a tensor of the model by its name, that of the layer which owns it, into out, `elements`
 * floats.  Errors count as input.
 */
int pd_initial_read(const struct pd_initial *initial, const char *name, int64_t elements, float *out,
		    struct pd_error *err);
