/* SPDX-License-Identifier: Apache-2.0 */
#include "run/device/cpu/floats.h"

#include "run/device/cpu/cpu.h"

PD_VECTOR void pd_floats_add(float *restrict sum, const float *restrict part, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		sum[i] += part[i];
}

PD_VECTOR void pd_floats_scale(float *to, const float *from, float factor, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		to[i] = from[i] * factor;
}

PD_VECTOR void pd_lanes_add(float *restrict lanes, const float *restrict values, int64_t count)
{
	int64_t i = 0;

	for (; i + PD_FLOAT_LANES <= count; i += PD_FLOAT_LANES)
		for (int64_t k = 0; k < PD_FLOAT_LANES; k++)
			lanes[k] += values[i + k];
	for (int64_t k = 0; i + k < count; k++)
		lanes[k] += values[i + k];
}

float pd_lanes_total(float *lanes)
{
	for (int half = PD_FLOAT_LANES / 2; half > 0; half /= 2)
		for (int k = 0; k < half; k++)
			lanes[k] += lanes[k + half];
	return lanes[0];
}
