/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sum of a bucket's chosen chunks (plan/sparse.h), on top of any reducer: on the stream the
 * chunks are chosen by the norms that the last update left, packed, summed by the plan's reducer,
 * and brought back to where they were.  start()'s buffer is the arena of the stage.  Other gradients
 * stay, and what is left of them goes to the residual.
 *
 * How many chunks travel changes in the warm-up.  The reducer is opened anew then, in the same memory.
 */
#pragma once

#include "engine/reduce/reduce.h"
#include "plan/sparse.h"

struct pd_sparse_bucket {
	const struct pd_plan *plan;
	int stage;
	struct pd_chunk_range range;
	struct pd_chunks chunks;        /* floats, chunk, keep; residual, norms and places of the stage */
};

/* The configuration's floats are not read. */
struct pd_reduction *pd_sparse_open(const struct pd_reduction_config *config,
				    const struct pd_sparse_bucket *bucket, struct pd_error *err);
/* Call it before start(): the minibatch with which the update begins says how many travel. */
int pd_sparse_at(struct pd_reduction *r, int64_t minibatch, struct pd_error *err);
/* Returns the bytes of the last sum. */
int64_t pd_sparse_sent_bytes(const struct pd_reduction *r);
