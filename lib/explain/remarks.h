/* SPDX-License-Identifier: Apache-2.0 */
/* What a plan does not say itself, in a line each on standard error; nothing where there is nothing
 * to say. */
#pragma once

#include "planner/planner.h"

/* Which layers share parameters, if that keeps them in one stage, and what would not. */
void pd_remark_shared(const struct pd_plan *plan, const struct pd_plan_request *request);
/* That memory is that of another system, which no option asked for. */
void pd_remark_memory(const struct pd_plan *plan, const char *system);
/* That the plan has the kinds of devices in another order than the machine was given. */
void pd_remark_order(const struct pd_plan *plan, const struct pd_topology *given);
/* That nothing is computed again though that was asked for, in the words of --recompute: it saves
 * no memory. */
void pd_remark_recompute(const struct pd_plan *plan, const struct pd_plan_request *request,
			 const char *asked);
/*
 * That the formula of a schedule of two stages a rank is not the best order: zb-v's is made for a
 * pipeline that is full, the others' for stages that take equally long.
 */
void pd_remark_formula(const struct pd_plan *plan);
