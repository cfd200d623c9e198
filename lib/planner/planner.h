/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a profile and a topology to a plan: stages, replicas and what they can be
 * expected to do.
 *
 *     task -> points -> layout -> entry {bound, estimate, replay} -> plan
 *
 * The folders below this one, lowest first; each includes only those above it in this list, and this file:
 *
 *     planner/cut        where a network can be cut: units, states, orders; the fewest devices for a value
 *     planner/formula    published costs, and the dynamic programme over them
 *     planner/bound      what no plan can beat
 *     planner/search     the search under the cost "simulated", and the replays that judge it
 *
 * planner/ itself has the list of what a request leaves open (variants.c), a first look at each (scout.c), the best
 * so far (best.c), what is searched of it (planner.c), orders (ordered.c), plans by hand (hand.c), how replicas sum
 * (sums.c), what a plan is compared with (alternatives.c) and why there is none (none.c).
 *
 * Where a question is answered:
 *
 *     the fewest devices for a time       cut/fewest.c: for the bound, pipelines without replicas, the least
 *                                         memory, and the walk over stages of search/line.c, which keeps
 *                                         a plan of what is behind a point, with its place
 *     what an all-reduce sends where      sums/traffic.c, of all members, and of those in one component
 *                                         of a line; reducers' scripts say who sends whom.
 *     what a sum costs                    sums/price.h: what it takes alone, for what links and members
 *                                         are busy, and what it takes at least wherever its members are
 *     the cycles of 1F1B                  predict/cycle.h: the period that leads allow, and the leads that a
 *                                         period needs; predict/flow.c has those of replicas, by recurrence
 *     what several stages on a rank take  predict/walk.c: the ranks' own order, as early as it can be
 *     stages' times                       pd_stage_times_of() in predict/cycle.c
 *     the slowest link of a way           pd_slowest_link() in topology/topology.c
 *     sums over layers before a point     pd_points_sum() in cut/points.c
 *     even stages, and fast ones          cut/partition.c
 *
 * A *task* (cut/task.h) is a request (bin/pd-plan.c makes it of its options) with a profile's sums
 * (predict/cost.c).  *Points* are where it may be cut: units of the profile's order, or states of a network
 * with branches (cut/states.c, cut/points.c).  A *layout* says between which points a stage is and how
 * many replicas it has (struct pd_partition).  At a place on the machine and with warm-ups it is an
 * *entry* (search/contest.h) with three numbers, and each has one use:
 *
 *     bound      prunes: no replay settles below it (predict/flow.c has the proof for 1F1B, gpipe and none;
 *                for other schedules it is what links and ranks take).  planner/bound has that of all
 *                plans; it makes the gap (where a network has too many states, it is that of the machine
 *                as a whole)
 *     estimate   ranks: about what a replay takes.  It may be wrong either way
 *     replay     judges (predict/judge.c).  Where it would take too long the estimate does, and the
 *                document says so (period_from) and knows no gap
 *
 * Who decided what is in a plan:
 *
 *     which layers are in a stage,        search/line.c: the fewest devices for a time, by bisection, with
 *     how many replicas it has            the stages' links and memory (cut/points.c: what stages of
 *                                         networks with branches send).  Then refine.c, which moves a cut
 *                                         or a replica of a plan that replays found fast, or makes two or
 *                                         three changes at random, with another state at one cut where
 *                                         there are branches, and ranks what comes of it by that plan's
 *                                         replay; later also by estimates.  In the end replays judge each
 *                                         change of the best plans of several numbers of stages
 *     the stages of interleaved plans     enter_chunks() in simulated.c, from cut/partition.c, on all devices and
 *     and of those in a V                 on fewer; then refine.c
 *     where memory is so tight that       cut/partition.c: the stages of least memory, which refine.c changes, on
 *     nothing is found                    all devices and on fewer; these are also what is said to be closest if
 *                                         nothing fits
 *     how long this goes on               simulated.c: patience() without a faster plan, less where the
 *                                         bound is near; and at most an effort that everything counts its
 *                                         steps in (base/effort.h), whereupon no more is looked at
 *     where a stage may begin             predict/cost.c: not between layers that share parameters without copies, nor
 *                                         before one that is joined to the last, as doors/layout/blocks.c finds
 *                                         modules for other systems (--cut, --format)
 *     on which ranks it is                search/placement.c
 *     in which order kinds of devices     kinds.c and pd_planner_plan(): a search for each; ranks get their old
 *     are on the line                     numbers back where nobody is left out before them
 *     how many forwards are ahead         search/warmup.c, from its windows, where memory is tight those
 *                                         of the shortest period for which they fit; one more at a time in
 *                                         contest.c, while replays gain
 *     which stages recompute              search/recompute.c: those that do not fit otherwise, or only as many
 *                                         of their layers as are needed
 *     which entry won                     contest.c; the order of equals is
 *                                         pd_candidate_compare() in candidate.c
 *     that devices are left out           search/gain.h, leave_out() in search/simulated.c; idle.c
 * says what
 *                                         they would bring
 *     all of it, where plans are few      search/exhaust.c: the best of all, as test/unit/search.c checks by
 *                                         brute force for every schedule and every order on two levels
 *     under a published cost              formula/levels.c, by the terms of formula/terms.h
 *
 * So why does VGG-16 become 15-1 on 4@12GB/s,4@1.25GB/s (pd-plan -m 1TB --explain)?  Data parallelism takes
 * 115 ms, since the 553 MB of parameters are summed over links of 1.25 GB/s.  513 MB of them are behind layer
 * 25: there line.c cut, for no stage that has them and replicas keeps to a shorter time.  The first stage, with
 * 40 MB and 15 replicas, takes 46.3 ms with its all-reduce, 97 % of the period; the second, alone, 37.4 ms.
 * placement.c put the second on rank 0, and warmup.c gave two forwards ahead.  The bound, 43.1 ms, knows no
 * link that stages share; the link of ranks 0-3 is busy for 35 ms.  Whether a change is better, --stages says.
 */
