/* SPDX-License-Identifier: Apache-2.0 */
/* Which ranks exchange anything with each other: whom a transport has to connect. */
#ifndef PD_SCHEDULE_MEET_H
#define PD_SCHEDULE_MEET_H

#include "schedule/schedule.h"

/*
 * Does rank a ever send anything to rank b, or b to a?  Of replicas that exchange activations,
 * those that some microbatch belongs to both; all replicas of a stage; and all that an update
 * takes which they agree on.  Rank a with itself: where it has several stages.  Of a run so short
 * that not all replicas have a microbatch, too many.
 */
bool pd_schedule_meet(const struct pd_schedule *schedule, int a, int b);

#endif
