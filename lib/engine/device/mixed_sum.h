/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sum of numbers of which some, or which itself, are of 16 bits, as gradients travel.
 *
 * Whatever the reducer, a member rounds its gradients once (plan's gradient_dtype), into a buffer
 * beside them, and they travel from there; sums are f32 in a stream's registers or in the
 * gradients' arena, and a part of a sum travels in f32.  One kernel does all of it.
 */
#pragma once

#include "model/dtype.h"

#include <stdint.h>

#define PD_SUM_SOURCES 16               /* the most sources of one sum */

struct pd_mixed_sum {
	struct pd_rounding rounding;
	void *dst;
	const void *src[PD_SUM_SOURCES];
	int n;                          /* at least 1 */
	bool narrow;                    /* dst is of 16 bits */
	uint32_t narrow_sources;        /* bit k: src[k] is of 16 bits */
	size_t count;                   /* of elements */
};
