/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launchers that start several processes and have no PMIx: none of these would know of the others, and each
 * would train the whole network.
 */
#pragma once

#include "base/error.h"

/* Returns 0 if no such launcher has started this process as one of several. */
int pd_launched_alone(struct pd_error *err);
