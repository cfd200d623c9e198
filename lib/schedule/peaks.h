/* SPDX-License-Identifier: Apache-2.0 */
/* The most that a rank holds at once when it follows its list. */
#pragma once

#include "schedule/price.h"

struct pd_peaks {
	int64_t activations;            /* microbatches between forward and the end of backward, each stage's */
	int64_t bytes;                  /* all memory of the rank, by the prices; at most INT64_MAX */
};

void pd_peaks_of_rank(const struct pd_lists *lists, const struct pd_prices *prices, int rank,
		      struct pd_peaks *out_p);
