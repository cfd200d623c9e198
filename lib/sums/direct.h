/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which sums members of one host take in each other's memory, and what these cost.
 * lib/engine/reduce/direct takes them.
 *
 * Each member reads and writes as many bytes as the buffer has, all at the same time, so that the
 * time does not depend on their number: bytes over the speed that the profile has measured.
 *
 * It is worth its lines: by messages alone two data-parallel ranks of one host spend 62 to 68 %
 * more processor time with 4 MB of parameters and little to compute (share/models/mlp), 7 to 10 %
 * more with vgg11, wide-mlp and fashion-cnn, 4 % with lenet5 and 2 % with alexnet (16 samples;
 * medians of three runs each, in turns).
 */
#pragma once

#include "sums/reducer.h"

#include <stddef.h>

#define PD_DIRECT_MEMBERS 16            /* at most */

/* Tells whether such members take them if they can map each other's buffers. */
bool pd_direct_suits(int members, size_t floats, enum pd_dtype dtype);
/* The same of a dense sum of a buffer of `bytes`, which has to be of one group. */
bool pd_direct_may(const struct pd_members *members, int64_t bytes);
/*
 * Tells whether dense sums of a buffer of `bytes` are taken so: it suits, all members are on one host,
 * and the speed is known.
 */
bool pd_direct_expected(const struct pd_members *members, int64_t bytes);
/* Returns the time from when all members are ready until all have written. */
int64_t pd_direct_ns(const struct pd_members *members, int64_t bytes);
