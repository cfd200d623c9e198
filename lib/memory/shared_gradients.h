/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Before each update ranks exchange the gradients of the copies of shared parameters
 * (pd_weights_copy_shared).  A layer's gradients go from replica j mod r of its r replicas to replica j
 * of every stage that has another layer with the same parameters, once to each rank.
 *
 * That is part of what ranks agree on (operation agree): each layer's copies are summed in one
 * order, everywhere the same.
 */
#pragma once

#include "plan/plan.h"

struct pd_copy_transfer {
	int layer;                      /* whose gradients are sent */
	int from, to;                   /* ranks */
	int64_t bytes;
};

/*
 * Returns how many transfers an update has, and sets *list_p, which the caller frees, to all of them,
 * ascending by layer.  Returns 0 and sets NULL if the plan has no copies.
 */
size_t pd_plan_copy_transfers(const struct pd_plan *plan, struct pd_copy_transfer **list_p);
