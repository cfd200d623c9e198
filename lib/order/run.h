/* SPDX-License-Identifier: Apache-2.0 */
/* The clocks and the memory of the positions while operations run, one after the other. */
#pragma once

#include "order/request.h"

struct pd_order_run {
	const struct pd_order_request *request;
	struct pd_order_times ends;
	struct pd_order_seat {
		int64_t first_ns, now_ns;       /* when its first operation began, its last ended */
		int64_t idle_ns;                /* between the two */
		int64_t bytes, peak_bytes;
		int slots, most_slots;          /* in use, of all stages */
		bool begun;
	} *seats;                               /* per position */
	struct pd_order_pool {
		int in_flight, most_in_flight;  /* microbatches whose F has begun and whose W has not ended */
		int waiting, most_kept;         /* whose I has ended; and the most of these at another F or I, and 1 */
	} *pools;                               /* per stage */
};

struct pd_order_run pd_order_run_begin(const struct pd_order_request *request);
void pd_order_run_release(struct pd_order_run *run);
/* Computes an operation whose inputs have been, or a pair, at the position of its stage, as early as it can. */
void pd_order_run_op(struct pd_order_run *run, const struct pd_order_op *op);
/* Returns when the inputs of an operation, which have been, are at its position; 0 if it needs none from another. */
int64_t pd_order_run_arrival(const struct pd_order_run *run, const struct pd_order_op *op);
/* Returns what a pass takes. */
int64_t pd_order_cost(const struct pd_order_stage *stage, enum pd_order_pass pass);
/* Returns what has been run takes; the price owns the ends and peaks, and run nothing any more. */
struct pd_order_price pd_order_run_end(struct pd_order_run *run);
