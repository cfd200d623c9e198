/* SPDX-License-Identifier: Apache-2.0 */
/* What devices would bring that a plan leaves idle. */
#pragma once

#include "planner/best.h"

/*
 * Sets plan->predicted.more: of what was found, or else of equal pipelines, the plan with most
 * samples per second on more devices.  `won` is the plan's variant.
 */
void pd_idle_look(const struct pd_best *best, const struct pd_variants *variants,
		  const struct pd_variant *won, struct pd_plan *plan);
