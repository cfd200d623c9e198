/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How several devices share the layers of a network out, as Megatron-LM does.  Linear layers come in pairs: of the
 * first, or of several that go into it side by side, each device has some columns; of the second the rows of these
 * features.  Between them each needs its own features alone: activations, and attention by heads.  A classifier
 * before the loss is by columns, and large embeddings by rows, each a part of the vocabulary.  All other layers are
 * whole on every device, or run on a part of the rows (sequence parallelism).
 */
#pragma once

#include "base/error.h"
#include "estimate/cost.h"

enum pd_split_kind { PD_SPLIT_WHOLE, PD_SPLIT_COLUMNS, PD_SPLIT_ROWS, PD_SPLIT_FEATURES, PD_SPLIT_VOCABULARY };

struct pd_split_layer {
	enum pd_split_kind kind;
	int first;                      /* by columns: the first layer of those that read the same input */
	double beside;                  /* by columns: the columns of all these over its own */
};

struct pd_split {
	int64_t devices;
	bool sequence;
	int pairs;
	struct pd_split_layer *layers;  /* of the model's, owned */
};

/*
 * Finds the split over so many devices; one: all is whole.  Fails if nothing can be split, or where heads or widths
 * of a pair are no multiple of the devices.
 */
int pd_split_find(const struct pd_model *model, int64_t devices, bool sequence, struct pd_split *out_p,
		  struct pd_error *err);
void pd_split_release(struct pd_split *split);
/* Returns what part of a layer one device has. */
struct pd_share pd_split_share(const struct pd_split *split, const struct pd_model *model, int layer);
