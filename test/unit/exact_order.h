/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The least that any order takes, of small requests: an independent judge of searches.
 *
 * All orders are made by beginnings of operations, which never go back in time: so a state is how many passes of each
 * stage have begun, when each position is free and when what is on its way arrives.  Of two states with the same counts
 * one that is never later is as good; and one that cannot end below a value is left out.
 */
#pragma once

#include "order/request.h"

struct exact {
	int64_t value_ns;               /* the least below what was asked for, or that */
	int64_t states;                 /* that were looked at */
	bool decided;                   /* false: there were more states than may be looked at */
};

/* Finds whether any order within the request's caps takes less than below_ns (pd_order_value); no pools, no pairs. */
struct exact exact_order(const struct pd_order_request *request, int64_t below_ns, int64_t most_states);
