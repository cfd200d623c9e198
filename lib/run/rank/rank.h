/* SPDX-License-Identifier: Apache-2.0 */
/* Training, as one rank does it. */
#pragma once

#include "run/launch/task.h"

/* For pd-worker; run/job/job.h says which messages follow. */
extern const struct pd_rank_task pd_training_task;
