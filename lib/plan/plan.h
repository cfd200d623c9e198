/* SPDX-License-Identifier: Apache-2.0 */
/* A plan: the stages of a network and their ranks, as in pd-plan(5). */
#pragma once

#include "base/rows.h"
#include "order/order.h"
#include "plan/schedule_kind.h"
#include "profile/profile.h"
#include "sums/reducer.h"
#include "topology/topology.h"

#define PD_MAX_ROUND 65536

enum pd_startup_kind {
#define STARTUP_KIND(symbol, name, what) PD_STARTUP_##symbol,
#include "plan/startup_kind.def"
#undef STARTUP_KIND
	PD_STARTUP_KINDS
};

extern const char *const pd_startup_kind_name[PD_STARTUP_KINDS + 1];    /* NULL-terminated */

enum pd_period_kind {
	PD_PERIOD_UNSAID,
#define PERIOD_KIND(symbol, name, what) PD_PERIOD_##symbol,
#include "plan/period_kind.def"
#undef PERIOD_KIND
	PD_PERIOD_KINDS
};

enum pd_alternative_kind {
#define ALTERNATIVE_KIND(symbol, name, what) PD_ALTERNATIVE_##symbol,
#include "plan/alternative_kind.def"
#undef ALTERNATIVE_KIND
	PD_ALTERNATIVE_KINDS
};

extern const char *const pd_alternative_kind_name[PD_ALTERNATIVE_KINDS + 1];

struct pd_stage {
	int first_layer, layer_count;   /* a range of the profile's layers: a stage is convex */
	int replicas;
	int *ranks;                     /* the ranks of its replicas, in order */
	int warmup;                     /* microbatches in flight at a replica, less one */
	bool recompute;                 /* each forward, or part of it, once more before its backward */
	/* The planner's predictions, for one replica. */
	int64_t forward_ns, backward_ns, allreduce_ns, memory_bytes;
};

/* Another plan, for comparison. */
struct pd_alternative {
	enum pd_alternative_kind kind;
	enum pd_schedule_kind schedule;
	enum pd_weight_kind weights;
	int64_t microbatches, ranks;
	char *stages;                   /* as for pd-plan --stages, such as "8x3,6x1"; owned */
	char *recompute;                /* the stages that do, as for --recompute, such as "0,2"; or
					   NULL */
	int64_t period_ns, memory_bytes;
	enum pd_period_kind period_from;
	double sent_bytes_per_sample;
	bool fits;                      /* into the devices' memory */
	int64_t tensor;                 /* its ranks are as many devices that share layers out; 0: as the plan's are */
};

/* The plan with a reducer, and the best buckets for that where any may be taken. */
struct pd_reducer_tried {
	int64_t period_ns;              /* 0: it was not tried */
	int64_t bucket_bytes;
	bool fits;
};

/* The best plan with a schedule and weights. */
struct pd_schedule_tried {
	int64_t period_ns;              /* 0: there is none */
	int64_t memory_bytes;
};

/* One update of the weights, as lib/predict/step.h computes it; what is not known is 0. */
struct pd_step {
	int64_t global_batch;           /* samples; 0: stages update after different numbers of microbatches */
	int64_t ns;
	double tokens_per_s;
	double device_flops_per_s, mfu; /* of one device */
};

/* The fastest plan that was found on more devices than a plan uses. */
struct pd_more {
	int64_t devices;                /* 0: none was found; ranks, until the plan is complete */
	double samples_per_s;
};

struct pd_prediction {
	int64_t period_ns, memory_bytes, lower_bound_ns;
	int64_t period_low_ns, period_high_ns;  /* where a run's lies in eight of ten cases; 0: unknown */
	enum pd_period_kind period_from, data_parallel_from;
	double samples_per_s, speedup_over_data_parallel;
	struct pd_step step;
	struct pd_more more;
	double gap;                     /* 0 if the period is an estimate: the document's is null */
	char order_from[48];            /* what found the plan's order; "": not said */
	bool ended_early;               /* the search left something out, for want of effort */
	int64_t data_parallel_period_ns, data_parallel_memory_bytes;
	double sent_bytes_per_sample;   /* by all ranks together */
	int alternative_count;
	struct pd_alternative *alternatives;    /* by kind; owned */
	struct pd_reducer_tried reducers[PD_REDUCER_KINDS];     /* where any may be taken */
	/* Where any schedule or weights may be taken, or an order was searched for. */
	struct pd_schedule_tried schedules[PD_SCHEDULE_KINDS][PD_WEIGHT_KINDS];
	bool any_bucket;                /* bucket_bytes was chosen, if only to be 0 */
};

