/* SPDX-License-Identifier: Apache-2.0 */
/* Is a trace whole?  It is held against the operations that its plan has for the microbatches in it. */
#pragma once

#include "trace/trace.h"

/* Says on standard error what is wrong with a trace of that name, a line for each kind. */
void pd_trace_tell_faults(const struct pd_trace *trace, const char *name);
