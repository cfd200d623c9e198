/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The buckets of a stage's gradients, each of which its replicas sum as soon as it is complete:
 * GradientFlow's lazy all-reduce (arXiv 1902.06855, section 3.1).  Gradients lie in one arena in the
 * order in which backward completes them, the last layer's first.  A bucket is a range of
 * that, of whole layers; it is closed when it has more than the plan's bucket_bytes.  So
 * nothing is copied.  The paper gives no threshold; here the plan says it.
 *
 * A replica's last backward of a group is then in parts, a bucket's layers each: part 1, sum of
 * bucket 1, part 2 and so on, all in the schedule (schedule/tick.c).  So the worker, replays,
 * predictions and the checker have the overlap without knowing of it.  Nothing else is computed
 * between two parts: in between, scratch has gradients of activations.  Whole backward and parts
 * make the same bits, and a sum is of the same numbers in the same order in any bucket.  Several
 * sums are under way at once on one stream; what waits for the end of one, or for others, does not
 * keep back the next (engine/reduce/queue.h).
 */
#pragma once

#include "plan/plan.h"
#include "sums/price.h"

#define PD_MOST_BUCKETS 1024            /* of a stage; the last one has all the rest */

struct pd_bucket {
	int first_layer, layer_count;   /* the layers whose backward completes it */
	int64_t begin_bytes, bytes;     /* in the arena of gradients, as the profile has them */
};

/* Returns the bytes of a stage's parameters, and so of its gradients; copies of shared ones count. */
int64_t pd_plan_stage_parameters(const struct pd_plan *plan, int stage);
/* Returns the bytes of a layer's gradients in the arena; 0 if it shares parameters and has no copy. */
int64_t pd_plan_layer_bytes(const struct pd_plan *plan, int layer);

/* Returns how many buckets a stage has: 1 if it has one replica or the plan has no threshold. */
int pd_plan_bucket_count(const struct pd_plan *plan, int stage);
/* Fills in that many, in the order of backward. */
void pd_plan_buckets(const struct pd_plan *plan, int stage, struct pd_bucket *buckets);

/* Returns the staging bytes of the sums of all buckets; full_bytes is the size of the arena. */
int64_t pd_plan_staging_bytes(const struct pd_plan *plan, int stage, int64_t full_bytes);
/* Returns how many bytes of gradients its replicas sum in an update, once the sparsity is the plan's. */
int64_t pd_plan_stage_sum_bytes(const struct pd_plan *plan, int stage);
/* Returns that sum, as if it were one; it borrows the plan. */
struct pd_sum pd_plan_stage_sum(const struct pd_plan *plan, int stage);
