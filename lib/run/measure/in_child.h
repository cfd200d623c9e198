/* SPDX-License-Identifier: Apache-2.0 */
/* A measurement in a process of its own, which leaves no threads, memory or output behind. */
#pragma once

#include "base/error.h"

typedef int pd_measure_function(const void *of, double *figure_p, struct pd_error *err);

/*
 * Has a child process measure(of), and returns the figure.  What it prints is discarded.  `who` are
 * those that are timed, for messages.  It forks, so call it before the process has threads.
 */
int pd_measure_in_child(const char *who, pd_measure_function *measure, const void *of, double *figure_p,
			struct pd_error *err);
