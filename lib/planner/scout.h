/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first look at a variant: equal pipelines of all lengths, numbers of replicas and of virtual stages.  A formula
 * ranks all of them, and the best are made plans of, fitted into the memory and estimated.
 */
#pragma once

#include "planner/best.h"

/* A shape of equal pipelines. */
struct pd_pipelines {
	int positions, replicas, chunks;
	int64_t microbatches;           /* of an update, of all pipelines */
	double value;                   /* by the formula, as in best.h */
};

/*
 * Lists the shapes of a variant by the formula, the best first, at most `most`; returns how many.  Few are of one
 * number of positions.
 */
int pd_scout_shapes(const struct pd_variant *variant, struct pd_pipelines *list, int most);
/* Returns a copy of the stages of a shape, which the caller frees, or NULL. */
struct pd_partition *pd_scout_partition(const struct pd_variant *variant, const struct pd_pipelines *shape);
/* Offers the best equal pipelines, and a plan of unequal stages that is found quickly. */
void pd_scout(struct pd_best *best, struct pd_variant *variant);
