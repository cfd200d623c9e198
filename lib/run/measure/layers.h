/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times every layer of a network on a device, in the steps that a worker takes: the same kernels,
 * on the same kind of stream, in the same order.  So the sum over the layers is a training step.
 */
#pragma once

#include "engine/device/device.h"
#include "profile/profile.h"

#include <sched.h>
#include <stdbool.h>

struct pd_companions;

struct pd_measure_options {
	const struct pd_device_ops *device;
	int ordinal;                    /* of the device, see struct pd_device_config */
	int64_t batch_size;
	enum pd_dtype dtype;
	int threads, workers;           /* of each worker; side by side */
	cpu_set_t all;                  /* processors of this machine that may be used */
	bool tf32;                      /* see struct pd_device_config */
	int64_t iterations;             /* timed steps; 0: enough for a stable median */
	int64_t over_s;                 /* seconds over which these are spread; 0: one behind the other */
	bool endless;                   /* take steps until the process is killed */
	struct pd_companions *companions;       /* workers with whom some steps are taken at once; or NULL */
	/* Called after each step (of about `total`); may be NULL. */
	void (*progress)(void *context, int64_t done, int64_t total);
	void *context;
};

/*
 * Warms up, then alternates steps timed layer by layer with steps timed as a whole and steps taken
 * at once with the workers beside.  The mean of the whole steps is shared out by the layers' medians
 * for forward, backward and update; how both differ from round to round is their spread.  Between timed
 * steps that are to be spread over a time it takes others, since a processor that waits is not as warm as
 * in a run.  The data is made up.  It takes over nothing: profile->model is a copy of `model`, read again.
 * The link is not measured.
 */
struct pd_profile *pd_measure_layers(const struct pd_model *model,
				     const struct pd_measure_options *options,
				     struct pd_error *err);
