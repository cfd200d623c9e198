/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which tensors travel between which stages.
 *
 * A tensor goes from the stage that makes it to the first later stage that uses it,
 * from there on to the next, and so to the last; its gradient comes back the same way,
 * every stage adding its part to what arrived.  So it is sent at most once by each
 * stage, and a gradient is summed from the last consumer to the first wherever the cuts
 * are.  The tensors that go from one stage to another form a link.
 *
 * Tensors here are numbered by the layer that makes them (the profile's layers).
 * Model inputs do not travel: every stage that uses one loads it.
 */
#ifndef PD_PLAN_WIRING_H
#define PD_PLAN_WIRING_H

#include "plan/plan.h"

struct pd_link {
	int from, to;                   /* stages, from < to */
	int tensor_count;
	int *tensors;                   /* layers, ascending */
	int64_t bytes;                  /* of one microbatch, one way */
};

struct pd_wiring {
	int link_count;
	struct pd_link *links;          /* sorted by (from, to) */
	int tensors_most;               /* of a link, at least 1 */
	int stage_count;
	/* per stage: its links in, ascending by `from`, and out, ascending by `to` */
	int *in_count, *out_count;
	int **in, **out;                /* indices into links */
	bool *loads;                    /* per stage: it uses inputs of the model */
};

struct pd_wiring *pd_wiring_new(const struct pd_plan *plan);
void pd_wiring_free(struct pd_wiring *wiring);

#endif
