/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows: how much a stage has to be ahead for a period to be possible; private to this folder.
 *
 * For a period P the least warm-ups follow from the cycles of flow.c.  Let lead_s = w_s r_s,
 * t_s = forward + backward, A_s the all-reduce and update, C_s the transfer to s + 1.  What
 * comes back to s from the stages behind it takes, with
 *
 *     X_s = t_s + 2 C_s + G_{s+1},     G_s = max( lead_s P + t_s,  X_s ),     G_S = 0,
 *
 * at least X_s (the cycle that turns at e takes lead_e P less, for as many minibatches overtake
 * it there), so
 *
 *     (lead_s + r_s) P >= X_s + A_s
 *
 * and lead_s >= lead_{s+1}, or the pipeline would deadlock.  Replicas that update together
 * begin together: minibatches come to s + 1 in bursts of r_s, of which the last comes back last
 * and the first goes on after that.  So what is ahead for r_s minibatches without replicas is
 * ahead for one, in the worst case: lead_s + 1 in place of lead_s + r_s.
 */
#ifndef PD_PLANNER_WINDOW_H
#define PD_PLANNER_WINDOW_H

#include "plan/plan.h"

#include <stdbool.h>

/* The times of the windows. */
struct pd_window {
	int64_t *pass_ns, *update_ns, *transfer_ns;     /* per stage: t, A, C */
	int64_t *once_ns;       /* t where only those recompute that must */
	int64_t *sends_ns;      /* the part of A in which a replica sends, at least */
	int64_t busiest_ns;     /* the busiest link's */
};

void pd_window_init(struct pd_window *window, const struct pd_plan *plan);
void pd_window_release(struct pd_window *window);
/* Call this when other stages recompute, which changes their times. */
void pd_window_pass(struct pd_window *window, const struct pd_plan *plan);

/*
 * Gives the plan the least warm-ups for a period, or the most that are considered (warmup.h). 
 * together: replicas that update together also begin together; else each begins by itself.
 */
void pd_window_set_least(struct pd_plan *plan, const struct pd_window *window, int64_t period,
			 bool together);

/*
 * Returns a time that no estimate is below, whatever the warm-ups: of the busiest link, or a
 * replica's work.
 */
int64_t pd_window_floor_ns(const struct pd_plan *plan, const struct pd_window *window);
/* Returns the time of the slowest stage by itself. */
int64_t pd_window_slowest_ns(const struct pd_plan *plan, const struct pd_window *window);

#endif
