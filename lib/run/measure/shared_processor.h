/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "run/measure/layers.h"

/*
 * Returns how many times as much processor time a step takes while another worker takes turns with
 * it on its processor, which leaves it caches without its data again and again.  Both have one
 * thread.  It forks, so call it before the process has threads or a device.
 */
int pd_measure_shared_processor(const struct pd_model *model, const struct pd_measure_options *options,
				double *in_turns_p, struct pd_error *err);
