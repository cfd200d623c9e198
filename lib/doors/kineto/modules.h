/* SPDX-License-Identifier: Apache-2.0 */
/* The modules of one process become a trace: one stage, whose layers they are. */
#pragma once

#include "doors/kineto/kineto.h"
#include "doors/kineto/ops.h"

#include <regex.h>

/* As pd_kineto_read(); sorts the events. */
struct pd_trace *pd_kineto_modules(struct pd_kineto_ops *ops, const regex_t *blocks,
				   struct pd_kineto_missing *missing_p, struct pd_error *err);
