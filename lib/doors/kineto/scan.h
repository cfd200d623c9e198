/* SPDX-License-Identifier: Apache-2.0 */
/* Files of torch.profiler, which are too large to be in memory as a whole. */
#pragma once

#include "base/json.h"

struct pd_kineto_head {
	int64_t rank;                   /* among all processes; -1: it does not say */
	bool device;                    /* there is one besides the processor */
	int64_t base_ns;                /* what times of events count from, since 1970 */
};

/* Takes what an event says; it may only borrow it. */
typedef int pd_kineto_take(void *to, json_t *event, struct pd_error *err);

/* Reads a file, and hands its events on, one by one.  Errors count as input. */
int pd_kineto_scan(const char *name, pd_kineto_take *take, void *to, struct pd_kineto_head *head_p,
		   struct pd_error *err);
/*
 * Reads when an event began and ended, in nanoseconds.  Times that are none, or far off, are refused with a
 * message that begins with the name of the file.
 */
int pd_kineto_times(json_t *event, const char *file, int64_t *start_p, int64_t *end_p, struct pd_error *err);
