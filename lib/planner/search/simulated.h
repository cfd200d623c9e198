/* SPDX-License-Identifier: Apache-2.0 */
/* The search under the cost "simulated". */
#pragma once

#include "planner/cut/task.h"

/*
 * Returns the best plan that is found, as replays judge it, and its time.  NULL where there is none: with the status
 * PD_EXIT_NO if none fits, and then *closest_p is the one that needs least, or NULL where none can be made.
 */
struct pd_plan *pd_simulated_plan(const struct pd_task *task, int64_t *time_ns_p, struct pd_plan **closest_p,
				  struct pd_error *err);
/* Returns the best plan of the line search alone, by its estimate, and its time; or NULL. */
struct pd_plan *pd_simulated_glance(const struct pd_task *task, int64_t *time_ns_p);
/* Tells, after a quick look, whether there is a plan that fits. */
bool pd_simulated_fits(const struct pd_task *task);
