/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/report.h"

#include "base/mem.h"
#include "base/sort.h"
#include "trace/arrivals.h"

#include <math.h>
#include <stdlib.h>

static enum pd_wait wait_of(enum pd_op_kind kind)
{
	switch (kind) {
	case PD_OP_load:
		return PD_WAIT_LOAD;
	case PD_OP_recv_activation:
		return PD_WAIT_ACTIVATION;
	case PD_OP_recv_gradient:
		return PD_WAIT_GRADIENT;
	case PD_OP_allreduce:
	case PD_OP_norms:
	case PD_OP_agree:
		return PD_WAIT_ALLREDUCE;
	default:
		return PD_WAIT_OTHER;
	}
}

/* Divides a rank's window into work and waits. */
static void add_waits(struct pd_report *report, int rank, const struct pd_arrivals *arrivals)
{
	const struct pd_lane *lane = pd_timeline_lane(report->timeline, rank, PD_LANE_COMPUTE);
	struct pd_rank_report *mine = &report->ranks[rank];
	int64_t at = report->begin_ns, end = report->end_ns;

	for (size_t i = 0; i < lane->count && at < end; i++) {
		const struct pd_record *record = lane->bars[i].record;
		int64_t start = pd_clamp(record->start_ns, at, end);
		int64_t stop = pd_clamp(record->end_ns, start, end), until, launch;
		const struct pd_record *awaited;
		struct pd_stage_report *stage;
		enum pd_wait what;
		bool whole;

		if (record->end_ns < at)
			continue;
		/* whose wait is in the window as a whole */
		whole = record->op.kind == PD_OP_step && at > report->begin_ns &&
			record->start_ns <= end;
		stage = &report->stages[record->op.stage];
		stage->steps += whole;
		awaited = start > at ? pd_arrivals_awaited(arrivals, record) : NULL;
		/* What takes no time and waited for nothing hides what the next one waited for. */
		if (start > at && stop == start && !awaited)
			continue;
		if (start > at) {
			what = awaited ? wait_of(awaited->op.kind) : PD_WAIT_OTHER;
			until = awaited ? pd_clamp(awaited->end_ns, at, start) : at;
			mine->wait_ns[what] += until - at;
			if (what == PD_WAIT_ALLREDUCE && whole)
				stage->exposed_ns += (double)(until - at);
			launch = pd_clamp(pd_arrivals_launch_ns(arrivals, record, until), 0, start - until);
			mine->wait_ns[PD_WAIT_LAUNCH] += launch;
			mine->wait_ns[PD_WAIT_OTHER] += start - until - launch;
		}
		mine->busy_ns += stop - start;
		at = stop;
	}
	mine->wait_ns[PD_WAIT_OTHER] += end - at;
}

static int by_start(const void *bar, const void *ns)
{
	int64_t start_ns = ((const struct pd_bar *)bar)->record->start_ns;

	return pd_by_value(&start_ns, ns);
}

/* Returns how long the rank computes before `ns`, from sums over bars that do not overlap. */
static int64_t busy_before(const struct pd_lane *lane, const int64_t *sums, int64_t ns)
{
	size_t begun = pd_count_below(&ns, lane->bars, lane->count, sizeof(*lane->bars), by_start, -1);
	int64_t last;

	if (begun == 0)
		return 0;
	last = lane->bars[begun - 1].record->end_ns;
	return sums[begun] - (last > ns ? last - ns : 0);
}

struct span { int64_t begin_ns, end_ns; };

static int by_begin(const void *a, const void *b)
{
	const struct span *x = a, *y = b;

	return (x->begin_ns > y->begin_ns) - (x->begin_ns < y->begin_ns);
}

/* Lists when bytes came to or left a rank, in the window, by beginning; returns how many spans. */
static size_t travels_of(const struct pd_report *report, int rank, struct span **list_p)
{
	size_t room = 0, count = 0;
	struct span *list;

	for (int l = PD_LANE_ACTIVATIONS_IN; l < PD_TRACK_LANES; l++)
		room += pd_timeline_lane(report->timeline, rank, l)->count;
	list = pd_calloc(room, sizeof(*list));
	for (int l = PD_LANE_ACTIVATIONS_IN; l < PD_TRACK_LANES; l++) {
		const struct pd_lane *moves = pd_timeline_lane(report->timeline, rank, l);

		for (size_t i = 0; i < moves->count; i++) {
			const struct pd_record *record = moves->bars[i].record;

			list[count++] = (struct span){
				pd_clamp(record->start_ns, report->begin_ns, report->end_ns),
				pd_clamp(record->end_ns, report->begin_ns, report->end_ns) };
		}
	}
	qsort(list, count, sizeof(*list), by_begin);
	*list_p = list;
	return count;
}

