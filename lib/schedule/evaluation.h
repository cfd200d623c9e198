/* SPDX-License-Identifier: Apache-2.0 */
/* The timeline of evaluations: the same for all kinds of schedules. */
#pragma once

#include "schedule/schedule.h"

/* Sets evaluated, leads and lingers, when all that training needs is there. */
void pd_evaluation_shape(struct pd_schedule *schedule);
