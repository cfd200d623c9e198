/* SPDX-License-Identifier: Apache-2.0 */
/* Divides the time of each rank into computing and kinds of waiting. */
#include "trace/compare.h"

#include "base/mem.h"
#include "base/sort.h"
#include "trace/arrivals.h"

#include <stdlib.h>

static void add_awaited(struct pd_time_spent *spent, size_t *capacity, int rank,
			const struct pd_record *recv, int64_t ns)
{
	bool gradient = recv->op.kind == PD_OP_recv_gradient;
	struct pd_awaited *one;

	spent->ns[rank][gradient ? PD_SPENT_GRADIENT : PD_SPENT_ACTIVATION] += ns;
	for (int i = spent->awaited_count; i-- > 0 && spent->awaited[i].rank == rank;) {
		one = &spent->awaited[i];
		if (one->peer == recv->op.peer && one->gradient == gradient) {
			one->ns += ns;
			return;
		}
	}
	if (ns == 0)
		return;
	spent->awaited = pd_grow(spent->awaited, capacity, (size_t)spent->awaited_count + 1,
				 sizeof(*spent->awaited));
	spent->awaited[spent->awaited_count++] =
		(struct pd_awaited){ rank, recv->op.peer, gradient, ns };
}

/* Adds the idle time from `from` to the start of record, clamped to `to`. */
static void add_gap(struct pd_time_spent *spent, size_t *capacity, const struct pd_arrivals *arrivals,
		    const struct pd_record *record, int64_t from, int64_t to)
{
	const struct pd_record *what = pd_arrivals_awaited(arrivals, record);
	int rank = record->op.rank;
	int64_t until = what ? pd_clamp(what->end_ns, from, to) : from, set_out;
	int64_t launch = pd_clamp(pd_arrivals_launch_ns(arrivals, record, until), 0, to - until);

	spent->ns[rank][PD_SPENT_LAUNCH] += launch;
	spent->ns[rank][PD_SPENT_OTHER] += to - until - launch;
	if (!what)
		return;
	if (pd_op_of_all(what->op.kind)) {
		spent->ns[rank][PD_SPENT_ALLREDUCE] += until - from;
	} else if (what->op.kind == PD_OP_load) {
		spent->ns[rank][PD_SPENT_OTHER] += until - from;
	} else {
		set_out = pd_clamp(pd_arrivals_began_ns(arrivals, what), from, until);
		add_awaited(spent, capacity, rank, what, set_out - from);
		spent->ns[rank][PD_SPENT_TRANSFER] += until - set_out;
	}
}

static void add_rank(struct pd_time_spent *spent, size_t *capacity, const struct pd_arrivals *arrivals,
		     const struct pd_timeline *timeline, int rank)
{
	const struct pd_lane *lane = pd_timeline_lane(timeline, rank, PD_LANE_COMPUTE);
	int64_t at = spent->begin_ns, end = spent->end_ns;

	for (size_t i = 0; i < lane->count && at < end; i++) {
		const struct pd_record *record = lane->bars[i].record;
		int64_t start = pd_clamp(record->start_ns, at, end);
		int64_t stop = pd_clamp(record->end_ns, start, end);

		/* What takes no time and waited for nothing hides what the next one waited for. */
		if (record->end_ns < at ||
		    (start > at && stop == start && !pd_arrivals_awaited(arrivals, record)))
			continue;
		if (start > at)
			add_gap(spent, capacity, arrivals, record, at, start);
		spent->ns[rank][PD_SPENT_COMPUTE] += stop - start;
		at = stop;
	}
	spent->ns[rank][PD_SPENT_OTHER] += end - at;
}

struct pd_time_spent *pd_time_spent_new(const struct pd_timeline *timeline)
{
	struct pd_time_spent *spent = pd_zalloc(sizeof(*spent));
	struct pd_arrivals arrivals = pd_arrivals_of(timeline->trace);
	struct pd_steady steady;
	size_t capacity = 0;

	spent->begin_ns = timeline->begin_ns;
	spent->end_ns = timeline->end_ns;
	spent->rank_count = timeline->rank_count;
	spent->has_steady = pd_trace_steady(timeline->trace, &steady);
	if (spent->has_steady) {
		spent->begin_ns = steady.begin_ns;
		spent->end_ns = steady.end_ns;
	}
	spent->ns = pd_calloc((size_t)spent->rank_count, sizeof(*spent->ns));
	for (int rank = 0; rank < spent->rank_count; rank++)
		add_rank(spent, &capacity, &arrivals, timeline, rank);
	pd_arrivals_release(&arrivals);
	return spent;
}

void pd_time_spent_free(struct pd_time_spent *spent)
{
	if (!spent)
		return;
	free(spent->ns);
	free(spent->awaited);
	free(spent);
}
