/* SPDX-License-Identifier: Apache-2.0 */
/* What a network leaves to be searched on a device by its data sheet: sizes of microbatches, devices that share layers. */
#pragma once

#include "estimate/estimate.h"

#define PD_ESTIMATE_SIZES 4             /* such as 1, 2, 4 and 8 samples */
#define PD_TENSOR_TEXT 32

/*
 * Makes a profile for each size from `least` on, twice as many samples each time, of at most `most`; where least is
 * more than that, from fewer on.  All else is as how says.  Returns how many, which the caller frees, or -1.
 */
int pd_estimate_sizes(const struct pd_estimate *how, const struct pd_model *model, int64_t least,
		      int64_t most, struct pd_profile *profiles[PD_ESTIMATE_SIZES], struct pd_error *err);
/*
 * Writes how many of at most `most` devices can share the network out, such as "1,2,4,8,sequence", as --tensor has
 * it; returns whether more than one can.
 */
bool pd_estimate_tensor(const struct pd_model *model, int64_t most, char text[PD_TENSOR_TEXT]);
