/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an operation costs a worker besides computing: it is issued, handed to a stream, wakes
 * the worker at its end, is retired and told.
 */
#ifndef PD_MEASURE_OPERATION_H
#define PD_MEASURE_OPERATION_H

#include "base/error.h"

#include <stdint.h>

/*
 * Trains a network of a few neurons with two workers, processes as any others, and takes the time
 * that processors spend on it, per operation, whoever spends it: workers, their threads, and who
 * watches over them.  What takes long in the beginning and at the end does not count.  `device`
 * computes on processors.  Forks: to be called before the process has threads.
 */
int pd_measure_operation(const char *device, int64_t *operation_ns_p, struct pd_error *err);

#endif
