/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the labels in a trace are layers. */
#pragma once

#include "doors/kineto/ops.h"

#include <regex.h>

/*
 * Tells, per name, whether a label is one layer: no other is inside of it, nor backward, or it matches blocks (NULL:
 * none).  One that encloses another once is a layer nowhere.  The events are in order; free() the answer.
 */
bool *pd_kineto_leaves(const struct pd_kineto_ops *ops, const regex_t *blocks);
