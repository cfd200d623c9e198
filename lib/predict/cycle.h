/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cycles of 1F1B: the period that leads allow, and the leads that a period needs.
 *
 * With F_s, B_s the forwards and backwards of stage s, t_s the time of both, u_s that of an update, A_s
 * that of an all-reduce, C_s that of a transfer to the next stage, w warm-ups and r replicas, the orders
 * and dependencies of lib/schedule/tick.c are a timed event graph, in which F_s precedes F_{s+1} and
 * B_{s+1} precedes B_s (C_s, no token), F_s precedes B_s (-w_s r_s tokens), and B_s precedes F_s
 * ((w_s + 1) r_s tokens).  An elementary cycle climbs from F_s to F_e, turns, comes down from B_e and
 * closes at s.  The period is the greatest ratio of time to tokens over s <= e:
 *
 *     ( sum_{s..e} t + 2 sum_{s..e-1} C + A_s + u_s ) / ( (w_s + 1) r_s - w_e r_e )
 *
 * Where an update has more microbatches than there are replicas, A_s + u_s counts in the mean.  A stage
 * that recomputes does so where the cycle turns; elsewhere it does so before the gradient arrives.  The
 * ratio is the period exactly where no stage has replicas and all links go to the next one.  With replicas
 * there are other cycles (flow.c), and links and ranks that stages share are further resources.
 *
 * With nF1B the N microbatches of a minibatch go forward one behind the other, and then back.  Such a cycle
 * has N times the tokens, N (w_s + 1 - w_e), and all of A_s + u_s; N - 1 times the slowest forward or transfer
 * in it, and the slowest backward or transfer with its stage's recomputation, come on top.
 *
 * Windows: how much a stage has to be ahead for a period P to be possible.  With lead_s = w_s r_s, what
 * comes back to s from the stages behind it takes
 *
 *     X_s = t_s + 2 C_s + G_{s+1},     G_s = max( lead_s P + t_s,  X_s ),     G_S = 0,
 *
 * at least (the cycle that turns at e takes lead_e P less, as many minibatches overtake it there), so
 *
 *     (lead_s + r_s) P >= X_s + A_s + u_s
 *
 * and lead_s >= lead_{s+1}, or the pipeline would deadlock.  Replicas that update together
 * begin together: minibatches come to s + 1 in bursts of r_s, of which the last comes back last
 * and the first goes on after that.  So what is ahead for r_s minibatches without replicas is
 * ahead for one, in the worst case: lead_s + 1 in place of lead_s + r_s.
 *
 * Private to the planner.
 */
#pragma once

#include "base/mem.h"
#include "predict/cost.h"
#include "schedule/schedule.h"

/* The times of a stage for a microbatch, on the slowest of its devices, and by how many microbatches it is ahead. */
struct pd_stage_times {
	int64_t forward_ns, backward_ns;
	int64_t again_ns;               /* of a forward before each backward */
	int64_t update_ns;
	int64_t reduce_ns;              /* of an all-reduce between a backward and a forward */
	int64_t way_ns;                 /* of the slowest transfer to the next stage */
	int64_t lead, replicas, group;  /* group: microbatches of an update */
	int64_t together;               /* microbatches that go forward before one of them goes back */
};

/* Returns the time of the slowest transfer from a stage to the next. */
int64_t pd_stage_way_ns(const struct pd_plan *plan, const struct pd_wiring *wiring, int stage);
/* Returns the time of a stage's update on the slowest of its devices, into another buffer if there are several versions. */
int64_t pd_stage_update_ns(const struct pd_schedule *schedule, int stage);
/* Returns the times of a stage on a rank, of which those on the slowest of its devices are known. */
struct pd_stage_times pd_stage_times_on(const struct pd_schedule *schedule, const struct pd_stage_times *slowest,
					int stage, int rank);
/* Returns the times of a plan's stages, whose predictions are known; the caller frees them. */
struct pd_stage_times *pd_stage_times_of(const struct pd_schedule *schedule);

/* A cycle, from stage `first` to `last` and back. */
struct pd_cycle {
	int first, last;
	int64_t tokens, period_ns;      /* rounded down */
};

/* Returns the cycle with the greatest ratio, the shortest of equal ones. */
struct pd_cycle pd_cycle_slowest(const struct pd_stage_times *times, int count);

/* Returns X_s. */
static inline int64_t pd_window_back_ns(int64_t pass_ns, int64_t way_ns, int64_t behind_ns)
{
	return pd_min(pass_ns + 2 * way_ns + behind_ns, PD_COST_MAX);
}

/* Returns the least lead_s, of replicas that begin so many at once: 1 or r_s. */
static inline int64_t pd_window_lead(int64_t back_ns, int64_t update_ns, int64_t period_ns,
				     int64_t at_once)
{
	return pd_ceil_div(back_ns + update_ns, pd_max(period_ns, 1)) - at_once;
}

/* Returns G_s. */
static inline int64_t pd_window_behind_ns(int64_t lead, int64_t period_ns, int64_t pass_ns,
					  int64_t back_ns)
{
	return pd_max(pd_min(pd_times(lead, period_ns), PD_COST_MAX) + pass_ns, back_ns);
}
