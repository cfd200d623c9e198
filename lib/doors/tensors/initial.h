/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters to begin training with, from wherever tensors are (doors/tensors/tensors.h): under the names, and in
 * the form, that the model says the outside has them in (model/outside.h), or under ours, "LAYER.weight".  Each
 * layer that shares parameters may have them.  Buffers that nothing uses are passed over, and so are
 * parameters of heads that the network does not have, where it comes from a Hugging Face folder.
 */
#pragma once

#include "base/error.h"
#include "model/model.h"

#include <stdbool.h>
#include <stdint.h>

struct pd_initial;

/*
 * Opens what the path names, and checks that it has all parameters and running statistics of the model, in
 * its shapes, as floats, and nothing else.  anew, or NULL: names, separated by commas, of what begins as the
 * model says whatever is there, and of tensors there that are passed over; what begins with a name and a dot has
 * that name, too, and '*' stands for any text.  Both must outlive it.  Errors count as input: among these a name of
 * nothing.
 */
struct pd_initial *pd_initial_open(const char *path, const struct pd_model *model, const char *anew,
				   struct pd_error *err);
/* Sets *sum_p as pd_tensors_checksum() does. */
int pd_initial_checksum(const struct pd_initial *initial, uint64_t *sum_p, struct pd_error *err);
void pd_initial_close(struct pd_initial *initial);
/* Tells whether a tensor of the model, by its name, is read; else it begins as the model says. */
bool pd_initial_has(const struct pd_initial *initial, const char *name);
/* Writes the first few names of such heads' parameters for a message, and returns how many there are. */
#define PD_INITIAL_TEXT 400
int pd_initial_other_heads(const struct pd_initial *initial, char list[PD_INITIAL_TEXT]);
/*
 * Reads a tensor of the model by its name, that of the layer which owns it, into out, `elements`
 * floats.  Errors count as input.
 */
int pd_initial_read(const struct pd_initial *initial, const char *name, int64_t elements, float *out,
		    struct pd_error *err);
