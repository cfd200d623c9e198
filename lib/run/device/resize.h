/* SPDX-License-Identifier: Apache-2.0 */
/* From where upsample takes its outputs, along one axis: PyTorch's formulas. */
#pragma once

#include "base/inline.h"

#include <math.h>
#include <stdint.h>

struct pd_resize {
	int64_t in, out;
	double step;                    /* places of the input between two of the output */
	int32_t blends;                 /* two neighbours are blended; else the nearest is taken */
	int32_t aligns;                 /* the first and last places of both lie on each other */
};

/* An output is (1 - share) of one place and share of the other. */
struct pd_blend {
	int64_t one, other;
	float share;
};

PD_INLINE struct pd_blend pd_resize_blend(const struct pd_resize *r, int64_t out)
{
	struct pd_blend b = { out, out, 0 };
	double at;

	if (r->in == r->out)
		return b;
	if (!r->blends) {
		/* PyTorch computes this in f32 */
		b.one = r->out == 2 * r->in ? out / 2 : (int64_t)floorf((float)out * (float)r->step);
		b.one = b.other = b.one < r->in ? b.one : r->in - 1;
		return b;
	}
	at = r->aligns ? (double)out * r->step : ((double)out + 0.5) * r->step - 0.5;
	at = at > 0 ? at : 0;
	b.one = (int64_t)at < r->in ? (int64_t)at : r->in - 1;
	b.other = b.one + (b.one < r->in - 1);
	at -= (double)b.one;
	b.share = (float)(at < 1 ? at : 1);
	return b;
}

/* Returns the part of place `in` in an output, or 0. */
PD_INLINE float pd_resize_part(const struct pd_resize *r, int64_t out, int64_t in)
{
	struct pd_blend b = pd_resize_blend(r, out);

	return (b.one == in ? 1 - b.share : 0) + (b.other == in ? b.share : 0);
}

/* Returns the first output made of this place or of later ones. */
PD_INLINE int64_t pd_resize_first(const struct pd_resize *r, int64_t in)
{
	/* where that would be, and a little before, since numbers are rounded */
	double about = r->step > 0 ? ((double)in - 1) / r->step - 2 : 0;
	int64_t out = r->in == r->out ? in : about > 0 ? (int64_t)about : 0;

	while (out < r->out && pd_resize_blend(r, out).other < in)
		out++;
	return out;
}
