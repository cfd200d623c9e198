/* SPDX-License-Identifier: Apache-2.0 */
/* Types of a tensor's elements. */
#ifndef PD_MODEL_DTYPE_H
#define PD_MODEL_DTYPE_H

#include <stddef.h>

enum pd_dtype {
#define DTYPE(symbol, name, bytes, what) PD_##symbol,
#include "model/dtype.def"
#undef DTYPE
	PD_DTYPES
};

extern const char *const pd_dtype_name[PD_DTYPES + 1];  /* NULL-terminated */

size_t pd_dtype_bytes(enum pd_dtype dtype);
/*
 * Finds the type called name that a network can compute in (f32, bf16, f16), or returns PD_DTYPES.
 */
enum pd_dtype pd_dtype_find(const char *name);

#endif
