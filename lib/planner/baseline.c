/* SPDX-License-Identifier: Apache-2.0 */
/* Data parallelism, with which every plan is compared. */
#include "planner/cut/partition.h"

#include "base/mem.h"

struct pd_partition *pd_data_parallel_partition(const struct pd_costs *costs, int64_t devices)
{
	struct pd_partition *partition = pd_zalloc(sizeof(*partition));

	partition->stage_count = 1;
	partition->layers = pd_calloc(1, sizeof(*partition->layers));
	partition->replicas = pd_calloc(1, sizeof(*partition->replicas));
	partition->layers[0] = costs->profile->layer_count;
	partition->replicas[0] = (int)devices;
	partition->cost_ns = PD_NEVER;
	return partition;
}
