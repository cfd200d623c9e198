/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a plan that are changed; private to this folder. */
#pragma once

#include "planner/search/candidate.h"

struct pd_plan_shape {
	struct pd_profile *profile;     /* the task's or a view of it: stages are runs of its layers */
	int count;
	int *ends, *replicas;           /* one entry more than count; ends in layers */
};

/* Makes room for so many stages and one more; for pd_plan_shape_release(). */
void pd_plan_shape_init(struct pd_plan_shape *shape, int room);
void pd_plan_shape_release(struct pd_plan_shape *shape);
void pd_plan_shape_copy(struct pd_plan_shape *to, const struct pd_plan_shape *from);
/* Sets the shape of a plan. */
void pd_plan_shape_of(struct pd_plan_shape *shape, const struct pd_plan *plan);
/* Returns it as a partition of the task, for the caller to free. */
struct pd_partition *pd_plan_shape_partition(const struct pd_plan_shape *shape,
					     const struct pd_task *task);
/* Tells whether two plans have the same. */
bool pd_plan_shape_same(const struct pd_plan *a, const struct pd_plan *b);
/* Tells whether a plan has this shape. */
bool pd_plan_shape_is_of(const struct pd_plan_shape *shape, const struct pd_plan *plan);

/* Returns the time of a layer's passes, on the fastest kind of device. */
int64_t pd_passes_ns(const struct pd_profile *profile, int l);

void pd_plan_shape_move_replica(struct pd_plan_shape *shape, int from, int to);
/* Makes one stage of two, with the replicas of both less these, or without replicas. */
void pd_plan_shape_join(struct pd_plan_shape *shape, int s, int less, bool straight);
/* Makes two stages of one, which end at this layer and where the one did. */
void pd_plan_shape_split(struct pd_plan_shape *shape, int s, int end, int left, int right);

/* Returns the state that consists of so many first layers of a view; -1: it is not held. */
int pd_plan_shape_state(const struct pd_states *states, const struct pd_profile *view, int layers);
