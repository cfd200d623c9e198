/* SPDX-License-Identifier: Apache-2.0 */
/* Stages over a chain of units, and pipelines with one rank for each; private to this folder. */
#pragma once

#include "base/cost.h"
#include "planner/cut/fewest.h"

struct pd_partition {
	int64_t cost_ns;                /* the cost that the search minimised */
	int stage_count;
	int *layers, *replicas;
	int **ranks;                    /* per stage; NULL: in order */
	int *order;                     /* of the layers, by stage; NULL: the profile's */
	int *warmups;                   /* NULL: the usual ones */
};

/* Returns so many stages, with one replica and no layers yet. */
struct pd_partition *pd_partition_new(int stage_count);
void pd_partition_free(struct pd_partition *partition);

/*
 * Returns count stages, one rank each.  With a bandwidth of 0 those of GPipe (2018), whose computing
 * times have the least variance; else those with the least time of the slowest stage or link, if every
 * link has this bandwidth.  NULL if that would be too much work.
 */
struct pd_partition *pd_even_partition(const struct pd_costs *costs, int count,
				       int64_t bandwidth_bytes_per_s);
/*
 * Sets partitions[n - 1] to pd_even_partition() of n stages, for n from 1 to `most`.  All are NULL if that would
 * be too much work.
 */
void pd_even_partitions(const struct pd_costs *costs, int most, int64_t bandwidth_bytes_per_s,
			struct pd_partition **partitions);

/*
 * Returns the fast ones of at most so many stages, the fewest that are as fast, if they fit with the
 * usual warm-ups; NULL if none do.
 */
struct pd_partition *pd_straight_most(const struct pd_costs *costs, int count,
				      int64_t bandwidth_bytes_per_s, int64_t limit_bytes);

/*
 * Returns those of at most so many stages that need the least memory, with warm-ups of one minibatch at a
 * time; NULL if one would need more than 2^61 bytes.
 */
struct pd_partition *pd_straight_least_memory(const struct pd_costs *costs, int count);

/*
 * Returns stages for interleaved on so many ranks or, where there are too few layers, as many as can be:
 * pd_even_partition(), or stages of equally many units where that would be too much work.
 */
struct pd_partition *pd_chunks_partition(const struct pd_costs *costs, int64_t chunks, int64_t ranks,
					 int64_t bandwidth_bytes_per_s, struct pd_error *err);
/*
 * Returns two stages for each of so many ranks in a V, whose slowest rank takes least, as far as cuts from both
 * ends inwards find it; NULL if there are too few units.
 */
struct pd_partition *pd_v_partition(const struct pd_costs *costs, int ranks);
/* Returns one stage on all devices. */
struct pd_partition *pd_data_parallel_partition(const struct pd_costs *costs, int64_t devices);
