/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A layer's algorithms are chosen from a library's candidates.  By default the library's heuristics
 * choose, from shapes alone.  pd-profile times the candidates, on this GPU and in memory of the
 * layer's size, and records its choice as one number of the layer ("algorithms").  A run of the
 * plan takes the same algorithms, so that every rank and every run computes the same bits.
 *
 * The number has two decimal digits for each of three ways (forward, gradient of the input,
 * gradient of the weights): a code that the library's part gives its candidates, or 0 for the
 * heuristics' choice.  A code that no candidate has any more counts as 0.  Engines have no code but
 * a name (engine_name.h).
 *
 * Layers that compute the same have the same choice: the first of them is timed, and the others take what it
 * recorded, as a run takes what a plan recorded.
 */
#pragma once

#include "run/device/propagation.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#define PD_CHOICES 32                   /* the most candidates of a way */
#define PD_CHOICE_WARM_MS 50            /* work before times count, in which clocks rise */
#define PD_CHOICE_WARM_ROUNDS 1000      /* the most rounds of such work */
#define PD_CHOICE_ROUNDS 5              /* rounds that count */
#define PD_CHOICE_WHAT 24               /* numbers that decide a choice, at most */
#define PD_CHOICE_MAKERS 64             /* unlike layers that a net remembers; others are timed again */

static inline int64_t pd_choice_unit(int way)
{
	return way == PD_FORWARD ? 1 : way == PD_BACKWARD_DATA ? 100 : 10000;
}

static inline int pd_choice_code(int64_t algorithms, int way)
{
	return (int)(algorithms / pd_choice_unit(way) % 100);
}

/* Adds a code (1 to 99) for a way that had none. */
static inline int64_t pd_choice_with(int64_t algorithms, int way, int code)
{
	return algorithms + code * pd_choice_unit(way);
}

/*
 * Runs a candidate, waits, and returns the milliseconds that a call took the GPU, which made as many calls;
 * below 0: it failed.
 */
struct pd_choice_timer {
	float (*time)(void *context, int candidate);
	void *context;
	int calls;
};

/* What decides a layer's choice, and a layer that has made it. */
struct pd_choice_maker {
	int64_t what[PD_CHOICE_WHAT];
	const void *layer;
};

/* Returns the maker that this one is alike, among `count`; NULL: none. */
static inline const struct pd_choice_maker *pd_choice_alike(const struct pd_choice_maker *makers, int count,
							    const struct pd_choice_maker *like)
{
	for (int i = 0; i < count; i++)
		if (memcmp(makers[i].what, like->what, sizeof(like->what)) == 0)
			return &makers[i];
	return NULL;
}

/*
 * Runs each candidate once, except those that failed or took twice the fastest time so far, and
 * returns the sum of the milliseconds.  If `counted`, updates `shortest`, their shortest times.
 */
static inline float pd_choice_round(float *shortest, int n, const struct pd_choice_timer *timer,
				    int counted)
{
	float best = HUGE_VALF, sum = 0;

	for (int i = 0; i < n; i++)
		if (shortest[i] >= 0 && shortest[i] < best)
			best = shortest[i];
	for (int i = 0; i < n; i++) {
		float ms;

		if (shortest[i] < 0 || shortest[i] > 2 * best)
			continue;
		ms = timer->time(timer->context, i);
		if (ms < 0)
			shortest[i] = -1;
		else if (counted && ms < shortest[i])
			shortest[i] = ms;
		sum += ms < 0 ? 0 : ms;
	}
	return sum;
}

/*
 * Measures the shortest time of each of n candidates; below 0: it failed.  They take turns, so that
 * disturbances meet all alike.  The first round does not count, in which code is loaded and
 * compiled, nor rounds until the GPU has been busy long enough to run at full speed.
 */
static inline void pd_choice_measure(float *shortest, int n, const struct pd_choice_timer *timer)
{
	float busy_ms = 0;

	for (int i = 0; i < n; i++)
		shortest[i] = HUGE_VALF;
	pd_choice_round(shortest, n, timer, 0);
	for (int i = 0; i < PD_CHOICE_WARM_ROUNDS && busy_ms < PD_CHOICE_WARM_MS; i++)
		busy_ms += (float)timer->calls * pd_choice_round(shortest, n, timer, 0);
	for (int i = 0; i < PD_CHOICE_ROUNDS; i++)
		pd_choice_round(shortest, n, timer, 1);
}

/*
 * Returns the fastest of n candidates, which are in the heuristics' order, best first.  A later
 * candidate must be faster by more than the measurement's error.  ms: below 0 where it failed.  -1:
 * all failed.
 */
static inline int pd_choice_fastest(const float *ms, int n)
{
	int best = -1;

	for (int i = 0; i < n; i++)
		if (ms[i] >= 0 && (best < 0 || ms[i] < 0.97f * ms[best]))
			best = i;
	return best;
}
