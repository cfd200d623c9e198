/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The published formulas: what a stage and a cut cost, and plans by levels.
 *
 * The machine has L levels; a component of level k is M_k components of level k - 1 joined
 * by links of bandwidth B_k; a component of level 0 is a device.  A stage of level k is what
 * m of those components do together, each with every m-th minibatch; inside one of them it
 * is a pipeline of stages of level k - 1, which takes V.  With W the bytes of its parameters
 * and a_s the bytes cut at a state s, per minibatch:
 *
 *                         stage (m > 1 replicas)               cut at s
 *   sosp19                1/m max(V, 2 (m - 1) W / B_k)        2 a_s / B_k
 *   released              1/m (V + 4 (m - 1)/m W / (B_k n))    2 a_s / (B_k m)
 *   released-no-traffic   1/m (V + 4 (m - 1)/m W / (B_k n))    0
 *
 * and the slowest stage or cut is the period.  sosp19 is SOSP 2019, section 3.1.  The others
 * are what PipeDream's released program computes, its oddities kept: n is M_{k-1} for the
 * first stage of a pipeline of level k (1 at the innermost level), and 1 for every other; a
 * cut costs what its receiver takes with m replicas, and every stage but a pipeline's first
 * is also charged the cut behind it, over its own replicas, unless nothing comes after it;
 * and all components are used, whether that helps or not.  The bytes cut are those of the
 * tensors made before and used behind it: the released program charges some others as well.
 * Latencies are in none of them.  Compute includes the update.
 *
 * Times are nanoseconds as real numbers; a plan's is rounded to the nearest integer.
 */
#pragma once

#include "predict/cost.h"

#include <stdbool.h>

/* The terms of a level. */
struct pd_level_terms {
	bool released;          /* a formula of the released program, which uses all components */
	double cut;             /* factor of a_s / B_k */
	double ns_per_byte;
	int shared;             /* n above */
};

static inline struct pd_level_terms pd_level_terms(enum pd_cost_kind kind,
						   const struct pd_topology *topology, int level)
{
	return (struct pd_level_terms){
		.released = kind != PD_COST_SOSP19, .cut = kind == PD_COST_RELEASED_NO_TRAFFIC ? 0 : 2,
		.ns_per_byte = 1e9 / (double)topology->level[level].bandwidth_bytes_per_s,
		.shared = level ? (int)topology->level[level - 1].count : 1,
	};
}

/*
 * Returns the time of an all-reduce of m replicas, per byte of their parameters; first: of a
 * pipeline's first stage.
 */
static inline double pd_terms_allreduce(const struct pd_level_terms *at, int64_t m, bool first)
{
	double ns = (at->released ? 4 : 2) * (double)(m - 1) * at->ns_per_byte;

	if (at->released)
		ns /= (double)m;
	return first && at->released ? ns / at->shared : ns;
}

static inline double pd_terms_stage(const struct pd_level_terms *at, double value,
				    double allreduce, int64_t m)
{
	double both = at->released ? value + allreduce : value > allreduce ? value : allreduce;

	return both / (double)m;
}

/* Returns the time of a cut of these bytes at a stage with m replicas. */
static inline double pd_terms_cut(const struct pd_level_terms *at, double bytes, int64_t m)
{
	double ns = at->cut * bytes * at->ns_per_byte;

	return at->released ? ns / (double)m : ns;
}

/* A stage in a plan. */
struct pd_priced {
	int64_t compute_ns, parameter_bytes;
	int64_t cut_bytes;                      /* of the cut behind it; 0 at the end */
	int replicas;
	const int *ranks;
};

/*
 * Returns the time of a plan by the formula, or a negative number if its ranks are not those of
 * stages inside stages on whole components.
 */
double pd_terms_price(enum pd_cost_kind kind, const struct pd_topology *topology,
		      const struct pd_priced *stages, int stage_count);

/* Rounds to integer nanoseconds, at most PD_COST_MAX. */
static inline int64_t pd_terms_round(double ns)
{
	return pd_cost_of(ns + 0.5);
}
