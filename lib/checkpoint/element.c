/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/element.h"

#include "base/half.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

static void read_f32(const char *from, int64_t count, float *to)
{
	memmove(to, from, (size_t)count * sizeof(*to));
}

static bool write_f32(const float *from, int64_t count, char *to)
{
	memcpy(to, from, (size_t)count * sizeof(*from));
	return true;
}

static void read_f64(const char *from, int64_t count, float *to)
{
	for (int64_t i = 0; i < count; i++) {
		double wide;

		memcpy(&wide, from + 8 * i, sizeof(wide));
		to[i] = (float)wide;
	}
}

static bool write_f64(const float *from, int64_t count, char *to)
{
	for (int64_t i = 0; i < count; i++) {
		double wide = from[i];

		memcpy(to + 8 * i, &wide, sizeof(wide));
	}
	return true;
}

/* Of a type of 16 bits, by its conversions. */
#define HALVES(type)                                                                            \
	static void read_##type(const char *from, int64_t count, float *to)                     \
	{                                                                                       \
		for (int64_t i = 0; i < count; i++) {                                           \
			uint16_t half;                                                          \
			memcpy(&half, from + 2 * i, sizeof(half));                              \
			to[i] = pd_from_##type(half);                                           \
		}                                                                               \
	}                                                                                       \
	static bool write_##type(const float *from, int64_t count, char *to)                    \
	{                                                                                       \
		bool fits = true;                                                               \
		for (int64_t i = 0; i < count; i++) {                                           \
			uint16_t half = pd_to_##type(from[i]);                                  \
			memcpy(to + 2 * i, &half, sizeof(half));                                \
			fits &= !isinf(pd_from_##type(half)) || isinf(from[i]);                 \
		}                                                                               \
		return fits;                                                                    \
	}
HALVES(f16)
HALVES(bf16)

static const struct pd_element elements[] = {
	{ "F32", 32, read_f32, write_f32 }, { "F16", 16, read_f16, write_f16 },
	{ "BF16", 16, read_bf16, write_bf16 }, { "F64", 64, read_f64, write_f64 },
	{ "C64", 64, NULL, NULL }, { "F8_E4M3", 8, NULL, NULL }, { "F8_E5M2", 8, NULL, NULL },
	{ "F8_E8M0", 8, NULL, NULL }, { "F8_E4M3FNUZ", 8, NULL, NULL }, { "F8_E5M2FNUZ", 8, NULL, NULL },
	{ "F6_E2M3", 6, NULL, NULL }, { "F6_E3M2", 6, NULL, NULL }, { "F4", 4, NULL, NULL },
	{ "I8", 8, NULL, NULL }, { "U8", 8, NULL, NULL }, { "I16", 16, NULL, NULL }, { "U16", 16, NULL, NULL },
	{ "I32", 32, NULL, NULL }, { "U32", 32, NULL, NULL }, { "I64", 64, NULL, NULL },
	{ "U64", 64, NULL, NULL }, { "BOOL", 8, NULL, NULL },
};

const struct pd_element *pd_element_find(const char *name)
{
	for (size_t i = 0; i < PD_COUNT(elements); i++)
		if (strcmp(elements[i].name, name) == 0)
			return &elements[i];
	return NULL;
}
