/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes "predicted" of pd-plan(5). */
#pragma once

#include "base/rows.h"
#include "plan/plan.h"

/* NULL-terminated, from PD_PERIOD_REPLAY on. */
extern const char *const pd_period_kind_name[PD_PERIOD_KINDS];

extern const struct pd_key_row pd_prediction_rows[];

/* Returns stages such as "8x3,6x1", as pd-plan --stages takes them; the caller frees it. */
char *pd_plan_stages_text(const struct pd_plan *plan);
/*
 * Returns the stages that recompute, such as "0,2", as for --recompute; NULL: none.  The caller
 * frees it.
 */
char *pd_plan_recomputed_text(const struct pd_plan *plan);
