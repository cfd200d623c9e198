/* SPDX-License-Identifier: Apache-2.0 */
/* Which ranks exchange data, so that a transport has to connect them. */
#ifndef PD_SCHEDULE_PEERS_H
#define PD_SCHEDULE_PEERS_H

#include "schedule/schedule.h"

/*
 * Tells whether rank a ever sends anything to rank b, or b to a.  Ranks exchange activations if
 * some microbatch belongs to both.  Replicas of a stage exchange gradients, and an agree has
 * further pairs.  A rank with several stages sends to itself.  In a run so short that some replicas
 * have no microbatch, this names more pairs than exchange anything.
 */
bool pd_schedule_are_peers(const struct pd_schedule *schedule, int a, int b);

#endif
