/* SPDX-License-Identifier: Apache-2.0 */
#include "model/dtype.h"

#include <math.h>
#include <string.h>

const char *const pd_dtype_name[PD_DTYPES + 1] = {
#define DTYPE(symbol, name, bytes, what) name,
#include "model/dtype.def"
#undef DTYPE
	NULL
};

const char *const pd_dtype_of_nets[] = { "f32", "bf16", "f16", NULL };

size_t pd_dtype_bytes(enum pd_dtype dtype)
{
	static const size_t bytes[PD_DTYPES] = {
#define DTYPE(symbol, name, bytes, what) bytes,
#include "model/dtype.def"
#undef DTYPE
	};

	return bytes[dtype];
}

struct pd_rounding pd_dtype_gradients(enum pd_dtype gradients, double loss_scale, bool adapts)
{
	bool scales = gradients == PD_F16 && !adapts;

	return (struct pd_rounding){ gradients, scales ? ldexpf(1024, -(int)lround(log2(loss_scale))) : 1,
				     scales };
}

enum pd_dtype pd_dtype_find(const char *name)
{
	for (int d = 0; d < PD_DTYPES; d++)
		if (d != PD_I32 && strcmp(name, pd_dtype_name[d]) == 0)
			return (enum pd_dtype)d;
	return PD_DTYPES;
}
