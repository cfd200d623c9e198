/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a report for programs: as JSON, and as CSV made from that. */
#include "base/csv.h"
#include "base/json.h"
#include "base/mem.h"
#include "plan/show.h"
#include "trace/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static json_t *real_or_null(bool known, double value)
{
	return known && isfinite(value) ? json_real(value) : json_null();
}

/* Returns a mean, 0 if there was nothing to take it of. */
static json_t *mean(double ns)
{
	return real_or_null(ns > 0, ns);
}

static json_t *rank_json(const struct pd_report *report, int rank)
{
	static const char *const keys[PD_WAITS] = {
		[PD_WAIT_ACTIVATION] = "wait_activation_ns",
		[PD_WAIT_GRADIENT] = "wait_gradient_ns",
		[PD_WAIT_ALLREDUCE] = "wait_allreduce_ns",
		[PD_WAIT_LOAD] = "wait_load_ns",
		[PD_WAIT_LAUNCH] = "wait_launch_ns",
		[PD_WAIT_OTHER] = "wait_other_ns",
	};
	const struct pd_timeline *timeline = report->timeline;
	const struct pd_plan *plan = timeline->trace->plan;
	const struct pd_rank_report *one = &report->ranks[rank];
	int replica = timeline->replicas[rank];
	json_t *stages = json_array(), *json;

	for (int s = timeline->stages[rank]; s < plan->stage_count; s++)
		if (plan->stages[s].replicas > replica && plan->stages[s].ranks[replica] == rank)
			pd_json_add(stages, json_integer(s));
	json = json_pack("{s:i, s:o, s:i, s:I}", "rank", rank, "stages", stages, "replica", replica,
			 "busy_ns", (json_int_t)one->busy_ns);
	for (int w = 0; w < PD_WAITS; w++)
		pd_json_set(json, keys[w], json_integer(one->wait_ns[w]));
	pd_json_set(json, "transfer_ns", json_integer(one->transfer_ns));
	pd_json_set(json, "overlapped_ns", json_integer(one->overlapped_ns));
	if (one->slowed_ns > 0)
		pd_json_set(json, "slowed_ns", json_integer(one->slowed_ns));
	return json;
}

static json_t *stage_json(const struct pd_report *report, int s)
{
	const struct pd_plan *plan = report->timeline->trace->plan;
	const struct pd_stage *stage = &plan->stages[s];
	const struct pd_profile_layer *first = &plan->profile->layers[stage->first_layer];
	const struct pd_stage_report *one = &report->stages[s];

	char kinds[200];

	pd_show_kinds(plan, stage, kinds, sizeof(kinds));
	return json_pack("{s:i, s:o*, s:s, s:s, s:i, s:I, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:s, s:s, s:o,"
			 " s:o, s:o}", "stage", s, "devices", *kinds ? pd_json_shown(kinds) : NULL,
			 "first_layer", first->name,
			 "last_layer", first[stage->layer_count - 1].name,
			 "replicas", stage->replicas,
			 "microbatches", (json_int_t)one->microbatches,
			 "forward_ns", mean(one->forward_ns), "recompute_ns", mean(one->recompute_ns),
			 "backward_ns", mean(one->backward_ns), "step_ns", mean(one->step_ns),
			 "allreduce_ns", mean(one->allreduce_ns),
			 "allreduces", (json_int_t)one->allreduces,
			 "allreduce_bytes", (json_int_t)(one->allreduces
					   ? one->allreduce_bytes / one->allreduces : 0),
			 "norm_bytes", (json_int_t)one->norm_bytes,
			 "reducer", pd_reducer_kind_name[plan->reducer],
			 "gradient_dtype", pd_dtype_name[plan->gradient_dtype],
			 "sent_bytes", mean(one->sent_bytes), "messages", mean(one->messages),
			 "exposed_ns", real_or_null(stage->replicas > 1 && one->steps > 0, one->exposed_ns));
}

static json_t *link_json(const struct pd_link_report *one)
{
	return json_pack("{s:i, s:i, s:I, s:I, s:o, s:I, s:I, s:o}", "from", one->from, "to", one->to,
			 "activations", (json_int_t)one->activations,
			 "activation_bytes", (json_int_t)one->activation_bytes,
			 "activation_ns", mean(one->activation_ns),
			 "gradients", (json_int_t)one->gradients,
			 "gradient_bytes", (json_int_t)one->gradient_bytes,
			 "gradient_ns", mean(one->gradient_ns));
}

