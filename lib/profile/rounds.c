/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/rounds.h"

#include <math.h>
#include <stdlib.h>

#define ROUNDS_MOST 20
#define TENTH 0.1

static int compare_real(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Ten thousandths are more than can be measured. */
static double rounded(double value)
{
	return round(value * 1e4) / 1e4;
}

struct pd_spread pd_rounds_spread(double *figures, int64_t n)
{
	int64_t out = llround(TENTH * (double)(n - 1));
	double middle;

	if (n < PD_ROUNDS_LEAST)
		return (struct pd_spread){ 0, 0 };
	qsort(figures, (size_t)n, sizeof(*figures), compare_real);
	middle = (figures[(n - 1) / 2] + figures[n / 2]) / 2;
	if (middle <= 0)
		return (struct pd_spread){ 1, 1 };
	return (struct pd_spread){ rounded(figures[out] / middle), rounded(figures[n - 1 - out] / middle) };
}

int64_t pd_rounds_of(int64_t steps)
{
	return steps < ROUNDS_MOST ? steps : ROUNDS_MOST;
}

/* Returns the first step of a round. */
static int64_t first_step(int64_t steps, int64_t round)
{
	return steps * round / pd_rounds_of(steps);
}

double pd_round_mean(const int64_t *values, int64_t steps, int64_t round)
{
	int64_t begin = first_step(steps, round), end = first_step(steps, round + 1);
	double sum = 0;

	for (int64_t i = begin; i < end; i++)
		sum += (double)values[i];
	return sum / (double)(end - begin);
}

/* Leaves -1, a time that was not measured. */
static void scale(int64_t *time_ns, double factor)
{
	if (*time_ns > 0)
		*time_ns = llround((double)*time_ns * factor);
}

static double ratio(double whole, double sum)
{
	return sum > 0 ? whole / sum : 1;
}

void pd_share_whole(struct pd_profile *profile, const struct pd_whole *whole)
{
	double forward_ns = 0, backward_ns = 0, update_ns = 0;

	for (int l = 0; l < profile->layer_count; l++) {
		forward_ns += (double)profile->layers[l].forward_ns;
		backward_ns += (double)profile->layers[l].backward_ns;
		update_ns += (double)profile->layers[l].update_ns;
	}
	for (int l = 0; l < profile->layer_count; l++) {
		struct pd_profile_layer *layer = &profile->layers[l];

		scale(&layer->forward_ns, ratio(whole->forward_ns, forward_ns));
		scale(&layer->backward_ns, ratio(whole->backward_ns, backward_ns));
		scale(&layer->backward_input_ns, ratio(whole->backward_ns, backward_ns));
		scale(&layer->backward_weight_ns, ratio(whole->backward_ns, backward_ns));
		scale(&layer->update_ns, ratio(whole->update_ns, update_ns));
		scale(&layer->update_apart_ns, ratio(whole->update_ns, update_ns));
	}
}