/* Where processors are shared, copies take processor time, and computing is not slower besides. */
static bool is_slowed(const struct pd_trace *trace)
{
	return trace->plan->profile->beside_transfers > 1 && trace->processors == 0 && !trace->shared;
}

/* Returns by how much computing took longer while bytes came or left. */
static int64_t slowed_ns(const struct pd_report *report, int rank, const int64_t *sums)
{
	const struct pd_lane *lane = pd_timeline_lane(report->timeline, rank, PD_LANE_COMPUTE);
	double factor = report->timeline->trace->plan->profile->beside_transfers;
	int64_t busy = 0, until = INT64_MIN;
	struct span *list;
	size_t count = travels_of(report, rank, &list);

	for (size_t i = 0; i < count; i++) {
		int64_t begin = list[i].begin_ns > until ? list[i].begin_ns : until;

		if (list[i].end_ns <= begin)
			continue;
		busy += busy_before(lane, sums, list[i].end_ns) - busy_before(lane, sums, begin);
		until = list[i].end_ns;
	}
	free(list);
	return llround((double)busy * (1 - 1 / factor));
}

static void add_overlap(struct pd_report *report, int rank)
{
	const struct pd_lane *lane = pd_timeline_lane(report->timeline, rank, PD_LANE_COMPUTE);
	struct pd_rank_report *mine = &report->ranks[rank];
	int64_t *sums = pd_calloc(lane->count + 1, sizeof(*sums));

	for (size_t i = 0; i < lane->count; i++)
		sums[i + 1] = sums[i] + lane->bars[i].record->end_ns
			      - lane->bars[i].record->start_ns;
	for (int l = PD_LANE_ACTIVATIONS_IN; l < PD_TRACK_LANES; l++) {
		const struct pd_lane *moves = pd_timeline_lane(report->timeline, rank, l);

		for (size_t i = 0; i < moves->count; i++) {
			const struct pd_record *record = moves->bars[i].record;
			int64_t start = pd_clamp(record->start_ns, report->begin_ns, report->end_ns);
			int64_t end = pd_clamp(record->end_ns, report->begin_ns, report->end_ns);

			mine->transfer_ns += end - start;
			mine->overlapped_ns += busy_before(lane, sums, end)
					       - busy_before(lane, sums, start);
		}
	}
	if (is_slowed(report->timeline->trace))
		mine->slowed_ns = slowed_ns(report, rank, sums);
	free(sums);
}

static double mean(double sum, int64_t count)
{
	return count ? sum / (double)count : 0;
}

static void add_stages(struct pd_report *report)
{
	const struct pd_trace *trace = report->timeline->trace;
	int n = trace->plan->stage_count;
	int64_t (*count)[PD_OP_KINDS] = pd_calloc((size_t)n, sizeof(*count));
	double (*sum)[PD_OP_KINDS] = pd_calloc((size_t)n, sizeof(*sum));

	for (size_t i = 0; i < trace->count; i++) {
		const struct pd_record *record = &trace->records[i];
		const struct pd_op *op = &record->op;

		if (op->evaluate)
			continue;
		count[op->stage][op->kind] += !op->more;
		sum[op->stage][op->kind] += (double)(record->end_ns - record->start_ns);
		if (op->kind == PD_OP_norms) {
			report->stages[op->stage].norms++;
			report->stages[op->stage].norm_bytes =
				pd_plus(report->stages[op->stage].norm_bytes, record->bytes);
			report->stages[op->stage].norm_sent_bytes += (double)record->sent_bytes;
			report->stages[op->stage].norm_messages += (double)record->messages;
		}
		if (op->kind == PD_OP_allreduce) {
			report->stages[op->stage].sent_bytes += (double)record->sent_bytes;
			report->stages[op->stage].messages += (double)record->messages;
			report->stages[op->stage].allreduces++;
			report->stages[op->stage].allreduce_bytes =
				pd_plus(report->stages[op->stage].allreduce_bytes, record->bytes);
		}
	}
	for (int s = 0; s < n; s++) {
		struct pd_stage_report *stage = &report->stages[s];
		int64_t whole = count[s][PD_OP_backward], parts = count[s][PD_OP_backward_weight];

		stage->microbatches = whole + parts;
		stage->forward_ns = mean(sum[s][PD_OP_forward], count[s][PD_OP_forward]);
		stage->recompute_ns = mean(sum[s][PD_OP_recompute], count[s][PD_OP_recompute]);
		stage->backward_ns = mean(sum[s][PD_OP_backward] + sum[s][PD_OP_backward_input]
					  + sum[s][PD_OP_backward_weight], whole + parts);
		stage->step_ns = mean(sum[s][PD_OP_step], count[s][PD_OP_step]);
		stage->norms_ns = mean(sum[s][PD_OP_norms], stage->norms);
		stage->sent_bytes = mean(stage->sent_bytes, count[s][PD_OP_step]);
		stage->messages = mean(stage->messages, count[s][PD_OP_step]);
		stage->norm_sent_bytes = mean(stage->norm_sent_bytes, count[s][PD_OP_step]);
		stage->norm_messages = mean(stage->norm_messages, count[s][PD_OP_step]);
		stage->exposed_ns = mean(stage->exposed_ns, stage->steps);
		stage->allreduce_ns = mean(sum[s][PD_OP_allreduce], stage->allreduces);
	}
	report->microbatches = n ? report->stages[0].microbatches : 0;
	free(count);
	free(sum);
}

