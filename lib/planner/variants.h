/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a request leaves open.  A *field* is a profile on a machine: one of the degrees, of the microbatch sizes and of
 * the orders of kinds.  A *variant* is a field with a schedule and weights.  What is open in a variant, positions,
 * pipelines, virtual stages, microbatches and recomputation, is chosen by the scout (scout.h) and the search.
 */
#pragma once

#include "planner/cut/partition.h"
#include "planner/cut/task.h"
#include "planner/kinds.h"

#define PD_CUTS_MOST 512
/* Even partitions of 1 to `most` stages. */
struct pd_cuts {
	int most;
	struct pd_partition **even;     /* NULL entries: too much work */
};

struct pd_field {
	int degree, size;               /* numbers of the degree and of the profile that was asked for */
	int64_t devices;                /* that act as one rank */
	struct pd_profile *profile, *fastest;
	bool owned;                     /* the profile was estimated for this field */
	struct pd_topology topology;
	const struct pd_kinds_order *kinds;
	struct pd_plan_request request;
	struct pd_task task, copied;    /* copied: each layer that shares parameters has a copy */
	struct pd_views views[2];
	bool viewed, one_order;
	struct pd_cuts cuts[2];         /* of task and copied */
	struct pd_schedule_tried tried[PD_SCHEDULE_KINDS][PD_WEIGHT_KINDS];
	int64_t closest_bytes;          /* what the closest needs where no plan fits */
	bool ordered;                   /* orders are searched for */
	int searched;                   /* variants that were */
	/* Of its best plan, and of the best equal pipelines: */
	double value, samples_per_s, look_samples_per_s;        /* 0: there is none */
	int ranks, width, depth;
	int64_t microbatches;
	bool recomputed;
	struct pd_error why;            /* there is none; PD_EXIT_YES: not known */
};

struct pd_variant {
	struct pd_field *field;
	struct pd_plan_request request; /* nothing is open but how replicas sum */
	struct pd_task task;
	bool named;                     /* the request asks for it; else its stages are for orders */
	double value;                   /* of its best plan (best.h); 0: none was found */
	double looked;                  /* the same before it was searched */
	bool searched;
	int64_t microbatches;           /* of its best plan */
	int chunks;
	int least_ranks;                /* of equal pipelines that are looked at */
	struct pd_plan *plan;           /* which the search found; or NULL */
	int64_t time_ns;
};

struct pd_variants {
	const struct pd_planner_ask *ask;
	struct pd_kinds_orders orders;
	int field_count, count;
	struct pd_field *fields;
	struct pd_variant *list;
};

/*
 * Lists them.  Degrees that are impossible have a reason in ask->degrees, and *why_p is the first.  Fails where the
 * request contradicts itself.
 */
int pd_variants_init(struct pd_variants *variants, const struct pd_planner_ask *ask, struct pd_error *why_p,
		     struct pd_error *err);
void pd_variants_release(struct pd_variants *variants);
/* Lets searches of the field look at all orders of its layers, where the request allows that. */
void pd_field_view(struct pd_field *field);
/* Returns the field's task for such weights. */
struct pd_task *pd_field_task(struct pd_field *field, enum pd_weight_kind weights);
/* Returns the even partitions of a variant. */
const struct pd_cuts *pd_variant_cuts(const struct pd_variant *variant);
/* Tells what came of degrees and sizes, where that was asked: of all, and that the plan is of one. */
void pd_variants_tell(struct pd_variants *variants, const struct pd_field *won, const struct pd_plan *plan);
/* Makes a plan's field have the layers in the plan's order. */
void pd_field_take_order(struct pd_field *field, struct pd_plan *plan);
