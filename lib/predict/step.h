/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plan's step, one update of the weights by the global batch, in the field's figures.
 *
 * The FLOPs of a step are three times those of the products of one forward of the global batch, two for each pair of
 * numbers: forward, and both gradients.  An attention counts all its scores, masked or not, and what is recomputed
 * counts nothing (Chowdhery et al., PaLM, 2022, appendix B: 6 N + 12 L H Q T of a transformer's token).  MFU is their
 * rate over what the device's data sheet says of dense products in the profile's dtype.
 */
#pragma once

#include "plan/plan.h"

/* Returns the tokens of a sample: the length of the first input of whole numbers in a row; 0: samples are no tokens. */
int64_t pd_sample_tokens(const struct pd_model *model);

/* Returns the devices that a plan uses. */
static inline int64_t pd_plan_devices(const struct pd_plan *plan)
{
	return pd_degrees_devices(&plan->profile->group) * plan->rank_count;
}

/* Returns the figures of a step, by the time of a microbatch; what is not known is 0. */
struct pd_step pd_step_at(const struct pd_plan *plan, int64_t period_ns);
