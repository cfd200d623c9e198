/* SPDX-License-Identifier: Apache-2.0 */
/* What was read of torch.profiler's traces becomes a trace of ours, with its plan and profile. */
#pragma once

#include "trace/trace.h"

struct pd_kineto_run {
	const char *file;               /* for messages */
	bool gpu;
	enum pd_dtype dtype;
	json_t *layers;                 /* as in a profile, each stage's in turn; the trace takes it */
	int64_t step_ns;                /* 0: unknown */
	int stage_count, rank_count;
	const int *layer_counts;        /* per stage */
	const int *rank_of;             /* per stage */
	int64_t microbatches;           /* of a step */
	struct pd_record *records;      /* times since 1970; changed */
	size_t record_count;
};

/* Returns the trace, whose times begin with 0, or NULL. */
struct pd_trace *pd_kineto_trace(struct pd_kineto_run *run, struct pd_error *err);
