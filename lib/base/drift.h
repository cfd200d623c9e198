/* SPDX-License-Identifier: Apache-2.0 */
/* The clock of a rank's host, which goes faster or slower than the one that a trace's times are of. */
#pragma once

#include "base/error.h"

#include <stdint.h>
#include <stdio.h>

/* It was so far ahead, at a time of the other clock. */
struct pd_clock_sample { int64_t at_ns, ahead_ns; };

/* Between two samples it drifts evenly; zeroes: it does not. */
struct pd_drift { struct pd_clock_sample first, last; };

/*
 * Copies the records of a trace.  Their times count from zero_ns, and were made with a clock that is
 * taken to be as far ahead as in the first sample: the copy is without its drift.
 */
int pd_drift_remove(const struct pd_drift *drift, int64_t zero_ns, FILE *records, FILE *out,
		    struct pd_error *err);
