/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a profile and a topology to a plan: stages, replicas and what they can be
 * expected to do.
 *
 * Under the cost "simulated" (simulated.c): line.c finds stages, replicas and their place on a
 * machine of shared links, place.c puts them elsewhere, warmup.c says how many minibatches are in
 * flight, refine.c changes what is good, flow.c bounds each plan from below, contest.c keeps them,
 * judge.c replays one and contest_replays.c says which; recompute.c says which stages do forwards
 * again for want of memory; exhaust.c looks at all plans where they are few, auto.c at several
 * schedules and weights.  Under a published formula (terms.h) a dynamic programme over the states of
 * the network decides alone (levels.c).
 * Stages need not be runs of the profile's layers (points.h): the plan's profile is then in another
 * order (views.h, pd_profile_reorder).  bound.c says what no plan can beat, none.c why there is none.
 */
#ifndef PD_PLANNER_PLANNER_H
#define PD_PLANNER_PLANNER_H

#include "plan/plan.h"
#include "planner/cost.h"

#include <stdbool.h>
#include <stdio.h>

enum pd_recompute_kind {
#define RECOMPUTE_KIND(symbol, name, what) PD_RECOMPUTE_##symbol,
#include "planner/recompute_kind.def"
#undef RECOMPUTE_KIND
	PD_RECOMPUTE_KINDS
};

extern const char *const pd_recompute_kind_name[PD_RECOMPUTE_KINDS + 1];        /* NULL-terminated */

struct pd_plan_request {
	const struct pd_topology *topology;
	int64_t memory_bytes;           /* of one device; 0: the topology's, else the profile's */
	const char *stages;             /* a plan by hand, such as "8x1,6x1"; or NULL */
	bool straight;                  /* no stage has replicas */
	bool runs;                      /* stages are runs of the profile's layers */
	enum pd_cost_kind cost;
	enum pd_schedule_kind schedule;
	enum pd_weight_kind weights;
	enum pd_startup_kind startup;   /* eager: with 1f1b */
	int64_t microbatches;           /* per update; 0: what is usual */
	int chunks;                     /* stages per rank, interleaved; else 0 */
	bool agree;                     /* all stages on every update: 2bw and flush */
	enum pd_recompute_kind recompute;
	const char *recomputed;         /* with stages: those that recompute, such as "0,2"; or NULL */
	bool any_schedule, any_weights; /* whichever makes the fastest plan */
	double min_gain;                /* part by which one more device must make a plan faster;
					   0: by anything (gain.h) */
};

/*
 * A plan that fits, with its predictions.  Takes over profile if it succeeds.  Fails with
 * PD_EXIT_NO when no plan fits (the message names the closest), with PD_EXIT_USAGE when
 * request->stages is wrong or the schedule and the weights cannot be had together.
 */
struct pd_plan *pd_planner_plan(struct pd_profile *profile, const struct pd_plan_request *request,
				struct pd_error *err);

/*
 * Into request: the schedule and weights of these names, either of which may be NULL (1f1b;
 * what is usual with the schedule) or "auto", and the chunks that go with them.
 */
int pd_planner_policy(const char *schedule, const char *weights,
		      struct pd_plan_request *request, struct pd_error *err);
/* Into request, which has its stages: what --recompute says. */
int pd_planner_recompute(const char *text, struct pd_plan_request *request, struct pd_error *err);
/*
 * Microbatches of an update where nobody says how many: where all replicas of a stage share a
 * group, one per rank, or as many more as all can share; else 1.
 */
int64_t pd_planner_microbatches(const struct pd_plan *plan);
/* Does a plan with these weights agree on updates: as asked, and as pd-run has f16 do it. */
bool pd_planner_agrees(const struct pd_plan_request *request, const struct pd_profile *profile,
		       enum pd_weight_kind weights);
/* 1f1b with stashing, one minibatch of each replica per update. */
bool pd_planner_plain(const struct pd_plan_request *request);

/*
 * The topology that a user means: gpus devices joined by the profile's link, or a topology
 * by name (pd_topology_read); 0 and NULL where not given, and one must be.
 */
int pd_planner_topology(const struct pd_profile *profile, int64_t gpus, const char *topology,
			struct pd_topology *out_p, struct pd_error *err);

/* What became of one profile of several. */
struct pd_batch_choice {
	int64_t batch_size, microbatches;       /* of its best plan; 0: none fits */
	double search_samples_per_s;            /* 0: none */
	double grid_samples_per_s;              /* of `width` equal pipelines of `depth` stages */
	int width, depth;
	bool recomputed;                        /* do stages of that recompute? */
	bool chosen;
};

/*
 * The plan with most samples per second of several profiles of one model at different batch
 * sizes, with at most batch samples per update; 0: as many microbatches as usual (batch.c).
 * Takes over the profile that it chooses, whose entry becomes NULL.  choices: one for each.
 */
struct pd_plan *pd_planner_batch(struct pd_profile **profiles, int count, int64_t batch,
				 const struct pd_plan_request *request,
				 struct pd_batch_choice *choices, struct pd_error *err);
/* More layers than these are not planned for: searches take time by their square. */
#define PD_PLANNER_LAYERS 16384
/* Are they of one model?  0, or -1 (usage) with a message that begins with a file's name. */
int pd_planner_same_model(const struct pd_profile *a, const char *a_file,
			  const struct pd_profile *b, const char *b_file, struct pd_error *err);
void pd_batch_explain(const struct pd_batch_choice *choices, int count, FILE *out);

/* Tables for people: stages, their times and memory, links; what limits; the comparison. */
void pd_plan_explain(const struct pd_plan *plan, FILE *out);
/* Drawings.  -1 (usage): there is too much to draw, which the first also says before the plan is. */
int pd_plan_svg_check(const struct pd_topology *topology, struct pd_error *err);
int pd_plan_svg(const struct pd_plan *plan, FILE *out, struct pd_error *err);
int pd_plan_dot(const struct pd_plan *plan, FILE *out, struct pd_error *err);

#endif
