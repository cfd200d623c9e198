/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Coarse-grained sparse communication (GradientFlow, arXiv 1902.06855, section 3.2): replicas sum few
 * of their gradients, whole chunks of them, the same at all, and keep the others for later.
 *
 * Chunk c is gradients c chunk to (c + 1) chunk - 1 of the stage's arena, which has them in the
 * order of backward; the last may be shorter.  Of each bucket (memory/buckets.h) the chunks travel
 * that end in it, in one sum: its part of backward completes them.
 *
 * Departure: so many of the chunks of a bucket are chosen, those of the largest norms among them,
 * not so many of the whole stage.  So what a sum has to carry is known before training begins, and
 * the host reads nothing.  With one bucket it is what the paper does.
 *
 * Which chunks travel is known only on the device, by norms that all replicas have in common.  On
 * the reducers' stream a bucket's chunks are chosen, packed, summed by any reducer and brought
 * back; the update passes over the chunks that have a place.  The residual is the replica's own,
 * and the only thing besides weights that a checkpoint has from each.  The norms are summed
 * between the sums and the update (operation norms), so that a checkpoint after an update has
 * them.
 */
#pragma once

#include "plan/plan.h"

#define PD_SPARSITY_MOST 0.9999
#define PD_CHUNK_USUAL 32000    /* the paper's 32K: 60.9M gradients make 1,903 chunks */

struct pd_chunk_range {
	int64_t first, count;
};

/* Tells whether the replicas of a stage exchange chunks. */
bool pd_plan_is_sparse(const struct pd_plan *plan, int stage);
/* Returns the chunks of a stage with so many gradients. */
int64_t pd_plan_chunks(const struct pd_plan *plan, int64_t floats);
/* Returns those that end in a bucket of a stage, from gradient begin to end - 1 of floats. */
struct pd_chunk_range pd_plan_chunks_of(const struct pd_plan *plan, int64_t begin, int64_t end,
					int64_t floats);
/*
 * Returns how many of so many chunks travel in an update that begins with this minibatch, from 0 on:
 * at least one, and (1 - s) of them, rounded up, with s rising linearly to the plan's sparsity in
 * the first sparsity_warmup minibatches.
 */
int64_t pd_plan_chunks_sent(const struct pd_plan *plan, int64_t chunks, int64_t minibatch);
/* Returns how many gradients these are: packed, each has a whole chunk's room, unless all travel. */
int64_t pd_plan_floats_sent(const struct pd_plan *plan, const struct pd_chunk_range *range,
			    int64_t floats, int64_t minibatch);
/*
 * Returns the bytes of the sum of a bucket that begins there, of so many bytes, in a stage with
 * full_bytes of gradients: all of them, or of chunks, once the sparsity is the plan's.
 */
int64_t pd_plan_sum_bytes(const struct pd_plan *plan, int stage, int64_t begin_bytes,
			  int64_t bytes, int64_t full_bytes);
/* Sets the room, in gradients, that a range needs at most: packed, and as a reducer's staging. */
void pd_plan_sparse_room(const struct pd_plan *plan, int stage, const struct pd_chunk_range *range,
			 int64_t floats, int64_t *packed_p, int64_t *staging_p);
/* Returns the bytes of that of a bucket that begins there; and of the sum of the stage's norms. */
int64_t pd_plan_sparse_bytes(const struct pd_plan *plan, int stage, int64_t begin_bytes,
			     int64_t bytes, int64_t full_bytes);
int64_t pd_plan_norm_staging_bytes(const struct pd_plan *plan, int stage, int64_t full_bytes);
/* Returns who sums the norms of a stage's chunks, which travel in f32. */
struct pd_members pd_plan_norm_members(const struct pd_plan *plan, int stage);
/* Returns the bytes of the norms of a stage's chunks. */
int64_t pd_plan_norm_bytes(const struct pd_plan *plan, int64_t full_bytes);
/* Returns the bytes of the table of a stage's chunks: their norms, then their places in a sum. */
int64_t pd_plan_chunk_table_bytes(const struct pd_plan *plan, int stage, int64_t full_bytes);
/* Checks that the plan can be trained so.  The message begins with `where`. */
int pd_plan_check_sparse(const struct pd_plan *plan, const char *where, struct pd_error *err);
