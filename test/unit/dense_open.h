/* SPDX-License-Identifier: Apache-2.0 */
/* Dense sums with groups and pieces that a test chooses. */
#pragma once

#include "engine/reduce/script.h"
#include "sums/allreduce.h"

static inline struct pd_reduction *dense_open(const struct pd_reduction_config *config,
					      const struct pd_allreduce *how, struct pd_error *err)
{
	struct pd_script script = { .floats = config->floats, .dtype = config->rounding.dtype,
				    .one_at_a_time = config->transport->ops->one_at_a_time };

	pd_allreduce_write(how, config->me, &script);
	return pd_script_open(&script, (size_t)pd_allreduce_staging_bytes(
		how, (int64_t)(config->floats * sizeof(float)), script.dtype), config, err);
}
