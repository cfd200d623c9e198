/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traces of torch.profiler become a trace of ours: each action of a pipeline an operation, with the time in
 * which its rank waited for a message apart.
 */
#pragma once

#include "trace/trace.h"

/*
 * Reads the traces of all ranks of one pipeline, in any order; messages begin with a file's name.  The trace's
 * plan has a layer for each stage, whose times are medians (pd-profile(1), --from); it is a profile of one
 * sample, and sizes are 0, since the traces say neither.  Errors count as input.
 */
struct pd_trace *pd_kineto_read(const char *const *files, int count, struct pd_error *err);
