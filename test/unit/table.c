/* SPDX-License-Identifier: Apache-2.0 */
#include "table.h"

#include "small_profile.h"
#include "tap.h"

#include <string.h>

const char *const chain = "a<x b<a c<b d<c e<d f<e g<f h<g";
const char *const sixteen =
	"a<x b<a c<b d<c e<d f<e g<f h<g i<h j<i k<j l<k m<l n<m o<n p<o";
const char *const skips = "a<x b<a c<ab d<c e<da f<eb g<fa h<gac";

const struct table_plan plans[TABLE_PLANS] = {
	{ "1", 1, { 8 }, { 1 } },
	{ "4 (data parallel)", 1, { 8 }, { 4 } },
	{ "1-1", 2, { 4, 4 }, { 1, 1 } },
	{ "1-1-1-1", 4, { 2, 2, 2, 2 }, { 1, 1, 1, 1 } },
	{ "8 straight", 8, { 1, 1, 1, 1, 1, 1, 1, 1 }, { 1, 1, 1, 1, 1, 1, 1, 1 } },
	{ "2-1", 2, { 4, 4 }, { 2, 1 } },
	{ "1-2", 2, { 4, 4 }, { 1, 2 } },
	{ "2-2", 2, { 4, 4 }, { 2, 2 } },
	{ "3-1", 2, { 5, 3 }, { 3, 1 } },
	{ "1-3", 2, { 3, 5 }, { 1, 3 } },
	{ "3-2", 2, { 5, 3 }, { 3, 2 } },
	{ "3-2-1", 3, { 3, 3, 2 }, { 3, 2, 1 } },
	{ "1-2-3", 3, { 3, 3, 2 }, { 1, 2, 3 } },
	{ "15-1", 2, { 7, 1 }, { 15, 1 } },
	{ "1-15", 2, { 1, 7 }, { 1, 15 } },
	{ "5-3-7", 3, { 2, 3, 3 }, { 5, 3, 7 } },
	{ "1-8-3-1", 4, { 1, 3, 3, 1 }, { 1, 8, 3, 1 } },
	{ "2-2-2", 3, { 2, 4, 2 }, { 2, 2, 2 } },
};

struct pd_plan *plan_of(const char *graph, int stages, const int *layers, const int *replicas)
{
	struct pd_topology topology;
	struct pd_plan *plan;
	struct pd_error err;

	pd_topology_flat(MOST_RANKS, 1000000000, 1000, &topology, &err);
	plan = pd_plan_new(small_profile(graph), &topology, stages, layers, replicas, &err);
	if (!plan)
		diag("%s", err.text);
	return plan;
}

struct pd_plan *make_plan(const char *graph, const struct table_plan *from, int positions)
{
	struct pd_plan *plan = plan_of(graph, from->stages, from->layers, from->replicas);

	for (int s = positions; plan && s < plan->stage_count; s++) {
		for (int r = 0; r < plan->stages[s].replicas; r++)
			plan->stages[s].ranks[r] = plan->stages[s % positions].ranks[r];
		plan->rank_count -= plan->stages[s].replicas;
	}
	return plan;
}

void share(struct pd_plan *plan, int positions)
{
	for (int s = positions; s < plan->stage_count; s++)
		memcpy(plan->stages[s].ranks, plan->stages[pd_schedule_position(plan->schedule, positions, s)].ranks,
		       (size_t)plan->stages[s].replicas * sizeof(int));
}

void use(struct pd_plan *plan, enum pd_schedule_kind schedule, enum pd_weight_kind weights,
	 int64_t microbatches)
{
	plan->schedule = schedule;
	plan->weights = weights;
	plan->microbatches = microbatches;
	if (pd_schedule_has(schedule, PD_FACT_SHARES))
		share(plan, plan->rank_count / plan->stages[0].replicas);
}

void recompute_in(struct pd_plan *plan, unsigned set)
{
	for (int s = 0; s < plan->stage_count; s++)
		plan->stages[s].recompute = set >> s & 1;
}

void swap(struct pd_list *list, size_t a, size_t b)
{
	struct pd_op op = list->ops[a];

	list->ops[a] = list->ops[b];
	list->ops[b] = op;
}

void move(struct pd_list *list, size_t from, size_t to)
{
	struct pd_op op = list->ops[from];

	if (from < to)
		memmove(&list->ops[from], &list->ops[from + 1], (to - from) * sizeof(op));
	else
		memmove(&list->ops[to + 1], &list->ops[to], (from - to) * sizeof(op));
	list->ops[to] = op;
}

size_t pick(const struct pd_list *list, size_t at, bool (*wanted)(const struct pd_op *))
{
	size_t i;

	for (i = 0; i < list->count && !wanted(&list->ops[(at + i) % list->count]);)
		i++;
	return (at + i) % list->count;
}

bool same_op(const struct pd_op *a, const struct pd_op *b)
{
	return a->kind == b->kind && a->rank == b->rank && a->stage == b->stage &&
	       a->peer == b->peer && a->link == b->link && a->microbatch == b->microbatch &&
	       a->bucket == b->bucket && a->version == b->version && a->keep == b->keep && a->seq == b->seq;
}
