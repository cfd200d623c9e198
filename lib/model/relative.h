/* SPDX-License-Identifier: Apache-2.0 */
/* Which bucket of an attention's bias a key falls into, by how far it is from the query: T5's formula. */
#pragma once

#include "base/inline.h"
#include "model/kind.h"

#include <stdbool.h>
#include <stdint.h>

struct pd_layer;

struct pd_relative {
	int32_t buckets;                /* 0: there is no bias */
	int32_t half;                   /* those of one direction */
	bool both;                      /* keys behind the query have buckets of their own, the second half */
	/* the least distance of each bucket of a direction, and behind the last one */
	int32_t first[PD_RELATIVE_BUCKETS + 1];
};

/* Places of keys less those of queries, from begin to end - 1. */
struct pd_relative_range {
	int32_t begin, end;
};

PD_INLINE struct pd_relative_range pd_relative_range(const struct pd_relative *r, int32_t bucket)
{
	struct pd_relative_range range = { 1 - r->first[bucket % r->half + 1], 1 - r->first[bucket % r->half] };

	if (bucket >= r->half) {
		range.begin = r->first[bucket - r->half] > 0 ? r->first[bucket - r->half] : 1;
		range.end = r->first[bucket - r->half + 1];
	} else if (bucket == 0 && !r->both) {
		range.end = r->first[r->half];
	}
	return range;
}

/* Describes so many buckets, up to a distance `most`; both: a half of them is for keys behind the query. */
struct pd_relative pd_relative_make(int64_t buckets, int64_t most, bool both);
/* Describes those of a layer of kind attention. */
struct pd_relative pd_relative_of(const struct pd_layer *layer);
