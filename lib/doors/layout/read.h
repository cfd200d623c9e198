/* SPDX-License-Identifier: Apache-2.0 */
/* Reads stages that somebody has for another system. */
#pragma once

#include "profile/profile.h"

/*
 * Returns "8x1,6x1" for stages in other words, or a copy of a list that is one already; free() it; NULL: wrong.
 *
 *   megatron:E(tt|)*2tL       a layout of Megatron, or arguments for Megatron with one
 *   parts:0,9,18              DeepSpeed's: the first module of each stage, and how many there are
 *   fqns:FILE                 torchtitan's: a JSON array of the modules of each stage, maybe behind
 *                             module_fqns_per_model_part
 *
 * "xR" behind a layout or parts gives every stage R replicas.  *round_p is how many microbatches go through a stage
 * before its rank's next one, if Megatron's arguments say it, else 0.
 */
char *pd_layout_stages(const struct pd_profile *profile, const char *text, int64_t *round_p, struct pd_error *err);
