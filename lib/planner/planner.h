/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a profile and a topology to a plan: stages, replicas and what they can be
 * expected to do.
 *
 * contrib/HACKING says which file decides what.
 */
#pragma once

#include "base/effort.h"
#include "plan/plan.h"
#include "planner/price/cost.h"

#include <stdbool.h>

enum pd_recompute_kind {
#define RECOMPUTE_KIND(symbol, name, what) PD_RECOMPUTE_##symbol,
#include "planner/search/recompute_kind.def"
#undef RECOMPUTE_KIND
	PD_RECOMPUTE_KINDS
};

struct pd_plan_request {
	const struct pd_topology *topology;
	int64_t memory_bytes;           /* of one device; 0: the topology's, else the profile's */
	const char *stages;             /* a plan by hand, such as "8x1,6x1"; or NULL */
	bool straight;                  /* no stage has replicas */
	bool runs;                      /* stages are runs of the profile's layers */
	enum pd_cost_kind cost;
	enum pd_schedule_kind schedule;
	enum pd_weight_kind weights;
	enum pd_startup_kind startup;   /* eager: only with 1f1b */
	int64_t microbatches;           /* per update; 0: the usual number */
	int chunks;                     /* stages per rank if interleaved, else 0 */
	int64_t round;                  /* as in a plan, with schedules that have rounds */
	bool agree;                     /* all stages agree on every update: 2bw and flush */
	int64_t bucket_bytes;           /* as in a plan */
	enum pd_dtype gradient_dtype;   /* as in a plan */
	bool any_bucket;                /* take those with the fastest plan */
	int64_t chunk, sparsity_warmup; /* as in a plan, of which sums are sparse */
	double sparsity;
	enum pd_reducer_kind reducer;
	bool any_reducer;               /* take the fastest */
	enum pd_recompute_kind recompute;
	const char *recomputed;         /* with stages: those that recompute, such as "0,2"; or NULL */
	const bool *recompute_kinds;    /* by enum pd_layer_kind: layers that do in every stage; NULL: none are
					   asked for */
	bool any_schedule, any_weights; /* take the one with the fastest plan */
	double min_gain;                /* gain that one more device must bring; 0: any (gain.h) */
	struct pd_effort *effort;       /* of each search (a combination of schedule and weights is
					   one); NULL: it ends only by itself */
};

/*
 * A plan that fits, with its predictions.  Takes over profile if it succeeds.  Fails with
 * PD_EXIT_NO when no plan fits (the message names the closest), with PD_EXIT_USAGE when
 * request->stages is wrong or the schedule and the weights cannot be had together.
 */
struct pd_plan *pd_planner_plan(struct pd_profile *profile, const struct pd_plan_request *request,
				struct pd_error *err);

/* The result for one profile of several. */
struct pd_batch_choice {
	int64_t batch_size, microbatches;       /* those of its best plan; 0: none fits */
	double search_samples_per_s;            /* 0: none */
	double grid_samples_per_s;              /* of `width` equal pipelines of `depth` stages */
	int width, depth;
	bool recomputed;                        /* stages of that plan recompute */
	bool chosen;
};

/*
 * Returns the plan with most samples per second, of several profiles of one model with different
 * batch sizes, with at most batch samples per update; batch 0: the usual number of microbatches
 * (batch.c).  Takes over the profile that it chooses, whose entry becomes NULL.  Sets one of
 * choices for each profile.
 */
struct pd_plan *pd_planner_batch(struct pd_profile **profiles, int count, int64_t batch,
				 const struct pd_plan_request *request,
				 struct pd_batch_choice *choices, struct pd_error *err);
/* The usual effort of a search; those for some hundred layers and devices need less. */
#define PD_PLANNER_EFFORT 200e9
/* The most layers of a network; the time of searches grows with their square. */
#define PD_PLANNER_LAYERS 16384
/* Stages per rank if interleaved, if the user gives no number. */
#define PD_PLANNER_CHUNKS 2
