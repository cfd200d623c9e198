/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/sparse.h"

#include "base/mem.h"

#include <math.h>

bool pd_plan_is_sparse(const struct pd_plan *plan, int stage)
{
	return plan->chunk > 0 && plan->stages[stage].replicas > 1;
}

int64_t pd_plan_chunks(const struct pd_plan *plan, int64_t floats)
{
	return (floats + plan->chunk - 1) / plan->chunk;
}

/* Returns the chunks that end before gradient `at`. */
static int64_t ended(const struct pd_plan *plan, int64_t at, int64_t floats)
{
	return at == floats ? pd_plan_chunks(plan, floats) : at / plan->chunk;
}

struct pd_chunk_range pd_plan_chunks_of(const struct pd_plan *plan, int64_t begin, int64_t end,
					int64_t floats)
{
	int64_t first = begin > 0 ? ended(plan, begin, floats) : 0;

	return (struct pd_chunk_range){ first, ended(plan, end, floats) - first };
}

/* Products such as 0.85 x 100 may be a little less than what they should be. */
#define SLIP 1e-9

static int64_t sent(int64_t chunks, double sparsity)
{
	int64_t kept = (int64_t)floor(sparsity * (double)chunks + SLIP);

	return kept < chunks || chunks == 0 ? chunks - kept : 1;
}

int64_t pd_plan_chunks_sent(const struct pd_plan *plan, int64_t chunks, int64_t minibatch)
{
	double part = minibatch < plan->sparsity_warmup
		? (double)minibatch / (double)plan->sparsity_warmup : 1;

	return sent(chunks, plan->sparsity * part);
}

/* Returns the room of so many chunks of a range. */
static int64_t room(const struct pd_plan *plan, const struct pd_chunk_range *range, int64_t floats,
		    int64_t chunks)
{
	int64_t end = (range->first + range->count) * plan->chunk;

	if (chunks < range->count || chunks == 0)
		return chunks * plan->chunk;
	return (end < floats ? end : floats) - range->first * plan->chunk;
}

int64_t pd_plan_floats_sent(const struct pd_plan *plan, const struct pd_chunk_range *range,
			    int64_t floats, int64_t minibatch)
{
	return room(plan, range, floats, pd_plan_chunks_sent(plan, range->count, minibatch));
}

int64_t pd_plan_sum_bytes(const struct pd_plan *plan, int stage, int64_t begin_bytes,
			  int64_t bytes, int64_t full_bytes)
{
	const int64_t each = sizeof(float);
	struct pd_chunk_range range;

	if (!pd_plan_is_sparse(plan, stage))
		return pd_profile_summed_bytes(plan->profile, plan->gradient_dtype, bytes);
	range = pd_plan_chunks_of(plan, begin_bytes / each, (begin_bytes + bytes) / each,
				  full_bytes / each);
	return each * room(plan, &range, full_bytes / each, sent(range.count, plan->sparsity));
}

/* Returns the room of so many bytes, in floats. */
static int64_t in_floats(int64_t bytes)
{
	return (bytes + (int64_t)sizeof(float) - 1) / (int64_t)sizeof(float);
}

void pd_plan_sparse_room(const struct pd_plan *plan, int stage, const struct pd_chunk_range *range,
			 int64_t floats, int64_t *packed_p, int64_t *staging_p)
{
	struct pd_members members = pd_plan_members(plan, stage);
	int64_t least = sent(range->count, plan->sparsity);
	int64_t most = pd_plan_chunks_sent(plan, range->count, 0), bytes = 0;

	*packed_p = *staging_p = 0;
	for (int64_t chunks = least; chunks <= most; chunks++) {
		int64_t each = room(plan, range, floats, chunks);

		bytes = each > 0 ? pd_reducers[plan->reducer]->staging_bytes(
					   &members, each * (int64_t)sizeof(float)) : 0;
		if (each > *packed_p)
			*packed_p = each;
		if (in_floats(bytes) > *staging_p)
			*staging_p = in_floats(bytes);
	}
}

int64_t pd_plan_sparse_bytes(const struct pd_plan *plan, int stage, int64_t begin_bytes,
			     int64_t bytes, int64_t full_bytes)
{
	const int64_t each = sizeof(float);
	struct pd_chunk_range range = pd_plan_chunks_of(plan, begin_bytes / each,
							(begin_bytes + bytes) / each,
							full_bytes / each);
	int64_t packed, staging;

	pd_plan_sparse_room(plan, stage, &range, full_bytes / each, &packed, &staging);
	return each * (packed + staging);
}

int64_t pd_plan_norm_bytes(const struct pd_plan *plan, int64_t full_bytes)
{
	const int64_t each = sizeof(float);

	return each * pd_plan_chunks(plan, full_bytes / each);
}

struct pd_members pd_plan_norm_members(const struct pd_plan *plan, int stage)
{
	struct pd_members members = pd_plan_members(plan, stage);

	members.dtype = PD_F32;
	return members;
}

int64_t pd_plan_norm_staging_bytes(const struct pd_plan *plan, int stage, int64_t full_bytes)
{
	struct pd_members members = pd_plan_norm_members(plan, stage);

	return !pd_plan_is_sparse(plan, stage) || full_bytes == 0 ? 0
		: pd_reducers[plan->reducer]->staging_bytes(&members,
							   pd_plan_norm_bytes(plan, full_bytes));
}

int64_t pd_plan_chunk_table_bytes(const struct pd_plan *plan, int stage, int64_t full_bytes)
{
	int64_t chunks;

	if (!pd_plan_is_sparse(plan, stage))
		return 0;
	chunks = pd_plan_chunks(plan, full_bytes / (int64_t)sizeof(float));
	return (int64_t)pd_align((size_t)chunks * (sizeof(float) + sizeof(int32_t)));
}

int pd_plan_check_sparse(const struct pd_plan *plan, const char *where, struct pd_error *err)
{
	if (plan->chunk == 0 || !pd_plan_agrees(plan))
		return 0;
	return pd_error_input(err, "%ssparsity: expected a plan whose ranks do not agree on updates: "
			      "that needs all gradients (clipping, f16, layers that share parameters "
			      "with 2bw or flush)", where);
}
