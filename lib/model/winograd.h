/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Winograd's algorithm makes 16 outputs of a 3x3 window with 36 products instead of 144, but goes through memory to
 * do so.  It pays where the 4x4 tiles of the output are nearly full, channels are enough to share the cost of their
 * transformation, and tiles enough to share that of the weights.  The rule depends on layer and batch alone, so
 * that bits do not depend on where the network is cut.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* A convolution, the layer or what a device has of it. */
struct pd_winograd_window {
	int64_t batch, channels, out_channels, out_height, out_width, groups;
	const int64_t *kernel, *stride, *dilation;      /* of height and width */
};

/* Returns how many products it makes for each that a convolution by its windows does. */
static inline double pd_winograd_products(const struct pd_winograd_window *w)
{
	int64_t tiles = (w->out_height + 3) / 4 * ((w->out_width + 3) / 4);

	return 36 * (double)tiles / (9 * (double)w->out_height * (double)w->out_width);
}

/* Returns the numbers of its tiles of inputs, outputs and weights, 36 for a tile. */
static inline double pd_winograd_numbers(const struct pd_winograd_window *w)
{
	int64_t tiles = (w->out_height + 3) / 4 * ((w->out_width + 3) / 4);

	return 36 * ((double)(w->batch * tiles) * (double)(w->channels + w->out_channels) +
		     (double)w->channels * (double)w->out_channels);
}

static inline bool pd_winograd_suits(const struct pd_winograd_window *w)
{
	const int64_t tiles = (w->out_height + 3) / 4 * ((w->out_width + 3) / 4);

	for (int k = 0; k < 2; k++)
		if (w->kernel[k] != 3 || w->stride[k] != 1 || w->dilation[k] != 1)
			return false;
	return w->groups == 1 && w->channels >= 32 && w->out_channels >= 32 && w->batch * tiles >= 32 &&
	       2 * 9 * w->out_height * w->out_width >= 5 * 36 * tiles;
}
