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

#include <math.h>
#include <stdint.h>

enum { PD_WAY_FORWARD, PD_WAY_DATA, PD_WAY_WEIGHTS, PD_WAYS };

#define PD_CHOICES 32                   /* candidates of one way that are looked at */
#define PD_CHOICE_WARM_MS 50            /* of work before times count: clocks take that to rise */
#define PD_CHOICE_WARM_ROUNDS 1000      /* and no more, however short they are */
#define PD_CHOICE_ROUNDS 5              /* that count */

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

/* Runs a candidate and waits for it: the milliseconds that the GPU took; below 0: it failed. */
struct pd_choice_timer {
	float (*time)(void *context, int candidate);
	void *context;
};

/* Runs each candidate once that has not failed and is not twice as slow as the fastest so far;
 * returns the milliseconds that all took.  shortest: their times so far, changed where counted. */
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
 * The shortest time of each of n candidates, below 0 where it failed.  They take turns, so that
 * what else goes on meets all alike.  Not counted are the first round, in which code is loaded and
 * compiled, and those that follow until the GPU has been busy long enough to run at full speed.
 */
static inline void pd_choice_measure(float *shortest, int n, const struct pd_choice_timer *timer)
{
	float busy_ms = 0;

	for (int i = 0; i < n; i++)
		shortest[i] = HUGE_VALF;
	pd_choice_round(shortest, n, timer, 0);
	for (int i = 0; i < PD_CHOICE_WARM_ROUNDS && busy_ms < PD_CHOICE_WARM_MS; i++)
		busy_ms += pd_choice_round(shortest, n, timer, 0);
	for (int i = 0; i < PD_CHOICE_ROUNDS; i++)
		pd_choice_round(shortest, n, timer, 1);
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
