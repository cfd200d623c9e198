/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images that are trained on are changed at random, each time in another way.  How follows from the seed, the
 * epoch and the sample alone, so every partition, every replica and a resumed run have the same images.
 */
#pragma once

#include "model/model.h"

struct pd_augment {
	int64_t crop;                   /* zeros around an image, of which as much is cut out again; 0: none */
	bool flip;                      /* half of them are mirrored, left for right */
};

/*
 * Reads "crop:4,flip", and checks that the model has one image to change, its only f32 input: channels,
 * height, width, or height and width.  Errors: input.
 */
int pd_augment_parse(const char *text, const struct pd_model *model, struct pd_augment *out_p,
		     struct pd_error *err);
static inline bool pd_augments(const struct pd_augment *augment)
{
	return augment->crop > 0 || augment->flip;
}
/*
 * Writes the image of a sample in an epoch, changed, to out.  black: what a zero is in each channel; NULL: 0.
 */
void pd_augment_image(const struct pd_augment *augment, uint64_t seed, int64_t epoch, int64_t sample,
		      const struct pd_shape *shape, const float *black, const float *image, float *out);