struct pd_plan {
	char *document;                 /* where it was read, for messages; NULL: nowhere; owned */
	struct pd_profile *profile;     /* owned; it has all kinds that the topology has */
	struct pd_topology topology;
	enum pd_schedule_kind schedule;
	enum pd_weight_kind weights;
	enum pd_startup_kind startup;
	int64_t microbatches;
	int64_t round;                  /* microbatches of a replica that go through a stage before its rank's next one
					   (PD_FACT_ROUNDS); 0: as many as a path has ranks */
	bool agree;                     /* all stages agree on every update (operation agree) */
	enum pd_reducer_kind reducer;   /* sums the gradients of replicas */
	enum pd_dtype gradient_dtype;   /* what they are rounded to before they travel, or PD_F32 */
	int64_t bucket_bytes;           /* gradients above which a bucket is closed (memory/buckets.h);
					   0: a stage has one bucket */
	/* Sparse sums (plan/sparse.h). */
	int64_t chunk;                  /* gradients in one; 0: replicas sum all gradients */
	double sparsity;                /* the part of the chunks that stays, below 1 */
	int64_t sparsity_warmup;        /* minibatches in which it rises from 0 */
	int stage_count;
	struct pd_stage *stages;
	/*
	 * By layer, where its stage recomputes: with which others it is computed again, from 0 in
	 * each stage (memory/segments.h); -1: it is not.  NULL: each with all others; owned.
	 */
	int *segment;
	int rank_count;                 /* ranks used: 0 to rank_count - 1, each once */
	struct pd_order *order;         /* of PD_FACT_ORDERED (plan/given_order.h), certified; owned; else NULL */
	struct pd_prediction predicted;
};

extern const struct pd_key_row pd_plan_rows[];
struct pd_plan *pd_plan_parse_at(const struct pd_place *place, struct pd_error *err);
bool pd_plan_has_equal_replicas(const struct pd_plan *plan);
/* Returns what messages about the plan begin with: the document that it was read from, or "the plan". */
const char *pd_plan_name(const struct pd_plan *plan);
json_t *pd_plan_json(const struct pd_plan *plan);                   /* a new reference */
void pd_plan_free(struct pd_plan *plan);
/* Sets all predictions to zero. */
void pd_prediction_clear(struct pd_prediction *predicted);

/*
 * A plan with the given stages (layers and replicas set; ranks given out in order,
 * warm-ups by pd_plan_warmup); takes over profile (on failure too), copies topology;
 * predictions zero.  Where layers share parameters see pd_plan_check_shares.
 * layer_counts and replicas have stage_count entries; the layers must add up.
 */
struct pd_plan *pd_plan_new(struct pd_profile *profile, const struct pd_topology *topology,
			    int stage_count, const int *layer_counts, const int *replicas,
			    struct pd_error *err);

/*
 * Warm-up of stage s under 1F1B: microbatches in flight at a replica less one,
 * ceil(R / r) - 1 with R the ranks of this stage and all later ones and r its replicas
 * (SOSP 2019 section 3.2; NOAM of the input stage is warm-up + 1).
 */
int pd_plan_warmup(const struct pd_plan *plan, int stage);

/*
 * The forwards that a replica of each stage does ahead of its backwards while the pipeline
 * fills, into first (stage_count entries), as warm-ups are counted.  A frugal start-up has
 * the warm-ups themselves.  An eager one (SOSP 2019, figure 4) has every forward that
 * arrives before the first backward: the input stage admits what its warm-up says,
 * pd_plan_admitted microbatches; the first gradient comes back to a stage of r replicas with
 * R ranks behind it 3 R / r forwards after its own first forward has ended, where all ranks
 * are equally busy, a backward takes as long as two forwards and transfers take none:
 *
 *     first_0 = w_0;  first_s = max(w_s, min(floor(3 R_s / r_s), floor(first_{s-1} r_{s-1} / r_s)))
 *
 * From the first microbatch that the input stage does not admit at once, each stage is as far
 * ahead as its warm-up again.
 */
