/* SPDX-License-Identifier: Apache-2.0 */
/* The colours of operations in pictures. */
#pragma once

#include "base/svg.h"
#include "schedule/schedule.h"

#define PD_IDLE_COLOUR ((struct pd_colour){ 0xf0, 0xf0, 0xf0 })

/*
 * Returns the colour of an operation in a rank's chunk, one of `chunks` (stages that the rank has).  Its
 * contrast with white and with the colour of idle moments is at least 3.  Later chunks are darker.
 */
struct pd_colour pd_op_colour(enum pd_op_kind kind, int chunk, int chunks);
/* Returns the colour of a forward without a backward, of an evaluation. */
struct pd_colour pd_evaluation_colour(void);
/* Returns what a legend calls it; NULL for the other end of a kind that has a name. */
const char *pd_op_colour_name(enum pd_op_kind kind);
