/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures what an operation costs a worker besides computing: it is issued, handed to a stream,
 * wakes the worker at its end, retires and is reported.
 */
#pragma once

#include "base/error.h"

#include <stdint.h>

/*
 * Trains a network of a few neurons with two workers, which are processes as usual, and returns the
 * processor time per operation.  That includes the workers, their threads and the supervisor, but
 * not the beginning and the end.  `device` computes on processors.  It forks, so call it before the
 * process has threads.
 */
int pd_measure_operation_cost(const char *device, int64_t *operation_ns_p, struct pd_error *err);
