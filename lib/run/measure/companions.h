/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers beside the one that is timed.  Workers of one machine share its memory and caches, so a
 * layer takes longer while others compute.
 */
#pragma once

#include "run/measure/layers.h"

#include <stdbool.h>

/* Pins this process to `threads` processors of those it may use: share `worker`, from 0. */
void pd_measure_pin(int worker, int threads);

/*
 * Starts `count` processes that take steps of the model without end, with options' threads, on the
 * shares 1 to count of the processors.  It forks, so call it before the process has threads or a
 * device.  Returns NULL if a process could not be started; none is then left.
 *
 * Each takes its steps when it likes, but for those to which the one that is timed calls: these all
 * begin at once, and all wait for the slowest before they update, as the replicas of a stage do.
 */
struct pd_companions *pd_companions_start(const struct pd_model *model,
					  const struct pd_measure_options *options, int count,
					  struct pd_error *err);
/*
 * Ends and frees them.  Returns -1 if one had ended by itself, and so was not beside all the time.
 */
int pd_companions_end(struct pd_companions *companions, struct pd_error *err);

/* Calls the others to a step, and waits for them; -1: one has ended by itself. */
int pd_companions_call(struct pd_companions *companions, struct pd_error *err);
/* Tells a process beside whether it was called; it then meets the others as often as the one timed. */
bool pd_companions_called(const struct pd_companions *companions);
/* Sleeps until all of them are here; -1: one has ended by itself. */
int pd_companions_meet(struct pd_companions *companions, struct pd_error *err);

/* Returns how many they are, with the one that is timed, and sets the number of this process: 0 is timed. */
int pd_companions_members(const struct pd_companions *companions, int *me_p);
/* Lets the others map this process's `shared` (pd_shared_alloc()), once all have met again. */
void pd_companions_show(struct pd_companions *companions, const void *shared);
/*
 * Maps so many bytes, from `begin` on, of what each has shown, by number.  pd_companions_unmap() unmaps
 * them.
 */
void pd_companions_map(struct pd_companions *companions, size_t begin, size_t bytes, float **parts);
void pd_companions_unmap(const struct pd_companions *companions, size_t bytes, float **parts);
/* Tells, once all have met again, whether each could map all. */
bool pd_companions_mapped(const struct pd_companions *companions);
