/* SPDX-License-Identifier: Apache-2.0 */
/* Searches for plans; private to this folder. */
#ifndef PD_PLANNER_PARTITION_H
#define PD_PLANNER_PARTITION_H

#include "planner/price/cost.h"

#include <stdbool.h>

#define PD_NEVER INT64_MAX              /* the cost of an impossible plan */

/* Stages over a chain of units. */
struct pd_partition {
	int64_t cost_ns;                /* the cost that the search minimised */
	int stage_count;
	int *layers, *replicas;
	int **ranks;                    /* per stage; NULL: in order */
	int *order;                     /* of the layers, by stage; NULL: the profile's */
	int *warmups;                   /* NULL: the usual ones */
};

void pd_partition_free(struct pd_partition *partition);

/* Reads --stages: "8x1,6" is 8 layers on one rank, then 6 on one. */
struct pd_partition *pd_fixed_partition(const struct pd_costs *costs, const char *list,
					enum pd_weight_kind weights, int64_t devices,
					struct pd_error *err);
/* Returns one stage on all devices. */
struct pd_partition *pd_data_parallel_partition(const struct pd_costs *costs, int64_t devices);

#endif
