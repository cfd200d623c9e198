/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A layout of one's own, in the field's words: "tp=4 pp=4 vp=5 dp=4 schedule=interleaved
 * recompute=full".
 */
#pragma once

#include "plan/layout_door.h"
#include "planner/planner.h"

/* What is shared out, as a layout says it. */
enum pd_like_shard { PD_LIKE_NONE, PD_LIKE_OPTIMIZER, PD_LIKE_FULL, PD_LIKE_SHARDS };

struct pd_like {
	char *text;                     /* as it was given; owned */
	const struct pd_layout_door *door;
	/*
	 * 0: not said.  `replicas` are all of data parallelism, those that share weights out, too
	 */
	int64_t tensor, positions, chunks, replicas, context, experts, sharded, micro, batch, round;
	/* The number of a kind; -1: not said */
	int sequence, shard, schedule, weights;
	char *recompute;                /* as --recompute takes it; NULL: not said; owned */
};

/* Reads words with "=" in them, with blanks or commas between them. */
int pd_like_parse(const char *text, const struct pd_layout_door *door, struct pd_like *like_p,
		  struct pd_error *err);
void pd_like_release(struct pd_like *like);
/*
 * Plans exactly that layout; what it does not say is what the request says, with weights flush
 * unless these are said to be others (weights_said).  Stages have equally many blocks (the door
 * says which), or take about equally long.  Takes over the profile of ask that it chooses, as
 * pd_planner_choose() does.  Fails with PD_EXIT_NO where it does not fit.
 */
struct pd_plan *pd_like_plan(const struct pd_like *like, const struct pd_planner_ask *ask,
			     bool weights_said, struct pd_error *err);
/* Does the same for a row of a table, whether it fits or not; gives the profile back. */
struct pd_top_row;
int pd_like_row(const struct pd_like *like, const struct pd_planner_ask *ask, bool weights_said,
		struct pd_top_row *row_p, struct pd_error *err);
