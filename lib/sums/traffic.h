/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traffic of an all-reduce: the bytes that its members send through the links of the machine, with any
 * reducer.  All prices and predictions of an all-reduce are made of it.
 */
#pragma once

#include "sums/allreduce.h"
#include "sums/reducer.h"

/*
 * The bytes of one member that leave, and enter, its component below a level.  A component's link
 * carries those of all members in it.
 */
struct pd_traffic {
	double sent_bytes, got_bytes;
};

/*
 * Sets the traffic of each member (rows) at each level of the topology (columns), as if all pieces of a
 * dense sum were equal (base/buffer_pieces.h).  Returns the part of such a piece that the shortest one has.
 */
double pd_traffic_of(enum pd_reducer_kind kind, const struct pd_members *members, int64_t bytes,
		     struct pd_traffic *traffic);
/* The same of a dense sum: the row of that reducer has it, since a group may be of thousands. */
double pd_allreduce_traffic(const struct pd_members *members, int64_t bytes, struct pd_traffic *traffic);
/*
 * Returns what members `first` to `last` of a dense sum send to others, as multiples of an n-th of the
 * buffer, n being their number: in a time that does not grow with it, if these are in one component and
 * no others are.  Where groups are not equal it is near.
 */
double pd_traffic_out(const struct pd_allreduce *how, int first, int last);
/* Returns what all members together send. */
double pd_traffic_bytes(enum pd_reducer_kind kind, const struct pd_members *members, int64_t bytes);
