/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A machine on which everything blocks: every rank does its list in order, and a transfer or
 * an all-reduce holds all its parties until all are at it.  Data are symbols: each value
 * tells what it was computed from.  It knows nothing of sequence numbers.
 */
#pragma once

#include "schedule/list.h"

/*
 * Do the lists run to their ends, and does every replica come to every version of its weights
 * that a serial program, following the published rule, computes?  Says what is wrong (diag).
 */
bool runs_right(const struct pd_lists *lists);
