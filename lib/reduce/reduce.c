/* SPDX-License-Identifier: Apache-2.0 */
#include "reduce/reduce.h"

const struct pd_reduction_ops *const pd_reductions[] = {
#define REDUCER_KIND(symbol, name, what) [PD_REDUCER_##symbol] = &pd_reduction_##symbol,
#include "topology/reducer_kind.def"
#undef REDUCER_KIND
};
