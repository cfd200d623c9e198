/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/timeline.h"

#include "base/mem.h"
#include "base/sort.h"
#include "plan/show.h"

#include <stdlib.h>

const char *const pd_lane_name[PD_TRACK_LANES] = {
	[PD_LANE_COMPUTE] = "compute",
	[PD_LANE_LOAD] = "load",
	[PD_LANE_ACTIVATIONS_IN] = "activations in",
	[PD_LANE_ACTIVATIONS_OUT] = "activations out",
	[PD_LANE_GRADIENTS_IN] = "gradients in",
	[PD_LANE_GRADIENTS_OUT] = "gradients out",
	[PD_LANE_ALLREDUCE] = "all-reduce",
};

enum pd_lane_kind pd_lane_of(enum pd_op_kind kind)
{
	switch (kind) {
	case PD_OP_load:
		return PD_LANE_LOAD;
	case PD_OP_recv_activation:
		return PD_LANE_ACTIVATIONS_IN;
	case PD_OP_send_activation:
		return PD_LANE_ACTIVATIONS_OUT;
	case PD_OP_recv_gradient:
		return PD_LANE_GRADIENTS_IN;
	case PD_OP_send_gradient:
		return PD_LANE_GRADIENTS_OUT;
	case PD_OP_allreduce:
	case PD_OP_norms:
	case PD_OP_agree:
		return PD_LANE_ALLREDUCE;
	default:
		return PD_LANE_COMPUTE;
	}
}

static int by_time(const void *a, const void *b)
{
	const struct pd_record *x = ((const struct pd_bar *)a)->record;
	const struct pd_record *y = ((const struct pd_bar *)b)->record;

	PD_ORDER(x->start_ns, y->start_ns);
	PD_ORDER(x->end_ns, y->end_ns);
	return (x > y) - (x < y);       /* in the order of the trace */
}

/* Puts each bar into the first row that is free at its start. */
static void stack_lane(struct pd_lane *lane)
{
	size_t capacity = 0;
	int64_t *free_ns = NULL;

	qsort(lane->bars, lane->count, sizeof(*lane->bars), by_time);
	for (size_t i = 0; i < lane->count; i++) {
		struct pd_bar *bar = &lane->bars[i];

		while (bar->depth < lane->depth && free_ns[bar->depth] > bar->record->start_ns)
			bar->depth++;
		if (bar->depth == lane->depth)
			free_ns = pd_grow(free_ns, &capacity, (size_t)++lane->depth,
					  sizeof(*free_ns));
		free_ns[bar->depth] = bar->record->end_ns;
	}
	free(free_ns);
}

static bool are_together(const struct pd_bar *a, const struct pd_bar *b)
{
	return a->depth == 0 && b->depth == 1 && a->record->start_ns == b->record->start_ns &&
	       a->record->end_ns == b->record->end_ns;
}

bool pd_lane_pairs(const struct pd_lane *lane, size_t i)
{
	return (i > 0 && are_together(&lane->bars[i - 1], &lane->bars[i])) ||
	       (i + 1 < lane->count && are_together(&lane->bars[i], &lane->bars[i + 1]));
}

static struct pd_lane *lane_of(struct pd_timeline *timeline, const struct pd_record *record)
{
	return &timeline->lanes[(size_t)record->op.rank * PD_TRACK_LANES + pd_lane_of(record->op.kind)];
}

static void fill_lanes(struct pd_timeline *timeline)
{
	const struct pd_trace *trace = timeline->trace;
	size_t lanes = (size_t)timeline->rank_count * PD_TRACK_LANES, used = 0;

	for (size_t i = 0; i < trace->count; i++)
		lane_of(timeline, &trace->records[i])->count++;
	for (size_t l = 0; l < lanes; l++) {
		timeline->lanes[l].bars = timeline->bars + used;
		used += timeline->lanes[l].count;
		timeline->lanes[l].count = 0;
	}
	for (size_t i = 0; i < trace->count; i++) {
		struct pd_lane *lane = lane_of(timeline, &trace->records[i]);

		lane->bars[lane->count++].record = &trace->records[i];
	}
	for (size_t l = 0; l < lanes; l++)
		stack_lane(&timeline->lanes[l]);
}

