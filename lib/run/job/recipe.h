/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What parameters are trained with, besides their network: the optimizer's settings, the data, the
 * plan.  A checkpoint knows it, so that a run that goes on with something else says so.  Private to
 * lib/job, but for pd_job.recipe.
 */
#pragma once

#include "run/job/job.h"

/*
 * Makes a new object: "optimizer", as it is in a checkpoint; "data"; "plan"; "tf32".  The data set is
 * open, and the counts of minibatches and the data's checksum are known.
 */
json_t *pd_recipe_make(const struct pd_job *job, const struct pd_dataset *train);

/* Says what the run goes on with otherwise than the checkpoint was trained, in a line for each. */
void pd_recipe_tell(const struct pd_job *job, const struct pd_checkpoint_info *info);

/* How a job uses the parameters of a checkpoint. */
enum pd_recipe_use { PD_RECIPE_RESUMES, PD_RECIPE_EVALUATES, PD_RECIPE_BEGINS };

/*
 * Compares the network with that of a checkpoint, whose folder is `where`.  A resumed run refuses
 * what differs; an evaluation does, but for what only training computes; a run that begins with its
 * parameters does if a layer computes otherwise, and says the rest, or all where some layers begin
 * anew.
 */
int pd_recipe_check_network(const struct pd_job *job, const struct pd_checkpoint_info *info,
			    const char *where, enum pd_recipe_use use, struct pd_error *err);
