/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/device/update.h"

#include <stddef.h>

const char *const pd_optimizer_kind_name[] = {
#define OPTIMIZER(symbol, name, ...) #name,
#include "engine/device/optimizer.def"
#undef OPTIMIZER
	NULL
};

const struct pd_optimizer_row pd_optimizer_rows[] = {
#define OPTIMIZER(symbol, name, moments, facts, ...) { moments, facts, { __VA_ARGS__ } },
#include "engine/device/optimizer.def"
#undef OPTIMIZER
};

int pd_optimizer_moment_count(enum pd_optimizer_kind kind, double momentum)
{
	const struct pd_optimizer_row *row = &pd_optimizer_rows[kind];

	return row->defaults.momentum > 0 && momentum == 0 ? 0 : row->moments;
}
