/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes elements of the three types. */
#pragma once

#include "base/half.h"

enum number { F32, F16, BF16 };

static inline float number_read(const void *from, int64_t i, enum number type)
{
	if (type == F32)
		return ((const float *)from)[i];
	return type == F16 ? pd_from_f16(((const uint16_t *)from)[i])
			   : pd_from_bf16(((const uint16_t *)from)[i]);
}

static inline void number_write(void *to, int64_t i, enum number type, float value)
{
	if (type == F32)
		((float *)to)[i] = value;
	else
		((uint16_t *)to)[i] = type == F16 ? pd_to_f16(value) : pd_to_bf16(value);
}
