/* SPDX-License-Identifier: Apache-2.0 */
/* Plans, and small changes to lists, that the tests of schedules share. */
#pragma once

#include "schedule/list.h"

#define MOST_RANKS 32

extern const char *const chain, *const sixteen, *const skips;   /* small_profile.h */

struct table_plan {
	const char *name;
	int stages, layers[8], replicas[8];
};

#define TABLE_PLANS 18
extern const struct table_plan plans[TABLE_PLANS];

/* Returns a plan with so many layers and replicas per stage, or prints why there is none. */
struct pd_plan *plan_of(const char *graph, int stages, const int *layers, const int *replicas);
/* Returns a plan with stages s and s + positions on the same ranks; positions = stages: none are. */
struct pd_plan *make_plan(const char *graph, const struct table_plan *from, int positions);
void use(struct pd_plan *plan, enum pd_schedule_kind schedule, enum pd_weight_kind weights,
	 int64_t microbatches);
/* Puts the stages from `positions` on, on the ranks of those before, as the plan's schedule wants it. */
void share(struct pd_plan *plan, int positions);
/* Makes the stages of a set recompute: bit s stands for stage s. */
void recompute_in(struct pd_plan *plan, unsigned set);

void swap(struct pd_list *list, size_t a, size_t b);
void move(struct pd_list *list, size_t from, size_t to);
/* Returns the first wanted operation from `at` on, then from the beginning on, or `at` if there is none. */
size_t pick(const struct pd_list *list, size_t at, bool (*wanted)(const struct pd_op *));
bool same_op(const struct pd_op *a, const struct pd_op *b);
