/* SPDX-License-Identifier: Apache-2.0 */
/* Hears what the processes of a measurement say, and why one says nothing more. */
#pragma once

#include "launch/launcher.h"

struct pd_hearing {
	struct pd_launcher *launcher;
	const struct pd_seat *seats;    /* by rank */
};

/*
 * Returns a new reference to the next message of a rank that is of that kind.  NULL: it failed, died, or has slept
 * for two minutes.  What a rank says of bad input is so for every rank, and is taken over as it is.
 */
json_t *pd_hear(const struct pd_hearing *hearing, int rank, const char *event, struct pd_error *err);
