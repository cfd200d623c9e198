/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For a value t, the fewest stages from unit u on, each of which keeps to t,
 *
 *     F(u) = min over u < v <= U, where [u, v) keeps to t before F(v) stages, of  1 + F(v),
 *     F(U) = 0,
 *
 * and the least t with F(0) small enough by bisection.  What follows v may be replaced by the fewest
 * stages, since the stage before then keeps to t all the more.
 */
#include "planner/cut/fewest.h"

#include "base/mem.h"

#include <stdlib.h>

#define NONE INT32_MAX

struct fewest {
	const struct pd_costs *costs;
	pd_fewest_holds holds;
	const void *context;
	struct pd_row row;
	int *stages, *next;             /* F(u), or NONE; the v that gives it */
};

static int fewest_for(struct fewest *f, int64_t value)
{
	int U = f->costs->unit_count;

	f->stages[U] = 0;
	for (int u = U - 1; u >= 0; u--) {
		pd_row_set(&f->row, u);
		f->stages[u] = NONE;
		for (int v = u + 1; v <= U; v++) {
			enum pd_fewest_answer answer;

			if (f->stages[v] >= f->stages[u] - 1)
				continue;
			answer = f->holds(f->context, &f->row, v, f->stages[v], value);
			if (answer == PD_FEWEST_NEVER)
				break;
			if (answer == PD_FEWEST_NO)
				continue;
			f->stages[u] = f->stages[v] + 1;
			f->next[u] = v;
		}
	}
	return f->stages[0];
}

static struct pd_partition *partition_of(const struct fewest *f, int64_t value)
{
	struct pd_partition *partition = pd_zalloc(sizeof(*partition));
	size_t room = (size_t)f->stages[0];

	partition->cost_ns = value;
	partition->layers = pd_calloc(room, sizeof(int));
	partition->replicas = pd_calloc(room, sizeof(int));
	for (int u = 0; u < f->costs->unit_count; u = f->next[u]) {
		partition->layers[partition->stage_count] = f->costs->first[f->next[u]] -
							    f->costs->first[u];
		partition->replicas[partition->stage_count++] = 1;
	}
	return partition;
}

struct pd_partition *pd_fewest_stages(const struct pd_costs *costs, int most, int64_t low,
				      pd_fewest_holds holds, const void *context)
{
	size_t room = (size_t)costs->unit_count + 1;
	struct fewest f = { .costs = costs, .holds = holds, .context = context,
			    .stages = pd_calloc(room, sizeof(int)),
			    .next = pd_calloc(room, sizeof(int)) };
	struct pd_partition *partition = NULL;
	int64_t high = low > 0 ? low : 1;

	pd_row_init(&f.row, costs);
	while (high < PD_COST_MAX && fewest_for(&f, high) > most) {
		low = high + 1;
		high = pd_min64(2 * high, PD_COST_MAX);
	}
	while (low < high) {
		int64_t middle = low + (high - low) / 2;

		if (fewest_for(&f, middle) <= most)
			high = middle;
		else
			low = middle + 1;
	}
	if (fewest_for(&f, high) <= most)
		partition = partition_of(&f, high);
	pd_row_release(&f.row);
	free(f.stages);
	free(f.next);
	return partition;
}
