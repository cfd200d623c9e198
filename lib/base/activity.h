/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process does, as the system sees it, for limits on how long one may say nothing: one that computes,
 * or that waits for a processor or a disk, does not hang, however long that takes.
 */
#pragma once

#include <sys/types.h>

enum pd_activity {
	PD_ASLEEP,              /* all its threads wait for something, or are stopped */
	PD_HELD_UP,             /* it waits for a disk, or cannot be looked at now */
	PD_RUNS,                /* it used a processor since the last look, or wants one */
};

/* Looks at a process of this machine.  *ticks_p: its processor time at the last look; 0 at first. */
enum pd_activity pd_activity_of(pid_t pid, long *ticks_p);
