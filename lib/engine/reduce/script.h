/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions that play a script (sums/script.h). */
#pragma once

#include "engine/reduce/reduce.h"

/*
 * Opens one with a written script, which it takes over, and so much staging, with what the buffer is rounded to
 * at its end.  NULL: no memory.
 */
struct pd_reduction *pd_script_open(const struct pd_script *script, size_t staging_bytes,
				    const struct pd_reduction_config *config, struct pd_error *err);
