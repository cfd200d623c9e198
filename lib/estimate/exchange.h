/* SPDX-License-Identifier: Apache-2.0 */
/* What the devices of a group exchange for each layer, and how long they wait for it. */
#pragma once

#include "estimate/estimate.h"
#include "estimate/split.h"

/* The times of a layer on one device. */
struct pd_layer_ns {
	double part[PD_COST_PARTS], update;
};

/*
 * Adds to the times of layers those of exchanges.  Sums of the parts of an output are exposed; those of the parts of
 * an input's gradient, and pieces of an input that are gathered again for backward, go on while a product is
 * computed that does not need them, and cost a part of their time.
 */
void pd_exchange_add(const struct pd_estimate *how, const struct pd_split *split, const struct pd_model *model,
		     struct pd_layer_ns *times);
/*
 * Adds what it takes devices that share the weights out: each gathers those of every layer before its forward and its
 * backward, while it computes the layers before, and sends the gradients' parts to those who sum them.
 */
void pd_exchange_shard(const struct pd_estimate *how, const struct pd_split *split, const struct pd_model *model,
		       struct pd_layer_ns *times);