/* Adds between which periods a run's is expected, where that is known. */
static void add_range(const struct pd_report *replay, const char *key, json_t *json)
{
	double period = replay ? replay->steady.period_ns : 0;

	if (replay && replay->has_steady && replay->range.high > 0)
		pd_json_set(json, key, json_pack("[I, I]", (json_int_t)llround(period * replay->range.low),
					   (json_int_t)llround(period * replay->range.high)));
}

static void add_head(const struct pd_report *report, json_t *json)
{
	const struct pd_timeline *timeline = report->timeline;
	const struct pd_plan *plan = timeline->trace->plan;
	const struct pd_steady *steady = &report->steady;
	bool settled = report->has_steady;
	json_t *head = json_pack(
		"{s:s, s:b, s:s, s:s, s:I, s:I, s:I, s:I}", "name", plan->profile->name,
		"measured", strcmp(timeline->trace->device, "sim") != 0,
		"schedule", pd_schedule_kind_name[plan->schedule],
		"weights", pd_weight_kind_name[plan->weights],
		"batch_size", (json_int_t)plan->profile->batch_size,
		"microbatches", (json_int_t)report->microbatches,
		"elapsed_ns", (json_int_t)(timeline->end_ns - timeline->begin_ns),
		"window_ns", (json_int_t)(report->end_ns - report->begin_ns));

	json_object_update(json, head);
	json_decref(head);
	pd_json_set(json, "period_ns", real_or_null(settled, steady->period_ns));
	pd_json_set(json, "periodic", settled ? json_boolean(steady->cycle) : json_null());
	if (report->estimated)
		pd_json_set(json, "estimated", json_true());
	pd_json_set(json, "samples_per_s", real_or_null(settled, (double)
		    plan->profile->batch_size * 1e9 / steady->period_ns));
	pd_json_set(json, "bubble_percent", real_or_null(report->end_ns > report->begin_ns,
							pd_report_bubble(report)));
	add_range(report, "period_range_ns", json);
	pd_json_set(json, "planned_period_ns", plan->predicted.period_ns > 0
		    ? json_integer(plan->predicted.period_ns) : json_null());
}

static void add_tables(const struct pd_report *report, json_t *json)
{
	const struct pd_plan *plan = report->timeline->trace->plan;
	json_t *ranks = json_array(), *stages = json_array(), *links = json_array();

	for (int r = 0; r < plan->rank_count; r++)
		pd_json_add(ranks, rank_json(report, r));
	for (int s = 0; s < plan->stage_count; s++)
		pd_json_add(stages, stage_json(report, s));
	for (int i = 0; i < report->link_count; i++)
		if (report->links[i].activations || report->links[i].gradients)
			pd_json_add(links, link_json(&report->links[i]));
	pd_json_set(json, "stages", stages);
	pd_json_set(json, "ranks", ranks);
	pd_json_set(json, "links", links);
}

json_t *pd_report_json(const struct pd_report *report, const struct pd_report *predicted)
{
	json_t *json = json_pack("{s:s, s:i}", "format", "pd-report", "version", 1);

	add_head(report, json);
	pd_json_set(json, "replayed_period_ns", real_or_null(
		    predicted && predicted->has_steady,
		    predicted ? predicted->steady.period_ns : 0));
	add_range(predicted, "replayed_period_range_ns", json);
	add_tables(report, json);
	return json;
}

/* ---- CSV ---- */

static void put_members(const char *table, size_t row, json_t *object, FILE *out)
{
	const char *key;
	json_t *value;

	json_object_foreach(object, key, value) {
		if (json_is_object(json_array_get(value, 0)) ||
		    (json_is_array(value) && json_array_size(value) == 0))
			continue;
		fprintf(out, "%s,%zu,%s,", table, row, key);
		pd_csv_put(value, out);
		fputs(PD_CSV_END, out);
	}
}

void pd_report_csv(json_t *report, FILE *out)
{
	static const char *const tables[] = { "stages", "ranks", "links" };
	json_t *row;
	size_t i;

	fputs("table,row,key,value" PD_CSV_END, out);
	put_members("report", 0, report, out);
	for (size_t t = 0; t < PD_COUNT(tables); t++)
		json_array_foreach(json_object_get(report, tables[t]), i, row)
			put_members(tables[t], i, row, out);
}
