/* SPDX-License-Identifier: Apache-2.0 */
#include "run/device/cpu/tile.h"

#include <stdlib.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

#pragma GCC push_options
#pragma GCC optimize("O3")

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define MORE 1

#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4,prefer-vector-width=512")
#define LANES 16
#define VECTORS 4
#define NAME "x86-64-v4"
#define PACKS false
#define TILE(name) name##_v4
#include "run/device/cpu/tile_kernels.h"
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("arch=x86-64-v3")
#define LANES 8
#define VECTORS 2
#define NAME "x86-64-v3"
#define PACKS true
#define TILE(name) name##_v3
#include "run/device/cpu/tile_kernels.h"
#pragma GCC pop_options
#endif

#define LANES 4
#define VECTORS 2
#define NAME "any"
#define PACKS false
#define TILE(name) name##_any
#include "run/device/cpu/tile_kernels.h"

#pragma GCC pop_options

const struct pd_tile_ops *pd_tile_ops_of(int n)
{
#ifdef MORE
	bool v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
		  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
	bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");

	if (v4 && n-- == 0)
		return &ops_v4;
	if (v3 && n-- == 0)
		return &ops_v3;
#endif
	return n == 0 ? &ops_any : NULL;
}

const struct pd_tile_ops *pd_tile_ops(void)
{
	static const struct pd_tile_ops *_Atomic chosen;
	const struct pd_tile_ops *ops = chosen;
	const char *wish = ops ? NULL : getenv("PD_CPU_TILES");

	if (ops)
		return ops;
	for (int n = 0; (ops = pd_tile_ops_of(n)) && wish && wish[0] && strcmp(wish, ops->name) != 0; n++)
		;
	return chosen = ops;
}
