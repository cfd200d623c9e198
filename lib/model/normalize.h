/* SPDX-License-Identifier: Apache-2.0 */
/* How numbers of an input are normalised before the network takes them: (number - mean) / std. */
#pragma once

#include "base/json.h"
#include "model/model.h"

/* Reads "normalize" of an input whose shape is known; does nothing where there is none. */
int pd_normalize_read(const struct pd_place *place, struct pd_input *input, struct pd_error *err);
/*
 * Normalises the model's only f32 input as an option says, MEAN,STD, each one number or one for each channel
 * with ":" between them; its document says so from then on.  Errors: input, also where the model says otherwise.
 */
int pd_model_normalize(struct pd_model *model, const char *text, struct pd_error *err);
/*
 * Normalises the inputs as a document of the same model does, which is called `whose`, where this one says nothing
 * itself.  *note_p: what to tell of that, or of an input of which only this one says something; else it stays.
 * Errors: input, where both say something else.
 */
int pd_model_normalize_as(struct pd_model *model, const char *whose, json_t *document, const char **note_p,
			  struct pd_error *err);
