/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The best plans so far, why there are none, and what was tried.  Less is better of a plan's value: the time of a sample,
 * times the weight of the devices that it uses (search/gain.h).
 */
#pragma once

#include "planner/variants.h"

enum pd_best_from {
	PD_BEST_LOOKED,                 /* equal pipelines or a line's plan, by an estimate */
	PD_BEST_SEARCHED,
};

struct pd_best_entry {
	struct pd_plan *plan;           /* owned */
	struct pd_variant *variant;
	int64_t time_ns;                /* of a microbatch */
	double value;
	enum pd_best_from from;
	bool settled;                   /* its time is by a replay, or by the best estimate there is */
};

struct pd_best {
	int most, count;
	struct pd_best_entry *entries;  /* the best first; of a shape of plans one */
	int looked, estimated, searched;        /* variants, shapes of them, and those that were searched */
	struct pd_error why;            /* why there is none; its status is PD_EXIT_YES while nothing is known */
	int64_t closest_bytes;
};

void pd_best_init(struct pd_best *best, int most);
void pd_best_release(struct pd_best *best);
/* Returns what a plan is compared by. */
double pd_best_value(const struct pd_variant *variant, const struct pd_plan *plan, int64_t time_ns);
/* Takes a plan; returns whether it is the best so far. */
bool pd_best_offer(struct pd_best *best, struct pd_variant *variant, struct pd_plan *plan, int64_t time_ns,
		   enum pd_best_from from);
/* Keeps why there is no plan: that nothing fits says more than what is impossible, and what is closest most. */
void pd_best_refuse(struct pd_best *best, struct pd_variant *variant, const struct pd_error *why,
		    int64_t closest_bytes);
/* Has the table of the best plans. */
struct pd_top;
void pd_top_fill(struct pd_top *top, const struct pd_best *best);
/* Returns what a plan takes by a replay, or by the best estimate there is, and says which. */
int64_t pd_best_settled_ns(const struct pd_best_entry *entry, enum pd_period_kind *from_p);
/* Has replays judge the best plan until that is one that was judged so, as far as replays can tell. */
void pd_best_settle(struct pd_best *best);
/* Returns the best value so far; or infinity. */
double pd_best_least(const struct pd_best *best);
