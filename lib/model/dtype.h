/* SPDX-License-Identifier: Apache-2.0 */
/* Types of a tensor's elements. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum pd_dtype {
#define DTYPE(symbol, name, bytes, what) PD_##symbol,
#include "model/dtype.def"
#undef DTYPE
	PD_DTYPES
};

extern const char *const pd_dtype_name[PD_DTYPES + 1];  /* NULL-terminated */

#define PD_F16_MAX 65504.0f             /* the largest finite f16 */

/* A rule by which f32 numbers are rounded to 16 bits and widened again. */
struct pd_rounding {
	enum pd_dtype dtype;            /* bf16 or f16; PD_F32: nothing is rounded */
	float scale;                    /* a power of two: x is rounded as x * scale */
	bool saturates;                 /* what is finite, but too large, is the largest number */
};

size_t pd_dtype_bytes(enum pd_dtype dtype);
/*
 * Returns how gradients are rounded that have a loss scale, 1 if none.  With f16 they are multiplied by 1024
 * over that (the nearest power of two), so that what is between 6e-8 and 64 without it is a normal number.
 * If the scale adapts, nothing is multiplied: what is too large becomes infinite, so that the update is
 * left out and the scale falls.
 */
struct pd_rounding pd_dtype_gradients(enum pd_dtype gradients, double loss_scale, bool adapts);
/* The names of the types that a network can compute in, f32 first; NULL-terminated. */
extern const char *const pd_dtype_of_nets[];
/*
 * Finds the type called name that a network can compute in (f32, bf16, f16), or returns PD_DTYPES.
 */
enum pd_dtype pd_dtype_find(const char *name);
