/* SPDX-License-Identifier: Apache-2.0 */
/* Loads of the machine's links by a plan; private to this folder. */
#pragma once

#include "plan/plan.h"
#include "plan/wiring.h"
#include "schedule/schedule.h"

/* One direction of a link: its mean load per minibatch. */
struct pd_load {
	double bytes;
	double busy_ns;                 /* time for which transfers occupy the link
					   (lib/engine/transport/sim) */
};

enum pd_way { PD_WAY_OUT, PD_WAY_IN, PD_WAYS };        /* of a component */

/*
 * The links of all components.  At level k, component c has the ranks from c size[k] to (c + 1)
 * size[k] - 1, and its link joins it to the others of its level.
 */
struct pd_links {
	const struct pd_topology *topology;     /* borrowed */
	int64_t size[PD_MAX_LEVELS + 1];
	double ns_per_byte[PD_MAX_LEVELS];
	int components[PD_MAX_LEVELS];          /* as far as ranks are used */
	struct pd_load (*load[PD_MAX_LEVELS])[PD_WAYS];         /* by component */
};

/*
 * Adds up what a plan puts on all links; pairs of stages with very many pairs of replicas are left
 * out.
 */
void pd_links_init(struct pd_links *links, const struct pd_plan *plan,
		   const struct pd_wiring *wiring);
void pd_links_release(struct pd_links *links);

/*
 * Returns the time for which the busiest direction of any link is used for one minibatch, in the
 * mean.  No plan's period is below it.  A component's link carries what crosses it for everything
 * inside.
 */
int64_t pd_links_busiest_ns(const struct pd_plan *plan, const struct pd_wiring *wiring);
