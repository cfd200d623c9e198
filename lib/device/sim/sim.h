/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device per rank of a plan that only takes time, and the virtual clock they share.
 *
 * Streams, events and nets are those of the device seam; the same worker runs on them.
 * Work takes as long as the plan's profile says, memory is counted and not touched (its
 * addresses must not be read), and nothing happens between two calls of pd_sim_advance.
 * What happens at one time happens in the order in which it was caused, so that a replay
 * is a function of its plan.
 */
#ifndef PD_DEVICE_SIM_SIM_H
#define PD_DEVICE_SIM_SIM_H

#include "device/device.h"
#include "plan/plan.h"
#include "plan/wiring.h"

#include <stdbool.h>
#include <stdint.h>

/* Nothing takes longer, 73 years: what begins by then ends at a time that can be said. */
#define PD_SIM_MOST_NS (INT64_MAX / 4)

struct pd_sim;

/* Devices for ranks 0 to plan->rank_count - 1, clock at 0.  Both are borrowed. */
struct pd_sim *pd_sim_new(const struct pd_plan *plan, const struct pd_wiring *wiring);
void pd_sim_free(struct pd_sim *sim);

/*
 * Before anything begins: the ranks are processes on one machine with so many processors,
 * dealt out as pd_process_start does (a share each; one each, in turn, where there are fewer
 * processors than ranks), and compute with so many threads each, or as many as their share
 * has.  Who shares a processor takes turns on it, what arrives is copied by a thread of the
 * receiver, and an operation takes time of the rank's processors besides what it computes, where
 * the profile says how much.
 */
void pd_sim_set_processors(struct pd_sim *sim, int64_t processors, int64_t threads);

/* Owned by sim; their close functions do nothing. */
struct pd_device *pd_sim_device(struct pd_sim *sim, int rank);
/* The net of a stage, on any of its ranks; tensors are numbered by layer (first_tensor 0). */
struct pd_net *pd_sim_net(struct pd_sim *sim, int stage);

int64_t pd_sim_now_ns(const struct pd_sim *sim);
/*
 * Moves the clock to the next time at which something happens and lets all of it happen:
 * events are completed, what waited for them begins.  False when nothing will happen.
 */
bool pd_sim_advance(struct pd_sim *sim);
/* A rank of which an event was completed since it was last named here, in the order of
 * those completions; -1: none. */
int pd_sim_ready(struct pd_sim *sim);

/*
 * Where there are many ranks: `ahead` is called some time before an event of a rank is completed,
 * for every step from 0 to 2, to ask for memory that will then be used (__builtin_prefetch), each
 * step for what the addresses that the one before asked for point to.
 */
void pd_sim_look_ahead(struct pd_sim *sim, void (*ahead)(void *context, int rank, int step),
		       void *context);

/* From now on only this event makes the rank one of pd_sim_ready; NULL: any of its events. */
void pd_sim_awaits(struct pd_sim *sim, int rank, const struct pd_event *ev);

extern const struct pd_device_ops pd_device_sim;

#endif
