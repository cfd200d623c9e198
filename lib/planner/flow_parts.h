/* SPDX-License-Identifier: Apache-2.0 */
/* What flow.c goes through: a plan's stages and links, measured; private to this folder. */
#ifndef PD_PLANNER_FLOW_PARTS_H
#define PD_PLANNER_FLOW_PARTS_H

#include "planner/links.h"
#include "schedule/schedule.h"

struct pd_flow_link {                   /* between two stages */
	const struct pd_stage *from, *to;
	const struct pd_flow_stage *behind;     /* `to` */
	int64_t way_ns[PD_MAX_LEVELS];  /* of its tensors, by outermost level of the way */
	int64_t only_ns;                /* the same where neither stage has replicas; else -1 */
	int turn;                       /* which replica the next that goes down is for */
	int64_t *arrival_ns;            /* of those on their way down: microbatch n at n & mask */
	int64_t mask;
};

struct pd_flow_stage {
	const struct pd_stage *plan;
	int in_count, out_count;
	const int *in, *out;            /* links */
	int64_t forward_ns, backward_ns, update_ns;
	int64_t again_ns;               /* a forward before each backward */
	const struct pd_reduce *reduces;        /* by replica */
	int64_t lead;                   /* microbatches that forwards are ahead of backwards */
	int64_t group, left;            /* microbatches of an update; until the next one */
	int down, up;                   /* which replica does the next forward, the next backward */
	uint64_t weight;                /* in marks */
	int rank;                       /* of the last backward, */
	int64_t end_ns;                 /* and its end */
};

struct pd_flow {
	const struct pd_schedule *schedule;
	const struct pd_plan *plan;
	int64_t n;                      /* microbatches */
	struct pd_flow_stage *stages;
	struct pd_flow_link *links;
	struct pd_reduce *reduces;      /* all stages' */
	int64_t *arrival_ns;            /* all links' */
	int64_t *free_ns;               /* per rank */
	int *component[PD_MAX_LEVELS];  /* of each rank, above level k */
	int64_t *backward_end;          /* of the first stage, by microbatch */
	uint64_t *marks;                /* of the others', by microbatch: tick() */
	uint64_t weights;               /* of all stages */
};

/* Borrows schedule. */
void pd_flow_init(struct pd_flow *flow, const struct pd_schedule *schedule);
void pd_flow_release(struct pd_flow *flow);

/* What is sent goes from rank to rank. */
static inline int64_t pd_flow_way_ns(const struct pd_flow *flow, const struct pd_flow_link *link,
				     int from, int to)
{
	int k = 0;

	if (link->only_ns >= 0)
		return link->only_ns;
	if (from == to)
		return 0;
	while (flow->component[k] && flow->component[k][from] != flow->component[k][to])
		k++;
	return link->way_ns[k];
}

#endif
