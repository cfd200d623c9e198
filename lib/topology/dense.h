/* SPDX-License-Identifier: Apache-2.0 */
/* The ordered exchange with groups and pieces that a caller chooses. */
#pragma once

#include "topology/allreduce.h"
#include "topology/script.h"

void pd_dense_write(const struct pd_allreduce *how, int me, struct pd_script *script);