#pragma once

#include "base/effort.h"
#include "plan/plan.h"
#include "predict/cost.h"

#include <stdbool.h>

enum pd_recompute_kind {
#define RECOMPUTE_KIND(symbol, name, what) PD_RECOMPUTE_##symbol,
#include "planner/search/recompute_kind.def"
#undef RECOMPUTE_KIND
	PD_RECOMPUTE_KINDS
};

extern const char *const pd_recompute_kind_name[PD_RECOMPUTE_KINDS + 1];

/* Memory of a device for which no plan is too large. */
#define PD_MEMORY_UNLIMITED ((int64_t)1 << 60)

struct pd_plan_request {
	const struct pd_topology *topology;
	int64_t memory_bytes;           /* of one device; 0: the topology's, else the profile's */
	const char *stages;             /* a plan by hand, such as "8x1,6x1"; or NULL */
	/* how it is said that these do not fit; NULL: as of --stages */
	const char *stages_need;
	bool straight;                  /* no stage has replicas */
	/* every stage has as many replicas, and 1f1b its usual warm-ups: pipelines of other systems */
	bool equal;
	unsigned schedules;             /* 1 << kind of those that may be taken where any may; 0: all */
	bool runs;                      /* stages are runs of the profile's layers */
	enum pd_cost_kind cost;
	enum pd_schedule_kind schedule;
	enum pd_weight_kind weights;
	enum pd_startup_kind startup;   /* eager: only with 1f1b */
	int64_t microbatches;           /* per update; 0: the usual number */
	int64_t batch_microbatches;     /* at most so many, in multiples of the replicas; 0: as microbatches says */
	int chunks;                     /* stages per rank if interleaved, else 0 */
	bool any_chunks;                /* take the number with the fastest plan */
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
	/*
	 * By layer of the profile: with which others it may be computed again, such as its block's;
	 * -1: it is not.  Those with one number follow one another.  NULL: only whole stages are.
	 */
	const int *segments;
	bool segments_asked;            /* all of them are, in every stage where that saves memory */
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

/* What came of one profile of several: of its best plan, and of the best equal pipelines. */
struct pd_batch_choice {
	int64_t batch_size, microbatches;       /* those of its best plan; 0: none fits */
	double search_samples_per_s;            /* 0: none */
	double grid_samples_per_s;              /* of `width` equal pipelines of `depth` positions */
	int width, depth;
	bool recomputed;                        /* stages of these recompute */
	bool chosen;
};

#define PD_GROUPS_MOST 64               /* degrees that are tried */

/* What came of one degree: of devices that are put together as one rank (profile/profile.h, struct pd_degrees). */
struct pd_group_choice {
	struct pd_degrees group;
	bool shards_optimizer; /* replicas of a group share out what the optimizer keeps */
	double samples_per_s;           /* 0: there is no plan */
	int ranks;
	bool chosen;
	char why[256];                  /* there is none */
};

struct pd_group_request {
	int count;
	struct pd_group_choice choices[PD_GROUPS_MOST]; /* what is tried, and what comes of it */
	bool spans;                     /* a group may be of several components of the innermost level */
	bool asked;                     /* there are some */
};

/* How far the search for the best plan is. */
struct pd_search_progress {
	/* combinations that are open, and those that were looked at */
	int variants, looked;
	double samples_per_s;           /* of the best plan so far; 0: there is none */
	enum pd_schedule_kind schedule; /* of that */
	/*
	 * What is done of all, 0 to 1 and never less than before, and what is when this part ends.
	 */
	double part, next;
};

#define PD_SEARCH_LOOKED 0.2            /* the part in which equal pipelines of all are looked at */

/* A request with all that is open beside what struct pd_plan_request says. */
struct pd_planner_ask {
	struct pd_profile **profiles;   /* of one model, with different batch sizes */
	int count;
	int64_t batch;                  /* most samples of an update; 0: the usual number of microbatches */
	const struct pd_plan_request *request;
	struct pd_group_request *groups;        /* degrees to be tried; NULL: the profiles are as they are */
	struct pd_batch_choice *choices;        /* one of each profile; or NULL */
	struct pd_top *top;             /* the best plans (top.h), of which all variants are looked at; or NULL */
	struct pd_search_progress *progress;    /* kept up to date while it searches; or NULL */
};

/*
 * Returns the plan with most samples per second, where one more device must bring what the request says (search/gain.h).
 * It takes over the profile that it chooses, whose entry becomes NULL, or has one that was estimated for its degree.
 */
struct pd_plan *pd_planner_choose(const struct pd_planner_ask *ask, struct pd_error *err);
/* The usual effort of a search; those for some hundred layers and devices need less. */
#define PD_PLANNER_EFFORT 200e9
/* The most layers of a network; the time of searches grows with their square. */
#define PD_PLANNER_LAYERS 16384
/* Stages per rank if interleaved, if the user gives no number. */
#define PD_PLANNER_CHUNKS 2
/* The most that are tried where any number may be. */
#define PD_PLANNER_CHUNKS_MOST 8
