/* SPDX-License-Identifier: Apache-2.0 */
#include "model/relative.h"

#include "model/model.h"

#include <math.h>

/* Returns the bucket of a distance, of `half`: exact up to half of them, then by its logarithm, in f32 as PyTorch. */
static int64_t bucket_of(int64_t distance, int64_t half, int64_t most)
{
	int64_t exact = half / 2, bucket;
	float whole = (float)log((double)most / (double)exact);

	if (distance < exact)
		return distance;
	bucket = exact + (int64_t)(logf((float)distance / (float)exact) / whole * (float)(half - exact));
	return bucket < half ? bucket : half - 1;
}

/* Returns the least distance whose bucket is this one or a later one. */
static int64_t first_of(int64_t bucket, int64_t half, int64_t most)
{
	int64_t low = 0, high = most;

	while (low < high) {
		int64_t middle = (low + high) / 2;

		if (bucket_of(middle, half, most) >= bucket)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

struct pd_relative pd_relative_make(int64_t buckets, int64_t most, bool both)
{
	struct pd_relative r = { .buckets = (int32_t)buckets, .both = both };

	r.half = r.both ? r.buckets / 2 : r.buckets;
	for (int32_t b = 0; b < r.half; b++)
		r.first[b] = (int32_t)first_of(b, r.half, most);
	r.first[r.half] = INT32_MAX;    /* no sequence is that long */
	return r;
}

struct pd_relative pd_relative_of(const struct pd_layer *layer)
{
	return pd_relative_make(layer->relative_buckets, layer->max_distance, !layer->causal);
}
