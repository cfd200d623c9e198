/* SPDX-License-Identifier: Apache-2.0 */
/* How fast a processor is at the moment: its clock, and what a sibling thread takes of it. */
#pragma once

#include <stdint.h>

/*
 * Returns the time of a fixed chain of operations of which each needs the one before, and none memory: the
 * shortest of several, so that others who take the processor in between do not count.  It takes a fraction of
 * a millisecond.
 */
int64_t pd_pulse_ns(void);
