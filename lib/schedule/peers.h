/* SPDX-License-Identifier: Apache-2.0 */
/* Which ranks exchange data, so that a transport has to connect them. */
#pragma once

#include "schedule/schedule.h"

/*
 * Sets which ranks, of all of the plan, ever send anything to a rank or get anything from it.  Ranks
 * exchange activations if some microbatch belongs to both.  Replicas of a stage exchange gradients, as
 * their reducer does, the first one gives the others its state, and an agree has further pairs.  A rank with several stages sends to itself.  In
 * a run so short that some replicas have no microbatch, this names more pairs than exchange anything.
 */
void pd_schedule_peers(const struct pd_schedule *schedule, int rank, bool *peers);
