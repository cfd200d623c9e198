/* SPDX-License-Identifier: Apache-2.0 */
/* What was found of initial parameters; private to initial.c and initial_check.c. */
#pragma once

#include "doors/tensors/initial.h"
#include "doors/tensors/tensors.h"
#include "model/outside.h"

/* Where a tensor of ours is: a part of one of theirs. */
struct pd_found {
	const struct pd_tensor *tensor;
	const struct pd_outside *outside;
	const struct pd_outside_part *part;
};

struct pd_initial {
	const struct pd_model *model;
	const char *anew;               /* as pd_initial_open() has it */
	struct pd_tensors *tensors;
	struct pd_outsides outside, ours;
	json_t *known;                  /* names of theirs that are used, or may be */
	json_t *found;                  /* "LAYER.weight" of the owner -> number of its place */
	struct pd_found *places;
	size_t count, room;
};

/* Does a tensor of that name, ours or one that is there, begin anew? */
bool pd_initial_is_anew(const struct pd_initial *initial, const char *name);
/* Begins all of it anew? */
bool pd_initial_outside_is_anew(const struct pd_initial *initial, const struct pd_outside *outside);
/* Refuses names of `anew` that nothing has. */
int pd_initial_check_anew(const struct pd_initial *initial, struct pd_error *err);
/* Has all of it been found? */
bool pd_initial_has_all(const struct pd_initial *initial, const struct pd_outside *outside);
/* Refuses what lacks something, or has something that the model has no place for. */
int pd_initial_check(const struct pd_initial *initial, struct pd_error *err);
