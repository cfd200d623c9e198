/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers beside the one that is timed.  Workers of one machine share its memory and caches:
 * a layer takes longer while others compute than it does alone.
 */
#ifndef PD_MEASURE_BESIDE_H
#define PD_MEASURE_BESIDE_H

#include "measure/layers.h"

/* Keeps this process to `threads` processors of those it may use: share `worker`, from 0. */
void pd_measure_pin(int worker, int threads);

/*
 * Starts `count` processes that take steps of the model without end, with options' threads,
 * on the shares 1 to count of the processors.  Forks: to be called before the process has
 * threads or a device.  NULL: a process could not be started, and none is left behind.
 */
struct pd_beside *pd_beside_start(const struct pd_model *model,
				  const struct pd_measure_options *options, int count,
				  struct pd_error *err);
/* Ends them; frees.  -1: one had ended by itself, and so was not beside all the time. */
int pd_beside_end(struct pd_beside *beside, struct pd_error *err);

#endif
