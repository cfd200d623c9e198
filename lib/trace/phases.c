/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/trace.h"

#include "base/mem.h"

int64_t pd_trace_epoch(const struct pd_trace *trace)
{
	int64_t epoch;

	return trace->epoch_minibatches > 0 &&
	       pd_mul(trace->epoch_minibatches, trace->plan->microbatches, &epoch) ? epoch : INT64_MAX;
}

int pd_trace_phases(const struct pd_trace *trace, int64_t **bounds_p)
{
	int64_t first = INT64_MAX, last = -1, trained = 0, epoch = pd_trace_epoch(trace), left;
	int64_t *bounds;
	int count = 0;

	for (size_t i = 0; i < trace->count; i++) {
		const struct pd_op *op = &trace->records[i].op;

		if (op->evaluate)
			continue;
		trained++;
		first = op->microbatch < first ? op->microbatch : first;
		last = op->microbatch > last ? op->microbatch : last;
	}
	if (trained == 0 || last - first >= trained || last == INT64_MAX)
		return 0;
	bounds = pd_calloc((size_t)((last - first) / epoch) + 3, sizeof(*bounds));
	for (int64_t b = first; b <= last; b = left <= last - b ? b + left : last + 1) {
		bounds[count++] = b;
		left = epoch - b % epoch;
	}
	bounds[count] = last + 1;
	*bounds_p = bounds;
	return count;
}
