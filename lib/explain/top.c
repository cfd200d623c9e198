/* SPDX-License-Identifier: Apache-2.0 */
#include "explain/top.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/opt.h"
#include "plan/prediction.h"

#include <inttypes.h>

/* Returns what --schedule says for a schedule. */
static const char *schedule_name(const struct pd_top_row *row)
{
	return pd_schedule_has(row->schedule, PD_FACT_ORDERED) ? "zb-auto" : pd_schedule_kind_name[row->schedule];
}

static const char *row_from(const struct pd_top_row *row)
{
	return pd_period_kind_name[row->period_from - PD_PERIOD_REPLAY];
}

static int64_t at_least_one(int64_t n)
{
	return n > 1 ? n : 1;
}

void pd_top_print(const struct pd_top *top, FILE *out)
{
	double most = 0;

	for (int i = 0; i < top->count; i++)
		most = top->rows[i].samples_per_s > most ? top->rows[i].samples_per_s : most;
	fprintf(out, "%3s %11s %9s %7s %3s %4s %4s %3s %5s  %-11s %-13s %10s %6s %8s %10s  %s\n", "", "samples/s", "step",
		"of best", "tp", "pp", "vp", "dp", "fsdp", "schedule", "weights", "microbatch", "number", "devices", "memory",
		"from");
	for (int i = 0; i < top->count; i++) {
		const struct pd_top_row *row = &top->rows[i];
		char step[32], memory[32], pipelines[16] = "-";

		if (row->pipelines > 0)
			snprintf(pipelines, sizeof(pipelines), "%d", row->pipelines);
		fprintf(out, "%3d %11.1f %9s %6.0f%% %3" PRId64 " %4d %4d %3s %5" PRId64 "  %-11s %-13s %10" PRId64 " %6" PRId64
			" %8" PRId64 " %10s  %s%s%s%s\n", i + 1, row->samples_per_s,
			pd_show_time(row->period_ns * row->microbatches, step), 100 * row->samples_per_s / most,
			at_least_one(row->group.tensor), row->positions, row->virtual_stages, pipelines,
			at_least_one(row->group.sharded), schedule_name(row), pd_weight_kind_name[row->weights],
			row->batch_size, row->microbatches, row->devices, pd_show_bytes(row->memory_bytes, memory),
			row_from(row), row->searched ? ", searched" : "", row->recomputed ? ", recomputes" : "",
			row->pipelines ? "" : ", unequal");
	}
}

static json_t *command_of(const struct pd_top_row *row)
{
	json_t *list = json_array();
	char text[64];

	if (row->degree_asked) {
		snprintf(text, sizeof(text), "--tensor=%" PRId64 "%s", at_least_one(row->group.tensor),
			 row->group.sequence ? ",sequence" : "");
		pd_json_add(list, json_string(text));
	}
	snprintf(text, sizeof(text), "--schedule=%s", schedule_name(row));
	pd_json_add(list, json_string(text));
	snprintf(text, sizeof(text), "--weights=%s", pd_weight_kind_name[row->weights]);
	pd_json_add(list, json_string(text));
	if (row->virtual_stages > 1) {
		snprintf(text, sizeof(text), "--virtual-stages=%d", row->virtual_stages);
		pd_json_add(list, json_string(text));
	}
	snprintf(text, sizeof(text), "--microbatches=%" PRId64, row->microbatches);
	pd_json_add(list, json_string(text));
	pd_json_add(list, json_sprintf("--stages=%s", row->stages));
	return list;
}

static json_t *object_of(const struct pd_top_row *row, int place)
{
	return json_pack("{s:s, s:i, s:i, s:f, s:I, s:I, s:s, s:b, s:I, s:b, s:I, s:s, s:s, s:i, s:i, s:i, s:I, s:I, s:i, s:I, "
			 "s:I, s:b, s:o}", "format", "pd-choice", "version", 1, "place", place,
			 "samples_per_s", row->samples_per_s, "step_ns", (json_int_t)(row->period_ns * row->microbatches),
			 "period_ns", (json_int_t)row->period_ns, "period_from", row_from(row), "searched", row->searched,
			 "tensor", (json_int_t)at_least_one(row->group.tensor), "sequence", row->group.sequence,
			 "sharded", (json_int_t)at_least_one(row->group.sharded), "schedule", pd_schedule_kind_name[row->schedule],
			 "weights", pd_weight_kind_name[row->weights], "pipelines", row->pipelines,
			 "positions", row->positions, "virtual_stages", row->virtual_stages,
			 "microbatches", (json_int_t)row->microbatches, "batch_size", (json_int_t)row->batch_size,
			 "recomputed_stages", row->recomputed, "devices", (json_int_t)row->devices,
			 "memory_bytes", (json_int_t)row->memory_bytes, "pareto", row->pareto, "plan", command_of(row));
}

int pd_top_write(const struct pd_top *top, FILE *out, struct pd_error *err)
{
	for (int i = 0; i < top->count; i++) {
		json_t *object = object_of(&top->rows[i], i + 1);

		if (!object)
			pd_bug("top: no object was made");
		if (json_dumpf(object, out, JSON_COMPACT) < 0 || fputc('\n', out) == EOF) {
			json_decref(object);
			return pd_error_failed(err, "standard output cannot be written");
		}
		json_decref(object);
	}
	return 0;
}
