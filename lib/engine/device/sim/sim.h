/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Simulated devices, one per rank of a plan, only take time, on one virtual clock.
 *
 * Streams, events and nets are those of the device seam, and the same worker runs on them.  Work
 * takes as long as the plan's profile says.  Memory is counted but not touched (its addresses may
 * not be read).  Nothing happens between two calls of pd_sim_advance().  Of several things at one
 * time, the one that was caused first happens first, so that a replay is a function of its plan.
 */
#pragma once

#include "base/cost.h"
#include "engine/device/device.h"
#include "plan/plan.h"
#include "plan/wiring.h"

#include <stdbool.h>
#include <stdint.h>

/* No duration exceeds PD_COST_MAX (73 years), so that work which begins by then ends at an int64_t time. */
struct pd_sim;

/*
 * Makes devices for ranks 0 to plan->rank_count - 1, with the clock at 0.  Both arguments are
 * borrowed.
 */
struct pd_sim *pd_sim_new(const struct pd_plan *plan, const struct pd_wiring *wiring);
void pd_sim_free(struct pd_sim *sim);

/*
 * Lets the ranks be processes on one machine with that many processors, dealt out as
 * pd_process_start() does (equal shares; where processors are fewer than ranks, one each, in turn).
 * Each computes with that many threads, or as many as its share has (0).  Ranks that share a
 * processor take turns on it, which costs what the profile says; a thread of the receiver copies
 * what arrives; and an operation takes time of the rank's processors besides its computation, where
 * the profile says how much.  Call this before anything begins.
 */
void pd_sim_set_processors(struct pd_sim *sim, int64_t processors, int64_t threads);

/* Returns a rank's device, which sim owns; close functions do nothing. */
struct pd_device *pd_sim_device(struct pd_sim *sim, int rank);
/*
 * Returns the net of a stage, on any of its ranks.  Tensors are numbered by layer (first_tensor 0).
 */
struct pd_net *pd_sim_net(struct pd_sim *sim, int stage);

int64_t pd_sim_now_ns(const struct pd_sim *sim);
/*
 * Moves the clock to the next time at which something happens, completes the events of that time,
 * and begins what waited for them.  Returns false when nothing will happen any more.
 */
bool pd_sim_advance(struct pd_sim *sim);
/*
 * Returns a rank of which an event was completed since the rank was last returned here, in the
 * order of those completions; -1: none.
 */
int pd_sim_ready(struct pd_sim *sim);

/*
 * Sets a function that prefetches, for runs of many ranks.  It is called some time before an event
 * of a rank is completed, with step 0, 1 and 2; each step may use addresses in memory that the one
 * before has prefetched.
 */
void pd_sim_look_ahead(struct pd_sim *sim, void (*ahead)(void *context, int rank, int step),
		       void *context);

/* From now on pd_sim_ready() returns the rank only for this event; NULL: for any of its events. */
void pd_sim_awaits(struct pd_sim *sim, int rank, const struct pd_event *ev);

extern const struct pd_device_ops pd_device_sim;
