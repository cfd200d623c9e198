/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "engine/reduce/reduce.h"

/* Opens a sum by the transport's group.  NULL: the transport will not be able to sum so. */
struct pd_reduction *pd_reduction_nccl_open(const struct pd_reduction_config *config, struct pd_error *err);
