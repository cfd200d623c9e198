/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays of floats.  Sums are taken in PD_FLOAT_LANES parts, so that they are vectorised and round alike on
 * every processor.
 */
#pragma once

#include <stdint.h>

#define PD_FLOAT_LANES 32                     /* a power of two */

void pd_floats_add(float *restrict sum, const float *restrict part, int64_t count);
/* Multiplies; `to` may be `from`. */
void pd_floats_scale(float *to, const float *from, float factor, int64_t count);
/* Adds value i to lane i mod PD_FLOAT_LANES. */
void pd_lanes_add(float *restrict lanes, const float *restrict values, int64_t count);
/* Adds all lanes, which it overwrites. */
float pd_lanes_total(float *lanes);
