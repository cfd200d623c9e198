/* SPDX-License-Identifier: Apache-2.0 */
/* The timeline of ticks: the tick at which each operation is done.  See tick.c. */
#pragma once

#include "schedule/schedule.h"

/* These return the ticks of microbatch n at stage s. */
int64_t pd_tick_of_forward(const struct pd_schedule *schedule, bool evaluate, int s, int64_t n);
int64_t pd_tick_of_backward(const struct pd_schedule *schedule, int s, int64_t n);
int64_t pd_tick_of_recompute(const struct pd_schedule *schedule, int s, int64_t n);
int64_t pd_tick_of_backward_weight(const struct pd_schedule *schedule, int s, int64_t n);
/* Returns when the inbox that the microbatch will use is free. */
int64_t pd_tick_of_inbox(const struct pd_schedule *schedule, bool evaluate, int s, int64_t n);
/* Returns when the microbatch's activations go from one stage to another. */
int64_t pd_tick_of_activation(const struct pd_schedule *schedule, bool evaluate, int from, int to,
			      int64_t n);
/* Returns when the gradient of what stage s made goes to it, from whichever stage. */
int64_t pd_tick_of_gradient(const struct pd_schedule *schedule, int s, int64_t n);
/*
 * These return the ticks of the all-reduce and of the step of group u, and of the agree of all
 * ranks.
 */
int64_t pd_tick_of_allreduce(const struct pd_schedule *schedule, int s, int64_t u);
/* Returns the tick of the last backward of group u, at which the sums of several buckets are, too. */
int64_t pd_tick_of_buckets(const struct pd_schedule *schedule, int s, int64_t u);
/* Returns the tick at which the norms of chunks are summed, before the step: a checkpoint has them. */
int64_t pd_tick_of_norms(const struct pd_schedule *schedule, int s, int64_t u);
int64_t pd_tick_of_agree(const struct pd_schedule *schedule, int64_t u);
int64_t pd_tick_of_step(const struct pd_schedule *schedule, int s, int replica, int64_t u);

/*
 * Returns the ticks from an operation of one microbatch to the same of the next, for schedules in
 * which these are equal except at the end of a group or of the start-up; 0 for others.
 */
int64_t pd_ticks_per_microbatch(const struct pd_schedule *schedule, bool evaluate);
/*
 * Returns the first microbatch after n at which these ticks are not equal, for times that depend on
 * n - behind.
 */
int64_t pd_ticks_even_until(const struct pd_schedule *schedule, bool evaluate, int64_t n,
			    int64_t behind);

/* Tell whether microbatch n's forward is beside a backward, and whether its backward is one operation (pattern.h). */
bool pd_tick_beside(const struct pd_schedule *schedule, int s, int64_t n);
bool pd_tick_whole(const struct pd_schedule *schedule, int s, int64_t n);

/*
 * Returns the version that forward, or backward, of microbatch n reads, counted from the phase's
 * beginning; a negative version is older.
 */
int64_t pd_tick_version(const struct pd_schedule *schedule, int s, int64_t n, bool backward);
