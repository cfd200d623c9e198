/* SPDX-License-Identifier: Apache-2.0 */
/* Which layers are computed again together, as pd-plan --recompute says it. */
#pragma once

#include "profile/profile.h"

/*
 * Returns by layer the number of what it is computed again with, -1: it is not; the caller frees it.
 *
 *     blocks, blocks:LIST     blocks of a list, such as "layers.3": all, or of numbers such as 0-7,9;
 *                             a step after /, such as /2 or 0-30/2, leaves others out
 *     selective-op            all layers of blocks but attention and every second linear layer
 *     modules:PATTERN,...     the layers of each module that a component of a name, or several, fits
 *     layers:PATTERN,...      runs of layers whose names fit
 *     KIND,...                runs of layers of these kinds, where there are blocks in them; also kinds:KIND,...
 *
 * Patterns are those of a shell.  NULL with *err: there are none, or it is written otherwise.
 */
int *pd_layout_segments(const struct pd_profile *profile, const char *what, struct pd_error *err);
/* Returns the blocks, or NULL: there are not two of them. */
int *pd_layout_block_segments(const struct pd_profile *profile);