/* Interleaved stages share ranks, so a rank is drawn once, where its first stage is. */
static void fill_ranks(struct pd_timeline *timeline, const struct pd_plan *plan)
{
	size_t ranks = (size_t)plan->rank_count;
	int row = 0;

	timeline->rows = pd_calloc(ranks, sizeof(int));
	timeline->stages = pd_calloc(ranks, sizeof(int));
	timeline->replicas = pd_calloc(ranks, sizeof(int));
	timeline->stage_counts = pd_calloc(ranks, sizeof(int));
	timeline->chunks = pd_calloc((size_t)plan->stage_count, sizeof(int));
	for (int s = 0; s < plan->stage_count; s++)
		for (int i = 0; i < plan->stages[s].replicas; i++) {
			int rank = plan->stages[s].ranks[i];

			timeline->chunks[s] = timeline->stage_counts[rank]++;
			if (timeline->chunks[s] > 0)
				continue;
			timeline->stages[rank] = s;
			timeline->replicas[rank] = i;
			timeline->rows[row++] = rank;
		}
}

struct pd_timeline *pd_timeline_new(const struct pd_trace *trace)
{
	struct pd_timeline *timeline = pd_zalloc(sizeof(*timeline));
	const struct pd_plan *plan = trace->plan;

	timeline->trace = trace;
	timeline->rank_count = timeline->row_count = plan->rank_count;
	fill_ranks(timeline, plan);
	for (size_t i = 0; i < trace->count; i++) {
		const struct pd_record *record = &trace->records[i];

		if (i == 0 || record->start_ns < timeline->begin_ns)
			timeline->begin_ns = record->start_ns;
		if (i == 0 || record->end_ns > timeline->end_ns)
			timeline->end_ns = record->end_ns;
	}
	timeline->lanes = pd_calloc((size_t)plan->rank_count * PD_TRACK_LANES, sizeof(struct pd_lane));
	timeline->bars = pd_calloc(trace->count, sizeof(struct pd_bar));
	fill_lanes(timeline);
	return timeline;
}

void pd_timeline_free(struct pd_timeline *timeline)
{
	if (!timeline)
		return;
	free(timeline->rows);
	free(timeline->stages);
	free(timeline->replicas);
	free(timeline->stage_counts);
	free(timeline->chunks);
	free(timeline->lanes);
	free(timeline->bars);
	free(timeline);
}

void pd_timeline_fold(struct pd_timeline *timeline)
{
	int kept = 0;

	for (int i = 0; i < timeline->row_count; i++)
		if (timeline->replicas[timeline->rows[i]] == 0)
			timeline->rows[kept++] = timeline->rows[i];
	timeline->folded = kept < timeline->row_count;
	timeline->row_count = kept;
}

#define STAGES_NAMED 6

const char *pd_timeline_stages(const struct pd_timeline *timeline, int rank,
			       const char *separator, char *buf, size_t size)
{
	const struct pd_plan *plan = timeline->trace->plan;
	int count = timeline->stage_counts[rank], at = 0;
	size_t used = 0;

	*buf = '\0';
	for (int s = timeline->stages[rank]; at < count && s < plan->stage_count && used + 1 < size;
	     s++) {
		if (plan->stages[s].replicas <= timeline->replicas[rank] ||
		    plan->stages[s].ranks[timeline->replicas[rank]] != rank)
			continue;
		at++;
		if (count > STAGES_NAMED && at > 2 && at < count) {
			used += (size_t)snprintf(buf + used, size - used, at == 3 ? "%s..." : "",
						 separator);
			continue;
		}
		used += (size_t)snprintf(buf + used, size - used, "%s%d", used ? separator : "", s);
	}
	return buf;
}

const char *pd_timeline_ranks(const struct pd_timeline *timeline, int rank, char *buf, size_t size)
{
	const struct pd_stage *stage = &timeline->trace->plan->stages[timeline->stages[rank]];

	if (timeline->folded)
		return pd_show_ranks(stage, buf, size);
	snprintf(buf, size, "%d", rank);
	return buf;
}
