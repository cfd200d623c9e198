/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of a network in a trace that names no modules: operators that a forward repeats. */
#pragma once

#include "doors/kineto/ops.h"

/*
 * Adds labels, "block_0" and so on, around sequences of operators that come several times, one directly behind the
 * other, where these have at least half of a forward's products of matrices and convolutions.  The events are in
 * order, and no longer behind it.  Returns how many blocks the forward with the most has; 0: none.
 */
int pd_kineto_blocks(struct pd_kineto_ops *ops);
