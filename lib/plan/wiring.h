/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tensors that go from stage to stage.
 *
 * A tensor goes from the stage that makes it to the first later stage that uses it, from there to
 * the next, and so on to the last.  Its gradient comes back the same way, and every stage adds its
 * part.  So each stage sends a tensor at most once, and a gradient is summed from the last consumer
 * to the first wherever the cuts are.  The tensors that go from one stage to another form a link.
 *
 * Tensors here are numbered by the layer that makes them (the profile's layers).  Model inputs are
 * not sent: every stage that uses one loads it.
 */
#pragma once

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
	int tensors_most;               /* the most tensors of a link, at least 1 */
	int stage_count;
	/* The links into and out of each stage, ascending by `from` and by `to`. */
	int *in_count, *out_count;
	int **in, **out;                /* indices into links */
	bool *loads;                    /* whether a stage uses inputs of the model */
};

struct pd_wiring *pd_wiring_new(const struct pd_plan *plan);
/* These return the bytes of a microbatch that arrive at a stage, and that leave it. */
int64_t pd_wiring_in_bytes(const struct pd_wiring *wiring, int stage);
int64_t pd_wiring_out_bytes(const struct pd_wiring *wiring, int stage);
void pd_wiring_free(struct pd_wiring *wiring);
/* Tells whether a link skips stages. */
bool pd_wiring_skips(const struct pd_wiring *wiring);
