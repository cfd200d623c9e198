/* SPDX-License-Identifier: Apache-2.0 */
/* Processes where the ranks of a run would be, each with the same to measure. */
#pragma once

#include "run/launch/launcher.h"

/*
 * Starts them, and tells each the request, whose reference it takes, with the member "seat" that is the rank's.  NULL:
 * none is left.
 */
struct pd_launcher *pd_ranks_begin(const struct pd_launcher_ops *ops, int ranks, json_t *request, struct pd_error *err);
void pd_ranks_end(struct pd_launcher *launcher, int ranks);
/*
 * Returns a new reference to the next message of a rank that is of that kind.  NULL: it failed, died, or has slept
 * for two minutes.  What a rank says of bad input is so for every rank, and is taken over as it is.
 */
json_t *pd_ranks_hear(struct pd_launcher *launcher, int rank, const char *event, struct pd_error *err);
