/* SPDX-License-Identifier: Apache-2.0 */
/* A plan's stages and links, measured for flow.c; private to this folder. */
#pragma once

#include "predict/cycle.h"
#include "predict/turns.h"
#include "schedule/schedule.h"
#include "sums/price.h"
#include "trace/recurrence.h"

struct pd_flow_link {                   /* a link between two stages */
	const struct pd_flow_stage *behind;
	int from, to;                   /* stages */
	int64_t way_ns[PD_MAX_LEVELS];  /* time of its tensors, by outermost level of the way */
	int64_t only_ns;                /* the same if neither stage has replicas; else -1 */
	const struct pd_link *differs;  /* what travels, where links of a level differ; else NULL */
	int64_t own_ns[PD_MAX_LEVELS];  /* for which the outermost link of the way is busy, by its level */
	int64_t *in_ns[PD_MAX_LEVELS];  /* when a component's link of a level is free for what arrives, activations and
					   gradients; NULL: nobody shares it */
	struct pd_turns turns;          /* of equal pipelines, of which this is one; count 0: of none */
	int64_t turns_free_ns[2];       /* when it is free for activations and for gradients */
	int turn;                       /* replica to which the next microbatch goes */
	int64_t *arrival_ns;            /* of microbatches on the link: n at n & mask */
	int64_t mask;
};

struct pd_flow_stage {
	int replicas;
	const int *ranks;               /* per replica */
	int in_count, out_count;
	const int *in, *out;            /* indices of links */
	int64_t forward_ns, backward_ns, update_ns;
	int64_t again_ns;               /* time of a forward before each backward */
	int64_t *out_ns[PD_MAX_LEVELS]; /* when a component's link of a level is free for what leaves its ranks */
	int64_t spread_ns[2];           /* by how much the last pipeline is behind the first, on the way up and back */
	int64_t weight_ns;              /* part of a backward that comes after as many others as `late` says */
	int64_t late;
	const struct pd_sum_delay *delays;      /* per replica: what its sum takes for sure */
	int64_t grouped_ns;             /* what an all-reduce in groups is expected to take; or 0 */
	bool deferred;                  /* the update is behind the next forward */
	int64_t lead;                   /* microbatches by which forwards are ahead of backwards */
	int64_t group, left;            /* microbatches of an update; those left until it */
	int down, up;                   /* replicas of the next forward, and of the next backward */
	uint64_t weight;                /* weight in the sums */
	int rank;                       /* rank of the last backward */
	int64_t end_ns;                 /* end of the last backward */
};

/* Times of a stage on a rank, where kinds of devices differ. */
struct pd_flow_own {
	int64_t forward_ns, backward_ns, update_ns, again_ns, weight_ns;
};

struct pd_flow {
	const struct pd_schedule *schedule;
	const struct pd_plan *plan;
	int64_t n;                      /* number of microbatches; of an update where the pipeline drains */
	struct pd_flow_stage *stages;
	struct pd_flow_link *links;
	struct pd_sum_delay *delays;    /* those of all stages */
	struct pd_flow_own *own;        /* per rank; NULL: those of its stage */
	int64_t *free_ns;               /* per rank */
	int64_t *left;                  /* per rank: parts of backwards that are still to come */
	int64_t *summed_ns;             /* per rank: when an update that is put off may begin; or -1 */
	int *component[PD_MAX_LEVELS];  /* of each rank, above level k */
	int64_t *backward_end;          /* of the first stage, by microbatch; NULL where the pipeline drains */
	uint64_t weights;               /* sum of all stages' weights */
	struct pd_recurrence recurrence;
	int64_t in_flight, look;        /* microbatches: at most; those after which it may repeat */
	int lanes;                      /* equal pipelines, of which this is one */
	bool likely;
	bool longer;                    /* some all-reduce takes longer if it is likely, or would, or a link is shared */
};

/*
 * Borrows schedule.  `likely`: an all-reduce in groups takes what sums/allreduce.h expects; else
 * only what it takes for sure.
 */
void pd_flow_init(struct pd_flow *flow, const struct pd_schedule *schedule,
		  const struct pd_stage_times *times, bool likely);
void pd_flow_release(struct pd_flow *flow);

/*
 * Where every stage has as many replicas, those of a number are a pipeline of their own.  If all these are alike one
 * says what all do: leaves that one, and takes its part of the microbatches.
 */
void pd_flow_keep_one(struct pd_flow *flow);

/* Returns the times of a stage on a rank. */
static inline struct pd_flow_own pd_flow_own(const struct pd_flow *flow, const struct pd_flow_stage *stage, int rank)
{
	return flow->own ? flow->own[rank] : (struct pd_flow_own){ stage->forward_ns, stage->backward_ns,
								   stage->update_ns, stage->again_ns, stage->weight_ns };
}

/* Does the same as pd_flow_way_ns() where links of a level differ. */
int64_t pd_flow_way_between(const struct pd_flow *flow, const struct pd_flow_link *link, int from, int to);

/* Returns the outermost level of the way between two ranks. */
static inline int pd_flow_level(const struct pd_flow *flow, int from, int to)
{
	int k = 0;

	while (flow->component[k] && flow->component[k][from] != flow->component[k][to])
		k++;
	return k;
}

/* Returns the time to send a link's tensors from rank to rank. */
static inline int64_t pd_flow_way_ns(const struct pd_flow *flow, const struct pd_flow_link *link,
				     int from, int to)
{
	if (link->only_ns >= 0)
		return link->only_ns;
	if (from == to)
		return 0;
	if (link->differs)
		return pd_flow_way_between(flow, link, from, to);
	return link->way_ns[pd_flow_level(flow, from, to)];
}
