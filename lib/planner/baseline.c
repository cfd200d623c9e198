/* SPDX-License-Identifier: Apache-2.0 */
/* Data parallelism, with which every plan is compared. */
#include "planner/search.h"

#include "base/mem.h"

struct pd_layout *pd_data_parallel_layout(const struct pd_costs *costs, int64_t devices)
{
	struct pd_layout *layout = pd_zalloc(sizeof(*layout));

	layout->stage_count = 1;
	layout->layers = pd_calloc(1, sizeof(*layout->layers));
	layout->replicas = pd_calloc(1, sizeof(*layout->replicas));
	layout->layers[0] = costs->profile->layer_count;
	layout->replicas[0] = (int)devices;
	layout->cost_ns = PD_NEVER;
	return layout;
}
