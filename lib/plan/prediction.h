/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes "predicted" of pd-plan(5). */
#pragma once

#include "base/json.h"
#include "plan/plan.h"

/*
 * The object at place may be absent.  *out is zero before, and is to be released also on failure.
 */
int pd_prediction_read(const struct pd_place *place, struct pd_prediction *out,
		       struct pd_error *err);
json_t *pd_prediction_json(const struct pd_prediction *predicted);  /* a new reference */

/* Returns stages such as "8x3,6x1", as pd-plan --stages takes them; the caller frees it. */
char *pd_plan_stages_text(const struct pd_plan *plan);
/*
 * Returns the stages that recompute, such as "0,2", as for --recompute; NULL: none.  The caller
 * frees it.
 */
char *pd_plan_recomputed_text(const struct pd_plan *plan);
