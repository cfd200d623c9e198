/* SPDX-License-Identifier: Apache-2.0 */
/* An order while a search makes it, with the times and the memory of what is there so far. */
#pragma once

#include "order/order.h"
#include "order/run.h"

struct pd_order_build {
	const struct pd_order_request *request;
	struct pd_order *order;
	struct pd_order_run run;
	int *count;                     /* [pass][stage]: how many are there */
	struct pd_order_waiting {
		int *stages;            /* of the W's whose I is there, in the order of these */
		int first, end;
	} *waiting;                     /* per position */
};

struct pd_order_build pd_order_build_begin(const struct pd_order_request *request);
void pd_order_build_release(struct pd_order_build *build);

static inline int *pd_order_count(const struct pd_order_build *build, enum pd_order_pass pass, int stage)
{
	return &build->count[(int)pass * build->request->stages + stage];
}

static inline struct pd_order_seat *pd_order_seat(const struct pd_order_build *build, int position)
{
	return &build->run.seats[position];
}

static inline bool pd_order_weight_waits(const struct pd_order_build *build, int position)
{
	return build->waiting[position].first < build->waiting[position].end;
}

/* Tells whether the next microbatch of a pass is there to be computed: what it needs has been. */
bool pd_order_can(const struct pd_order_build *build, enum pd_order_pass pass, int stage);
/* Returns when what that needs is at its position; 0 if it is made there. */
int64_t pd_order_arrival(const struct pd_order_build *build, enum pd_order_pass pass, int stage);
/* Adds it, as early as it can begin; returns false if it is not there. */
bool pd_order_put(struct pd_order_build *build, enum pd_order_pass pass, int stage);
/* Adds the W that has waited longest. */
void pd_order_put_weight(struct pd_order_build *build, int position);
void pd_order_put_weights(struct pd_order_build *build);
/* Returns how long it takes. */
int64_t pd_order_weight_ns(const struct pd_order_build *build, int position);

int64_t pd_order_cap(const struct pd_order_request *request, int position);
/* Adds W's until there is room for so many bytes; returns false where that is not enough. */
bool pd_order_make_room(struct pd_order_build *build, int position, int64_t bytes);
/* Returns the most that any position has been idle. */
int64_t pd_order_most_idle(const struct pd_order_build *build);
/*
 * Adds the W's that are done at until_ns.  If one still waits and the position would be idle, one more, if that
 * keeps others waiting no longer than idle_ns, or `greedy`.
 */
void pd_order_fill(struct pd_order_build *build, int position, int64_t until_ns, int64_t idle_ns, bool greedy);
