/* SPDX-License-Identifier: Apache-2.0 */
/* Private to this folder: what is added to the scores of attention, or hides some of them. */
#pragma once

#include "doors/onnx/translate.h"

/* What a mask hides. */
struct mask {
	bool causal;
	int64_t window;                 /* how many keys a query sees, the last ones; 0: all */
	int lengths;                    /* the input with the number of keys of each sample; -1: all are seen */
	const char *why;                /* it is none of these: the reason */
};

/* Finds out what a value hides, as a mask of queries and keys. */
const struct mask *mask_of(struct graph *g, struct value *value, int64_t queries, int64_t keys);

/* A table with a number for each bucket of relative positions and each head, and the rule of its buckets. */
struct relative {
	const struct pd_onnx_tensor *table;
	bool both;                      /* keys behind the query have buckets of their own */
	int64_t max_distance;
};

/* Is a value of heads, queries and keys the look-up of such a table?  Then *out_p says which. */
bool relative_of(struct graph *g, const struct value *value, struct relative *out_p);
