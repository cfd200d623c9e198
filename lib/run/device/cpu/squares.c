/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of squares are taken in double, in which the square of a float is exact and finite.  A
 * layer's parameters are cut into a fixed number of pieces; each piece is summed in lanes, then
 * lanes and pieces are added in order.  So the bits depend on the layer alone, not on the threads.
 */
#include "run/device/cpu/cpu.h"

#define PIECES 64
#define LANES 16

PD_VECTOR static double piece(const float *g, size_t count)
{
	double lane[LANES] = { 0 }, sum = 0;
	size_t i = 0;

	for (; i + LANES <= count; i += LANES)
		for (int k = 0; k < LANES; k++)
			lane[k] += (double)g[i + (size_t)k] * (double)g[i + (size_t)k];
	for (; i < count; i++)
		sum += (double)g[i] * (double)g[i];
	for (int k = 0; k < LANES; k++)
		sum += lane[k];
	return sum;
}

double pd_cpu_sum_squares(const float *g, size_t count)
{
	size_t each = (count / PIECES / LANES + 1) * LANES;
	double parts[PIECES] = { 0 }, sum = 0;

#pragma omp parallel for schedule(static)
	for (int p = 0; p < PIECES; p++) {
		size_t at = (size_t)p * each;

		if (at < count)
			parts[p] = piece(g + at, count - at < each ? count - at : each);
	}
	for (int p = 0; p < PIECES; p++)
		sum += parts[p];
	return sum;
}

void pd_cpu_squares(const struct pd_compiled *net, const struct pd_squares *what)
{
	int layers = net->model->layer_count;

	for (int l = 0; l <= layers && what->clear; l++)
		what->vector[l] = PD_ABSENT;
	for (int l = net->first; l < net->first + net->count; l++)
		if (net->step_bytes[l] > 0)
			what->vector[net->layers[l].model_owner] =
				pd_cpu_sum_squares((const float *)((const char *)what->gradients +
							net->step_offset[l]),
					net->step_bytes[l] / sizeof(float));
	if (what->scale)
		what->vector[layers] = what->scale->loss_scale;
}

void pd_cpu_unite(double *vector, const double *other, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (vector[i] == PD_ABSENT)
			vector[i] = other[i];
}
