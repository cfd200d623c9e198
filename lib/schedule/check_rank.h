/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's list while it is walked; private to check_rank.c and check_microbatch.c. */
#pragma once

#include "schedule/check.h"
#include "schedule/price.h"

/* The checker follows a rank's work as a replica of one stage. */
struct stage_walk {
	const struct pd_stage *stage;
	int s, replica, ins, outs;
	int64_t group;                  /* microbatches per update */
	int64_t count;                  /* microbatches of this replica */
	int64_t lanes;                  /* of its microbatches, from one to the next that goes on with its
					   state; 0: none does */
	bool *did;                      /* [activity][local microbatch] */
	int64_t *version;               /* per local microbatch: its forward's version */
	int *waiting;                   /* per link, first those in: waiting gradients */
	int64_t newest, updates;
	int64_t norms;                  /* of groups, summed */
	int64_t sums;                   /* all-reduces: of all groups, a bucket each */
	int buckets;                    /* pd_plan_bucket_count */
	int64_t in_parts;               /* the microbatch whose backward is in parts */
	int had;                        /* its parts so far; 0: no backward is open */
	int open;                       /* groups whose gradients are added up at once */
	int64_t backwards[2];           /* per group, by number mod 2 */
};

struct rank_walk {
	struct pd_fault *fault;
	const struct pd_lists *lists;
	const struct pd_prices *prices;
	int rank;
	size_t n;                       /* number of the current operation */
	const struct pd_op *op;         /* NULL: at the end */
	int64_t limit_bytes;
	bool device_limit;              /* the limit is the device's */
	struct stage_walk *parts;
	int part_count;
	int64_t agreed;                 /* groups with an agree so far */
	struct pd_op before;            /* the operation before the current one */
	struct pd_account account;
};

#define WRONG(w, ...) (pd_fault((w)->fault, (w)->rank, (w)->n, (w)->op, __VA_ARGS__), false)

/* Returns the microbatches per update of a stage. */
static inline int64_t check_group_of(const struct pd_plan *plan, int s)
{
	return plan->microbatches > 1 ? plan->microbatches : plan->stages[s].replicas;
}

/*
 * Returns the number of things that a microbatch can have done: operations of each kind, and
 * transfers of each link.
 */
static inline int check_activities(const struct stage_walk *part)
{
	return PD_OP_KINDS + 2 * (part->ins + part->outs);
}

/*
 * Records and checks an operation of one microbatch: a transfer, a load or a pass.  i is its number
 * among the replica's microbatches.
 */
bool pd_check_microbatch(struct rank_walk *w, struct stage_walk *part, const struct pd_op *op,
			 int64_t i);
