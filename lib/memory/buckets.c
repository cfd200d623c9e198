/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/buckets.h"

#include "base/mem.h"
#include "memory/memory.h"
#include "plan/sparse.h"

#include <stdlib.h>

int64_t pd_plan_stage_parameters(const struct pd_plan *plan, int stage)
{
	const struct pd_stage *at = &plan->stages[stage];
	bool tied = pd_plan_has_tied_weights(plan);
	int64_t sum = 0;

	for (int l = at->first_layer; l < at->first_layer + at->layer_count; l++)
		sum += pd_memory_parameters(plan->profile, l, tied);
	return sum;
}

int64_t pd_plan_layer_bytes(const struct pd_plan *plan, int layer)
{
	return (int64_t)pd_align((size_t)pd_memory_parameters(plan->profile, layer,
							      pd_plan_has_tied_weights(plan)));
}

/* Tells whether a layer before this one in the stage has gradients. */
static bool more_before(const struct pd_plan *plan, const struct pd_stage *stage, int layer)
{
	for (int l = stage->first_layer; l < layer; l++)
		if (pd_plan_layer_bytes(plan, l) > 0)
			return true;
	return false;
}

/* Closes buckets from the last layer to the first; returns their number.  buckets may be NULL. */
static int close_buckets(const struct pd_plan *plan, int s, struct pd_bucket *buckets)
{
	const struct pd_stage *stage = &plan->stages[s];
	bool several = plan->bucket_bytes > 0 && stage->replicas > 1;
	struct pd_bucket bucket = { .layer_count = 0 };
	int count = 0;

	for (int l = stage->first_layer + stage->layer_count - 1; l >= stage->first_layer; l--) {
		bucket.first_layer = l;
		bucket.layer_count++;
		bucket.bytes = pd_plus(bucket.bytes, pd_plan_layer_bytes(plan, l));
		if (l > stage->first_layer &&
		    (!several || bucket.bytes <= plan->bucket_bytes ||
		     count == PD_MOST_BUCKETS - 1 || !more_before(plan, stage, l)))
			continue;
		if (buckets)
			buckets[count] = bucket;
		count++;
		bucket = (struct pd_bucket){
			.begin_bytes = pd_plus(bucket.begin_bytes, bucket.bytes) };
	}
	return count;
}

int pd_plan_bucket_count(const struct pd_plan *plan, int stage)
{
	return plan->bucket_bytes > 0 && plan->stages[stage].replicas > 1
		? close_buckets(plan, stage, NULL) : 1;
}

void pd_plan_buckets(const struct pd_plan *plan, int stage, struct pd_bucket *buckets)
{
	close_buckets(plan, stage, buckets);
}

int64_t pd_plan_staging_bytes(const struct pd_plan *plan, int stage, int64_t full_bytes)
{
	const struct pd_reducer *reducer = pd_reducers[plan->reducer];
	struct pd_members members = pd_plan_members(plan, stage);
	int count = pd_plan_bucket_count(plan, stage);
	struct pd_bucket *buckets;
	int64_t bytes;

	if (members.count == 1)
		return 0;
	bytes = pd_plan_norm_staging_bytes(plan, stage, full_bytes);
	buckets = pd_calloc((size_t)count, sizeof(*buckets));
	pd_plan_buckets(plan, stage, buckets);
	if (count == 1)
		buckets[0].bytes = full_bytes;
	for (int i = 0; i < count; i++)
		bytes = pd_plus(bytes, pd_plan_is_sparse(plan, stage)
				? pd_plan_sparse_bytes(plan, stage, buckets[i].begin_bytes,
						       buckets[i].bytes, full_bytes)
				: reducer->staging_bytes(&members, buckets[i].bytes));
	free(buckets);
	return bytes;
}

int64_t pd_plan_stage_sum_bytes(const struct pd_plan *plan, int stage)
{
	int64_t full_bytes = pd_plan_stage_parameters(plan, stage), sum = 0;
	struct pd_bucket *buckets;
	int count;

	if (!pd_plan_is_sparse(plan, stage))
		return pd_profile_summed_bytes(plan->profile, plan->gradient_dtype, full_bytes);
	count = pd_plan_bucket_count(plan, stage);
	if (count == 1)
		return pd_plan_sum_bytes(plan, stage, 0, full_bytes, full_bytes);
	buckets = pd_calloc((size_t)count, sizeof(*buckets));
	pd_plan_buckets(plan, stage, buckets);
	full_bytes = buckets[count - 1].begin_bytes + buckets[count - 1].bytes;
	for (int i = 0; i < count; i++)
		sum += pd_plan_sum_bytes(plan, stage, buckets[i].begin_bytes, buckets[i].bytes,
					 full_bytes);
	free(buckets);
	return sum;
}

struct pd_sum pd_plan_stage_sum(const struct pd_plan *plan, int stage)
{
	return (struct pd_sum){ plan->reducer, pd_plan_members(plan, stage),
				pd_plan_stage_sum_bytes(plan, stage) };
}
