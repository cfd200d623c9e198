/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which of a library's algorithms a layer takes.  By themselves the libraries' heuristics say,
 * from the shapes alone.  pd-profile has the candidates timed, on this GPU and memory of the
 * layer's size, and records what was taken as one number of the layer's ("algorithms"); what
 * runs the plan takes the same, so that every rank and every run computes the same bits.
 *
 * Three ways (forward, the gradient of the input, that of the weights), two decimal digits each:
 * a code that the library's part gives its candidates; 0: as the heuristics say, and so where
 * nothing that is known has that code any more.  What has no code is written down in words:
 * engine_name.h.
 */
#ifndef PD_DEVICE_CUDA_CHOICE_H
#define PD_DEVICE_CUDA_CHOICE_H

#include <stdint.h>

enum { PD_WAY_FORWARD, PD_WAY_DATA, PD_WAY_WEIGHTS, PD_WAYS };

#define PD_CHOICES 16                   /* candidates of one way that are looked at */

static inline int64_t pd_choice_unit(int way)
{
	return way == PD_WAY_FORWARD ? 1 : way == PD_WAY_DATA ? 100 : 10000;
}

static inline int pd_choice_code(int64_t algorithms, int way)
{
	return (int)(algorithms / pd_choice_unit(way) % 100);
}

/* The same, with this code (1 to 99) for a way that had none. */
static inline int64_t pd_choice_with(int64_t algorithms, int way, int code)
{
	return algorithms + code * pd_choice_unit(way);
}

/*
 * Of n candidates, best first as the heuristics see it, the fastest: not one that is faster than
 * an earlier one by less than can be told.  ms: below 0 where it failed.  -1: all did.
 */
static inline int pd_choice_fastest(const float *ms, int n)
{
	int best = -1;

	for (int i = 0; i < n; i++)
		if (ms[i] >= 0 && (best < 0 || ms[i] < 0.97f * ms[best]))
			best = i;
	return best;
}

#endif
