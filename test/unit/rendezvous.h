/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A machine on which everything blocks: every rank does its list in order, and a transfer or
 * an all-reduce holds all its parties until all are at it.  Data are symbols, each of which
 * depends on the symbols it was computed from.  Sequence numbers are ignored.
 */
#pragma once

#include "schedule/list.h"

/*
 * Tells whether the lists run to their ends, and every replica comes to every version of its weights
 * that a serial program, following the published rule, computes.  Prints what is wrong (diag).
 */
bool runs_right(const struct pd_lists *lists);