void pd_plan_first(const struct pd_plan *plan, int *first);
/* Returns 0 if the start-up is frugal. */
int64_t pd_plan_admitted(const struct pd_plan *plan);

/*
 * Tells whether each layer that shares parameters has a copy of its own, in any stage.  With 2bw
 * and flush it has; the gradients of the copies are summed before each update.
 */
bool pd_weights_copy_shared(enum pd_weight_kind weights);
/* Tells whether the plan has such copies; false if no layers share parameters. */
bool pd_plan_has_tied_weights(const struct pd_plan *plan);
/*
 * Tells whether all ranks agree on every update: because the plan says so, or to sum such
 * gradients.
 */
bool pd_plan_agrees(const struct pd_plan *plan);
/* Tells whether the gradients of weights are operations of their own. */
bool pd_plan_splits(const struct pd_plan *plan);
/*
 * Without copies, layers that share parameters must be in one stage: checks that they are.  The
 * message begins with `where`.
 */
int pd_plan_check_shares(const struct pd_plan *plan, const char *where, struct pd_error *err);

/* Tells whether a layer of the stage carries state from minibatch to minibatch. */
bool pd_plan_carries(const struct pd_plan *plan, int stage);
/* Tells whether one does, and each of the stage's replicas has some of the lanes. */
bool pd_plan_deals_lanes(const struct pd_plan *plan, int stage);
/*
 * Checks that each replica of the stages which do so always has the same lanes: that the microbatches
 * in which every lane is once are a multiple of the replicas.  The message begins with `where`.
 */
int pd_plan_check_lanes(const struct pd_plan *plan, const char *where, struct pd_error *err);

/* Tells whether it is data parallelism on all devices: one stage, of which each has a replica. */
static inline bool pd_plan_is_data_parallel(const struct pd_plan *plan)
{
	return plan->stage_count == 1 && plan->stages[0].replicas == plan->topology.devices;
}

/* Tells whether all stages update after the same microbatches, even after one. */
static inline bool pd_updates_in_groups(enum pd_schedule_kind schedule, enum pd_weight_kind weights)
{
	return pd_weights_have(weights, PD_WEIGHTS_GROUPS) ||
	       pd_schedule_has(schedule, PD_FACT_MINIBATCHES);
}

/* Returns the microbatches of an update of a stage. */
static inline int64_t pd_plan_group(const struct pd_plan *plan, int stage)
{
	return plan->microbatches > 1 || pd_updates_in_groups(plan->schedule, plan->weights)
		? plan->microbatches : plan->stages[stage].replicas;
}

/*
 * Returns for how many groups of microbatches a stage sums gradients at once.  It is 2 if all
 * stages agree on an update and versions are a group apart (2bw), because a stage then goes on with
 * the next group while it waits for the stages before it, or where a rank has several for any; else 1.
 */
int pd_plan_open_groups(const struct pd_plan *plan, int stage);

/*
 * Returns what a period is the time of, for people: "microbatch", or "minibatch" if that has one.
 */
const char *pd_plan_unit(const struct pd_plan *plan);

/*
 * Returns how fast a stage's replicas would sum in each other's memory (struct pd_members), as the slowest kind
 * of its devices.
 */
int64_t pd_plan_direct_bytes_per_s(const struct pd_plan *plan, int stage);
/* Returns the replicas of a stage as those who sum its gradients; it borrows the plan. */
struct pd_members pd_plan_members(const struct pd_plan *plan, int stage);

/* Returns the profile of a rank's device. */
static inline const struct pd_profile *pd_plan_profile_of(const struct pd_plan *plan, int rank)
{
	return pd_profile_of_kind(plan->profile, pd_topology_kind_of(&plan->topology, rank));
}
/* Returns the kinds of devices that a stage may be on: 1, where all are alike. */
static inline int pd_plan_kinds(const struct pd_plan *plan)
{
	return 1 + plan->profile->other_count;
}
/* Returns the first of a stage's ranks whose device is of a kind; -1: it has none. */
int pd_plan_rank_of_kind(const struct pd_plan *plan, int stage, int kind);

/* These return the stage that holds a layer, and the stage and replica of a rank. */
int pd_plan_stage_of_layer(const struct pd_plan *plan, int layer);
int pd_plan_stage_of_rank(const struct pd_plan *plan, int rank, int *replica_p);
