/* SPDX-License-Identifier: Apache-2.0 */
#include "base/median.h"

#include "base/sort.h"

#include <stdlib.h>

int64_t pd_median(int64_t *values, int64_t n)
{
	qsort(values, (size_t)n, sizeof(*values), pd_by_value);
	return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double pd_trimmed_mean(int64_t *values, int64_t n)
{
	int64_t out = n / 8;
	double sum = 0;

	qsort(values, (size_t)n, sizeof(*values), pd_by_value);
	for (int64_t i = out; i < n - out; i++)
		sum += (double)values[i];
	return sum / (double)(n - 2 * out);
}
