/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model document of an ONNX file, as torch.onnx writes one that it has been told not to optimize.  Weights
 * stay where they are: the document says how they are called there.
 */
#pragma once

#include "base/json.h"

enum pd_onnx_loss { PD_ONNX_CROSS_ENTROPY, PD_ONNX_MSE };
extern const char *const pd_onnx_loss_name[];   /* NULL-terminated */

/*
 * frozen: names of what is frozen, as pd_names_match() has them, or NULL; a batch normalisation among these normalises
 * by its running statistics.  Returns a new reference.  Errors count as input: the file cannot be read, or has what no kind of layer
 * computes.
 */
json_t *pd_onnx_document(const char *file, const char *name, enum pd_onnx_loss loss, const char *frozen,
			 struct pd_error *err);
