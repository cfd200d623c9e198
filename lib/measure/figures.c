/* SPDX-License-Identifier: Apache-2.0 */
#include "measure/figures.h"

#include <math.h>
#include <stdlib.h>

static int compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

int64_t pd_median(int64_t *values, int64_t n)
{
	qsort(values, (size_t)n, sizeof(*values), compare);
	return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double pd_trimmed_mean(int64_t *values, int64_t n)
{
	int64_t out = n / 8;
	double sum = 0;

	qsort(values, (size_t)n, sizeof(*values), compare);
	for (int64_t i = out; i < n - out; i++)
		sum += (double)values[i];
	return sum / (double)(n - 2 * out);
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
