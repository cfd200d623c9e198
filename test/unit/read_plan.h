/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a plan from a file that must not be a schedule. */
#pragma once

#include "schedule/file.h"
#include "schedule/list.h"

static inline struct pd_plan *read_plan_file(const char *file, struct pd_error *err)
{
	struct pd_lists *lists = NULL;
	struct pd_plan *plan = NULL;

	if (pd_schedule_or_plan_read(file, NULL, &lists, &plan, err) < 0)
		return NULL;
	if (lists) {
		pd_error_input(err, "%s: a schedule, expected a plan", file);
		pd_lists_free(lists);
	}
	return plan;
}
