/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All ranks agree on the loss scale, on the norm of all gradients, and on what follows from them.
 * This is plain C, so that every device can compute it where the numbers are.
 *
 * The vector is the same on every rank: for each layer the sum of squares of the gradients of the
 * parameters that it owns, or PD_ABSENT where it has none, and last the loss scale with which those
 * gradients were made.  One device makes each sum, in an order that does not depend on the
 * partition, and the sums are added here in the order of layers.  So the norm has the same bits on
 * every rank, in every schedule and for every partition.
 *
 * A version of the weights has a loss scale; backward of a group uses the scale of the version that
 * the group reads.  With one version that is the scale after the group before, with two (2BW) the
 * one after the group before that.  No message is needed for this.
 */
#pragma once

#include "base/inline.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#define PD_ABSENT (-1.0)

/* The loss scale of a version of the weights, in device memory. */
struct pd_scale {
	double loss_scale;
	int64_t good;                   /* updates since it changed, or since one was skipped */
	int64_t skipped;                /* updates skipped since training began */
};

/* An update reports this, in host memory, valid once its event is done. */
struct pd_outcome {
	double norm;                    /* of the gradients, unscaled and not clipped */
	double loss_scale;              /* the gradients were made with this */
	double next_loss_scale;
	int64_t skipped;
	bool skip;
};

struct pd_global_norm {
	const double *vector;	/* layers + 1 elements, device memory; NULL: ranks do not agree */
	int layers;
	double clip_norm;               /* 0: gradients are not clipped */
	double growth, backoff, least;  /* for the loss scale */
	int64_t interval;               /* good updates before it grows; 0: it is constant */
	const struct pd_scale *before;  /* scale of the version that is read; device memory */
	struct pd_scale *next;          /* scale of the version that is written; may be the same */
	struct pd_outcome *outcome;
};

/* Lowers a scale that overflowed.  The next group may have used the same scale; it counts once. */
PD_INLINE void pd_scale_skip(const struct pd_global_norm *a, double used, struct pd_scale *scale)
{
	double lower = used * a->backoff;

	scale->skipped++;
	scale->good = 0;
	if (a->interval == 0)
		return;
	if (lower < a->least)
		lower = a->least;
	if (lower < scale->loss_scale)
		scale->loss_scale = lower;
}

PD_INLINE void pd_scale_keep(const struct pd_global_norm *a, struct pd_scale *scale)
{
	scale->good++;
	if (a->interval == 0 || scale->good < a->interval)
		return;
	scale->loss_scale *= a->growth;
	scale->good = 0;
}

/*
 * Returns the factor for gradients before the update: 1 / scale, times clip_norm / norm where the
 * norm is larger than clip_norm (with PyTorch's 1e-6 against division by zero).  Sets
 * outcome_p->skip if any gradient anywhere is not finite; then only the version and its scale may
 * change.  *next_p is the scale of the version that is written.
 */
PD_INLINE double pd_global_norm_factor(const struct pd_global_norm *a, struct pd_scale *next_p,
				       struct pd_outcome *outcome_p)
{
	double sum = 0, used = a->vector[a->layers], clip = 1;

	for (int l = 0; l < a->layers; l++)
		if (a->vector[l] != PD_ABSENT)
			sum += a->vector[l];
	*next_p = *a->before;
	outcome_p->skip = !isfinite(sum);
	outcome_p->norm = sqrt(sum) / used;
	outcome_p->loss_scale = used;
	if (outcome_p->skip)
		pd_scale_skip(a, used, next_p);
	else
		pd_scale_keep(a, next_p);
	outcome_p->skipped = next_p->skipped;
	outcome_p->next_loss_scale = next_p->loss_scale;
	if (a->clip_norm > 0 && a->clip_norm / (outcome_p->norm + 1e-6) < 1)
		clip = a->clip_norm / (outcome_p->norm + 1e-6);
	return clip / used;
}