/* Adds the links, which are numbered as in the wiring: sorted by their stages. */
static void add_links(struct pd_report *report)
{
	const struct pd_timeline *timeline = report->timeline;
	size_t capacity = 0;

	for (size_t i = 0; i < timeline->trace->count; i++) {
		const struct pd_record *record = &timeline->trace->records[i];
		const struct pd_op *op = &record->op;
		double time = (double)(record->end_ns - record->start_ns);
		struct pd_link_report *link;

		if (op->kind != PD_OP_send_activation && op->kind != PD_OP_send_gradient)
			continue;
		if (op->link >= report->link_count) {
			report->link_count = op->link + 1;
			report->links = pd_grow(report->links, &capacity,
						(size_t)report->link_count, sizeof(*link));
		}
		link = &report->links[op->link];
		if (op->kind == PD_OP_send_activation) {
			link->from = op->stage;
			link->to = timeline->stages[op->peer];
			link->activation_bytes = pd_plus(link->activation_bytes, record->bytes);
			link->activations++;
			link->activation_ns += time;
		} else {
			link->from = timeline->stages[op->peer];
			link->to = op->stage;
			link->gradient_bytes = pd_plus(link->gradient_bytes, record->bytes);
			link->gradients++;
			link->gradient_ns += time;
		}
	}
	/* If the peer has several stages, its own records say which it is. */
	for (size_t i = 0; i < timeline->trace->count; i++) {
		const struct pd_op *op = &timeline->trace->records[i].op;

		if (op->link < 0 || op->link >= report->link_count)
			continue;
		if (op->kind == PD_OP_recv_activation)
			report->links[op->link].to = op->stage;
		else if (op->kind == PD_OP_recv_gradient)
			report->links[op->link].from = op->stage;
	}
	for (int i = 0; i < report->link_count; i++) {
		struct pd_link_report *link = &report->links[i];

		link->activation_ns = mean(link->activation_ns, link->activations);
		link->gradient_ns = mean(link->gradient_ns, link->gradients);
	}
}

struct pd_report *pd_report_new(const struct pd_timeline *timeline)
{
	struct pd_report *report = pd_zalloc(sizeof(*report));
	struct pd_arrivals arrivals = pd_arrivals_of(timeline->trace);

	report->timeline = timeline;
	report->begin_ns = timeline->begin_ns;
	report->end_ns = timeline->end_ns;
	report->has_steady = pd_trace_steady(timeline->trace, &report->steady);
	if (report->has_steady) {
		report->begin_ns = report->steady.begin_ns;
		report->end_ns = report->steady.end_ns;
	}
	report->ranks = pd_calloc((size_t)timeline->rank_count, sizeof(*report->ranks));
	report->stages = pd_calloc((size_t)timeline->trace->plan->stage_count,
				   sizeof(*report->stages));
	for (int rank = 0; rank < timeline->rank_count; rank++) {
		add_waits(report, rank, &arrivals);
		add_overlap(report, rank);
	}
	pd_arrivals_release(&arrivals);
	add_stages(report);
	add_links(report);
	return report;
}

void pd_report_estimate(struct pd_report *report, double period_ns)
{
	report->has_steady = report->estimated = true;
	report->steady = (struct pd_steady){ .period_ns = period_ns };
}

double pd_report_bubble(const struct pd_report *report)
{
	double window = (double)(report->end_ns - report->begin_ns), busy = 0;
	int count = report->timeline->rank_count;

	for (int r = 0; r < count; r++)
		busy += (double)report->ranks[r].busy_ns;
	return 100 - 100 * busy / (window * count);
}

bool pd_report_inside(const struct pd_report *report, const struct pd_report *predicted)
{
	double part = report->steady.period_ns / predicted->steady.period_ns;

	return part >= predicted->range.low && part <= predicted->range.high;
}

void pd_report_free(struct pd_report *report)
{
	if (!report)
		return;
	free(report->ranks);
	free(report->stages);
	free(report->links);
	free(report);
}
