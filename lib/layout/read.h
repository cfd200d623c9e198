/* SPDX-License-Identifier: Apache-2.0 */
/* Reads stages that somebody has for another system. */
#pragma once

#include "profile/profile.h"

/*
 * Returns "8x1,6x1" for stages in other words, or a copy of a list that is one already; free() it; NULL: wrong.
 *
 *   megatron:E(tt|)*2tL       a layout of Megatron
 *   parts:0,9,18              DeepSpeed's: the first module of each stage, and how many there are
 *   fqns:FILE                 torchtitan's: a JSON array of the modules of each stage, maybe behind
 *                             module_fqns_per_model_part
 *
 * "xR" behind one of the first two gives every stage R replicas.
 */
char *pd_layout_stages(const struct pd_profile *profile, const char *text, struct pd_error *err);
