/* SPDX-License-Identifier: Apache-2.0 */
#include "run/data/npy.h"

#include "base/half.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

/* Defines the conversion of an array from a C type; `element` is the name of one element. */
#define CONVERT(function, type, result, expression)                                             \
	static void function(const uint8_t *from, int64_t count, result *to)                    \
	{                                                                                       \
		for (int64_t i = 0; i < count; i++) {                                           \
			type element;                                                           \
                                                                                                \
			memcpy(&element, from + i * (int64_t)sizeof(element), sizeof(element)); \
			to[i] = expression;                                                     \
		}                                                                               \
	}

/* A number below the least is large as the difference to it without a sign. */
#define WHOLE(type)                                                                             \
	CONVERT(type##_to_f32, type, float, (float)element)                                     \
	CONVERT(type##_to_i32, type, int32_t, (int32_t)element)                                 \
	static uint64_t type##_value(const uint8_t *from)                                       \
	{                                                                                       \
		type element;                                                                   \
                                                                                                \
		memcpy(&element, from, sizeof(element));                                        \
		return (uint64_t)element;                                                       \
	}                                                                                       \
	static int64_t type##_find_outside(const uint8_t *from, int64_t count,                  \
					   const struct pd_dataset_range *range)                \
	{                                                                                       \
		uint64_t least = (uint64_t)range->least;                                        \
		uint64_t among = (uint64_t)(range->limit - range->least);                       \
		bool negative = (type)-1 < (type)1;                                             \
		bool has_other = range->other >= 0 || negative;                                 \
		int64_t i = 0;                                                                  \
                                                                                                \
		for (; i < count; i++) {                                                        \
			uint64_t value = type##_value(from + i * (int64_t)sizeof(type));        \
                                                                                                \
			if (value - least >= among &&                                           \
			    !(has_other && value == (uint64_t)range->other))                    \
				break;                                                          \
		}                                                                               \
		return i;                                                                       \
	}

WHOLE(uint8_t)
WHOLE(int8_t)
WHOLE(uint16_t)
WHOLE(int16_t)
WHOLE(uint32_t)
WHOLE(int32_t)
WHOLE(uint64_t)
WHOLE(int64_t)
CONVERT(half_to_f32, uint16_t, float, pd_from_f16(element))
CONVERT(double_to_f32, double, float, (float)element)

static void float_to_f32(const uint8_t *from, int64_t count, float *to)
{
	memcpy(to, from, (size_t)count * sizeof(*to));
}

#define WHOLE_ROW(name, type, negative)                                                         \
	{ name, sizeof(type), negative, name[1] == 'u' && sizeof(type) == 1, type##_to_f32, type##_to_i32, type##_find_outside,      \
	  type##_value }

static const struct pd_npy_type types[] = {
	WHOLE_ROW("|b1", uint8_t, false),
	WHOLE_ROW("|u1", uint8_t, false),
	WHOLE_ROW("|i1", int8_t, true),
	WHOLE_ROW("<u2", uint16_t, false),
	WHOLE_ROW("<i2", int16_t, true),
	WHOLE_ROW("<u4", uint32_t, false),
	WHOLE_ROW("<i4", int32_t, true),
	WHOLE_ROW("<u8", uint64_t, false),
	WHOLE_ROW("<i8", int64_t, true),
	{ "<f2", 2, true, false, half_to_f32 },
	{ "<f4", 4, true, false, float_to_f32 },
	{ "<f8", 8, true, false, double_to_f32 },
};

const struct pd_npy_type *pd_npy_type_find(const char *name)
{
	for (size_t i = 0; i < PD_COUNT(types); i++)
		if (strcmp(types[i].name, name) == 0)
			return &types[i];
	return NULL;
}

const char *pd_npy_type_list(bool whole, char text[PD_NPY_LIST_BYTES])
{
	size_t used = 0;

	text[0] = '\0';
	for (size_t i = 0; i < PD_COUNT(types); i++)
		if (types[i].to_i32 || !whole)
			used += (size_t)snprintf(text + used, PD_NPY_LIST_BYTES - used, "%s%s",
						 used ? ", " : "", types[i].name);
	return text;
}
