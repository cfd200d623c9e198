/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cpu/cpu.h"

/* Elementwise: how the pieces fall to threads does not change a bit. */
#define PIECE 16384

void pd_cpu_update(const struct pd_compiled *net, const struct pd_update *u, int from, int count)
{
	static void (*const table[])(const struct pd_update *, size_t, size_t) = {
		[PD_SGD] = pd_cpu_sgd, [PD_ADAM] = pd_cpu_adam, [PD_ADAMW] = pd_cpu_adam,
	};
	size_t begin, end;

	pd_compiled_range(net, from, count, &begin, &end);
#pragma omp parallel for schedule(static)
	for (size_t at = begin; at < end; at += PIECE)
		table[u->kind](u, at, end - at < PIECE ? end - at : PIECE);
}
