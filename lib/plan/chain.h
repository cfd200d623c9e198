/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the pipelines of other systems ask of a plan: stages that each take what the one before makes, with one
 * version of the weights and, where they have replicas, as many everywhere.  `who` is the system, for messages,
 * which name what is at fault and say what to do; all of these fail with PD_EXIT_USAGE.
 */
#pragma once

#include "plan/wiring.h"

int pd_chain_check_flush(const struct pd_plan *plan, const char *who, struct pd_error *err);
int pd_chain_check_replicas(const struct pd_plan *plan, const char *who, struct pd_error *err);
/* Refuses tensors that skip stages, or that a stage only passes on. */
int pd_chain_check_links(const struct pd_plan *plan, const struct pd_wiring *wiring, const char *who,
			 struct pd_error *err);
/* Refuses layers of different stages that share parameters. */
int pd_chain_check_shares(const struct pd_plan *plan, const char *who, struct pd_error *err);
