/* SPDX-License-Identifier: Apache-2.0 */
/* The ideal time line: when what is done, in ticks.  See ideal.c. */
#ifndef PD_SCHEDULE_IDEAL_H
#define PD_SCHEDULE_IDEAL_H

#include "schedule/schedule.h"

/* Of microbatch n (from 0 in its phase) at stage s. */
int64_t pd_ideal_forward(const struct pd_schedule *schedule, bool evaluate, int s, int64_t n);
int64_t pd_ideal_backward(const struct pd_schedule *schedule, int s, int64_t n);
int64_t pd_ideal_recompute(const struct pd_schedule *schedule, int s, int64_t n);
int64_t pd_ideal_backward_weight(const struct pd_schedule *schedule, int s, int64_t n);
/* When the inbox that it will use is free. */
int64_t pd_ideal_inbox(const struct pd_schedule *schedule, bool evaluate, int s, int64_t n);
/* When its activations go from one stage to another. */
int64_t pd_ideal_activation(const struct pd_schedule *schedule, bool evaluate, int from, int to,
			    int64_t n);
/* Of the all-reduce of group u, of what all ranks agree on, and of the update. */
int64_t pd_ideal_allreduce(const struct pd_schedule *schedule, int s, int64_t u);
int64_t pd_ideal_agree(const struct pd_schedule *schedule, int64_t u);
int64_t pd_ideal_step(const struct pd_schedule *schedule, int s, int64_t u);

/*
 * Ticks from what is done of one microbatch to the same of the next, on the lines on which that is
 * always the same but where a group or the start-up ends; 0 on others.
 */
int64_t pd_ideal_pitch(const struct pd_schedule *schedule, bool evaluate);
/* The first microbatch after n for which that is not so, of times that depend on n - behind. */
int64_t pd_ideal_even_until(const struct pd_schedule *schedule, bool evaluate, int64_t n,
			    int64_t behind);

/* The version that forward, or backward, of microbatch n reads, counted from the phase's
 * beginning; negative: before it. */
int64_t pd_ideal_version(const struct pd_schedule *schedule, int s, int64_t n, bool backward);

#endif
